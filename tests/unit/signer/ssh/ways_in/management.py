"""A management cluster that serves discovery, objects and lists, and refuses what a test says."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Final

from signer.kube.client import JsonObject, Parameters
from signer.kube.errors import ApiError, Forbidden, NotFound, ResourceNotServed
from signer.kube.resources import Resource
from signer.model.cluster import ClusterKey
from signer.ssh.ways_in.reading import WaysInReader
from signer.store.cluster_api import ClusterAPIVersion
from signer.testing.cluster_api import cluster_manifest

KEY: Final = ClusterKey("tenant", "blue")
CORE: Final = "cluster.x-k8s.io"
GROUPS: Final = {
    CORE: "v1beta2",
    "infrastructure.cluster.x-k8s.io": "v1beta2",
    "bootstrap.cluster.x-k8s.io": "v1beta2",
    "controlplane.cluster.x-k8s.io": "v1beta2",
}
_GROUP_OF: Final = {
    "Cluster": CORE,
    "Machine": CORE,
    "MachineDeployment": CORE,
    "MachinePool": CORE,
    "KubeadmConfig": "bootstrap.cluster.x-k8s.io",
    "KubeadmConfigTemplate": "bootstrap.cluster.x-k8s.io",
    "KubeadmControlPlane": "controlplane.cluster.x-k8s.io",
}


def resource(kind: str) -> Resource:
    """The resource of a kind."""
    group = _GROUP_OF.get(kind, "infrastructure.cluster.x-k8s.io")
    return Resource(group, GROUPS[group], f"{kind.lower()}s", namespaced=True)


VERSION: Final = ClusterAPIVersion(resource("Cluster"), resource("Machine"), resource("MachinePool"))


def reference(kind: str, name: str, *, v1beta1: bool = False) -> JsonObject:
    """A reference to an object of that kind."""
    one = resource(kind)
    named = {"kind": kind, "name": name}
    return {"apiVersion": one.api_version, **named} if v1beta1 else {"apiGroup": one.group, **named}


class Management:
    """Implements the calls of a reader."""

    def __init__(self) -> None:
        self.objects: dict[str, JsonObject] = {}
        self.refused: dict[str, ApiError] = {}
        self.kinds: set[str] = set(_GROUP_OF)
        self.asked: list[str] = []
        self.put("Cluster", KEY.name, cluster_manifest(KEY.namespace, KEY.name)["spec"])

    def put(self, kind: str, name: str, spec: Any, *, cluster: str = KEY.name, **metadata: Any) -> None:
        """Store an object with the Cluster's label."""
        self.kinds.add(kind)
        labels = {"cluster.x-k8s.io/cluster-name": cluster}
        path = resource(kind).object(name, KEY.namespace)
        self.objects[path] = {"metadata": {"name": name, "labels": labels, **metadata}, "spec": spec}

    def refuse(self, kind: str, name: str = "", error: ApiError | None = None) -> None:
        """Refuse to get that object, or to list that kind."""
        one = resource(kind)
        path = one.object(name, KEY.namespace) if name else one.collection(KEY.namespace)
        self.refused[path] = error or Forbidden("may not", status=403)

    async def get(self, path: str) -> JsonObject:
        """See Get."""
        self.asked.append(path)
        if path in self.refused:
            raise self.refused[path]
        parts = path.strip("/").split("/")
        if parts[0] == "apis" and len(parts) == 2 and parts[1] in GROUPS:
            version = {"groupVersion": f"{parts[1]}/{GROUPS[parts[1]]}", "version": GROUPS[parts[1]]}
            return {"versions": [version], "preferredVersion": version}
        if parts[0] == "apis" and len(parts) == 3:
            kinds = sorted(kind for kind in self.kinds if resource(kind).group == parts[1])
            return {"resources": [{"name": resource(kind).plural, "kind": kind, "namespaced": True} for kind in kinds]}
        if path not in self.objects:
            raise NotFound("not found", status=404) if len(parts) > 3 else ResourceNotServed("not served", status=404)
        return self.objects[path]

    async def list_pages(
        self,
        path: str,
        params: Parameters | None = None,
        limit: int = 500,
        *,
        maximum_bytes: int | None = None,
    ) -> AsyncGenerator[JsonObject, None]:
        """See List. A page holds one object."""
        assert limit
        assert maximum_bytes
        self.asked.append(path)
        if path in self.refused:
            raise self.refused[path]
        selector, _, cluster = str((params or {})["labelSelector"]).partition("=")
        for found in [one for where, one in self.objects.items() if where.rpartition("/")[0] == path]:
            if found["metadata"]["labels"].get(selector) == cluster:
                yield {"items": [found]}
        yield {"items": [None, "x"]}

    def reader(self) -> WaysInReader:
        """A reader of it."""
        return WaysInReader(self, VERSION, KEY)
