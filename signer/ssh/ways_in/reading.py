"""Reads what may declare other ways in: the Cluster's control plane, templates, pools, machines and KubeadmConfigs.

Everything is read from the API server, and nothing is cached: a pass every few minutes is enough. Names and kinds come
from tenants. Only known kinds of Cluster API's groups are read, in the Cluster's own namespace.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from signer.kube.calls import GetList
from signer.kube.discovery import served_kinds
from signer.kube.errors import ApiError, NotFound, ResourceNotServed
from signer.kube.resources import Resource
from signer.model.cluster import CLUSTER_NAME_LABEL, ClusterKey
from signer.model.fields import mapping_of, text_of
from signer.ssh.ways_in.findings import Collection, WaysIn
from signer.ssh.ways_in.infrastructure import (
    MACHINE_KINDS,
    AnyInfraCluster,
    InfraCluster,
    NoFields,
    NoInfraCluster,
    findings_in,
    machine_kind,
    prefix_of,
)
from signer.ssh.ways_in.kubeadm import (
    KUBEADM_CONFIG,
    KUBEADM_CONFIG_TEMPLATE,
    KUBEADM_CONTROL_PLANE,
    SPECS,
    kubeadm_findings,
)
from signer.store.cluster_api import ClusterAPIVersion, NotServed

INFRASTRUCTURE: Final = "infrastructure.cluster.x-k8s.io"
BOOTSTRAP: Final = "bootstrap.cluster.x-k8s.io"
CONTROL_PLANE: Final = "controlplane.cluster.x-k8s.io"
MAXIMUM_REFERENCES: Final = 500
"""Templates, pools and control planes that are read one by one. More are named as not read."""
MAXIMUM_KINDS: Final = 8
"""Kinds of infrastructure machines of one Cluster."""
MAXIMUM_OBJECTS: Final = 50_000
MAXIMUM_BYTES: Final = 512 * 1024 * 1024
"""Of one list. A longer one is named as not read."""
PAGE_OBJECTS: Final = 100
WITHOUT_MACHINES: Final = frozenset({"KamajiControlPlane", "K0smotronControlPlane"})
"""Control planes of Pods in the management cluster."""
POOL: Final = "Pool"
"""What the kinds of pools' infrastructure end with."""
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_KIND: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}", re.ASCII)

_Kinds: TypeAlias = Mapping[str, Resource]


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """What an object refers to, in the Cluster's own namespace."""

    group: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class NoReference:
    """There is none, or one that no object has."""


@dataclass(slots=True)
class _Named:
    """What the Cluster's objects refer to."""

    objects: set[Reference] = field(default_factory=set)
    """Templates, pools, control planes, and KubeadmConfigs of pools, to be read one by one."""
    machine_kinds: set[str] = field(default_factory=set)
    """Of infrastructure machines that are listed."""
    bootstrap_kinds: set[str] = field(default_factory=set)


def reference_of(found: Mapping[str, Any]) -> Reference | NoReference:
    """Read ``{apiGroup, kind, name}`` of v1beta2, or an ObjectReference of v1beta1."""
    group = text_of(found, "apiGroup") or text_of(found, "apiVersion").rpartition("/")[0]
    kind, name = text_of(found, "kind"), text_of(found, "name")
    if not (_NAME.fullmatch(group) and _KIND.fullmatch(kind) and _NAME.fullmatch(name)):
        return NoReference()
    return Reference(group, kind, name)


class WaysInReader:
    """Reads one Cluster's objects and looks for other ways in."""

    def __init__(self, management: GetList, version: ClusterAPIVersion, key: ClusterKey) -> None:
        self._management = management
        self._version = version
        self._key = key
        self._found = Collection()
        self._served: dict[str, _Kinds] = {}
        self._failed: set[str] = set()
        self._cluster: AnyInfraCluster = NoInfraCluster()

    async def read(self) -> WaysIn:
        """One pass over everything. What cannot be read is named in the result.

        Raises:
            ApiError: the Cluster itself cannot be read.
        """
        self._found = Collection()
        self._served, self._failed = {}, set()
        cluster = mapping_of(
            await self._management.get(self._version.clusters.object(self._key.name, self._key.namespace)), "spec"
        )
        named = _Named()
        self._cluster = await self._infra_cluster(mapping_of(cluster, "infrastructureRef"))
        await self._read_control_plane(mapping_of(cluster, "controlPlaneRef"), named)
        await self._read_owners(named)
        await self._read_named(named)
        await self._list_kubeadm_configs(named)
        await self._list_machines(named)
        return self._found.result()

    # Single objects

    async def _infra_cluster(self, found: Mapping[str, Any]) -> AnyInfraCluster:
        """Read only where a rule asks for its kind."""
        reference = reference_of(found)
        asked = {one.cluster for one in MACHINE_KINDS.values() if one.cluster}
        if isinstance(reference, NoReference) or reference.group != INFRASTRUCTURE or reference.kind not in asked:
            return NoInfraCluster()
        manifest = await self._get(reference)
        if not manifest:
            return NoInfraCluster()
        annotations = mapping_of(mapping_of(manifest, "metadata"), "annotations")
        return InfraCluster(reference.kind, mapping_of(manifest, "spec"), annotations)

    async def _read_control_plane(self, found: Mapping[str, Any], named: _Named) -> None:
        reference = reference_of(found)
        if isinstance(reference, NoReference):
            return
        if (reference.group, reference.kind) != (CONTROL_PLANE, KUBEADM_CONTROL_PLANE):
            if reference.kind not in WITHOUT_MACHINES:
                self._found.not_read(f"{reference.kind} {reference.name}", "the fields of that kind are not known")
            return
        manifest = await self._get(reference)
        if manifest:
            self._look(reference.kind, reference.name, manifest)
            template = mapping_of(mapping_of(manifest, "spec"), "machineTemplate")
            in_v1beta2 = mapping_of(mapping_of(template, "spec"), "infrastructureRef")
            self._name_infrastructure(in_v1beta2 or mapping_of(template, "infrastructureRef"), named)

    async def _read_named(self, named: _Named) -> None:
        references = sorted(named.objects)
        if len(references) > MAXIMUM_REFERENCES:
            self._found.not_read("templates and pools", f"there are more than {MAXIMUM_REFERENCES}")
        for reference in references[:MAXIMUM_REFERENCES]:
            manifest = await self._get(reference)
            if manifest:
                self._look(reference.kind, reference.name, manifest)

    async def _get(self, reference: Reference) -> Mapping[str, Any]:
        """The object; empty if it could not be read, which is noted."""
        what = f"{reference.kind} {reference.name}"
        resource = (await self._kinds(reference.group)).get(reference.kind)
        if resource is None:
            self._not_served(reference.group, reference.kind)
            return {}
        try:
            return await self._management.get(resource.object(reference.name, self._key.namespace))
        except (NotFound, ResourceNotServed):
            self._found.not_read(what, "does not exist")
        except ApiError as error:
            self._found.not_read(what, str(error))
        return {}

    # Lists

    async def _read_owners(self, named: _Named) -> None:
        """MachineDeployments, MachinePools and Machines refer to everything else."""
        core = self._version.machines
        deployments = Resource(core.group, core.version, "machinedeployments", namespaced=True)
        pools = self._version.machine_pools
        for resource in (deployments, *(() if isinstance(pools, NotServed) else (pools,))):
            async for item in self._items(resource):
                template = mapping_of(mapping_of(mapping_of(item, "spec"), "template"), "spec")
                self._name_infrastructure(mapping_of(template, "infrastructureRef"), named)
                self._name_bootstrap(mapping_of(mapping_of(template, "bootstrap"), "configRef"), named)
        async for item in self._items(core):
            spec = mapping_of(item, "spec")
            infrastructure = reference_of(mapping_of(spec, "infrastructureRef"))
            if isinstance(infrastructure, Reference):
                self._name_machines(infrastructure.group, infrastructure.kind, named)
            bootstrap = reference_of(mapping_of(mapping_of(spec, "bootstrap"), "configRef"))
            if isinstance(bootstrap, Reference):
                self._name_configs(bootstrap, named)
            else:
                self._without_configuration()

    async def _list_kubeadm_configs(self, named: _Named) -> None:
        if KUBEADM_CONFIG in named.bootstrap_kinds:
            await self._list(BOOTSTRAP, KUBEADM_CONFIG)

    async def _list_machines(self, named: _Named) -> None:
        kinds = sorted(named.machine_kinds)
        if len(kinds) > MAXIMUM_KINDS:
            self._found.not_read("infrastructure machines", f"they are of more than {MAXIMUM_KINDS} kinds")
        for kind in kinds[:MAXIMUM_KINDS]:
            await self._list(INFRASTRUCTURE, kind)

    async def _list(self, group: str, kind: str) -> None:
        resource = (await self._kinds(group)).get(kind)
        if resource is None:
            self._not_served(group, kind)
            return
        async for item in self._items(resource):
            self._look(kind, text_of(mapping_of(item, "metadata"), "name"), item)

    async def _items(self, resource: Resource) -> AsyncGenerator[Mapping[str, Any], None]:
        """The Cluster's objects, by their label; if not all could be read, that is noted."""
        path, selected = resource.collection(self._key.namespace), f"{CLUSTER_NAME_LABEL}={self._key.name}"
        what, count = f"{resource.plural}.{resource.group}", 0
        try:
            pages = self._management.list_pages(
                path, {"labelSelector": selected}, PAGE_OBJECTS, maximum_bytes=MAXIMUM_BYTES
            )
            async with contextlib.aclosing(pages):
                async for page in pages:
                    count += len(page["items"])
                    if count > MAXIMUM_OBJECTS:
                        self._found.not_read(what, f"there are more than {MAXIMUM_OBJECTS}")
                        return
                    for item in page["items"]:
                        if isinstance(item, Mapping):
                            yield item
        except ApiError as error:
            self._found.not_read(what, str(error))

    async def _kinds(self, group: str) -> _Kinds:
        """What the API server serves of that group; nothing if it cannot be asked, which is noted."""
        if group not in self._served:
            try:
                self._served[group] = await served_kinds(self._management, group)
            except ApiError as error:
                self._served[group] = {}
                self._failed.add(group)
                self._found.not_read(f"API group {group}", str(error))
        return self._served[group]

    def _not_served(self, group: str, kind: str) -> None:
        if group not in self._failed:
            self._found.not_read(f"{kind} in API group {group}", "is not served")

    # What refers to what

    def _name_infrastructure(self, found: Mapping[str, Any], named: _Named) -> None:
        """A template, or the infrastructure of a pool."""
        reference = reference_of(found)
        if isinstance(reference, NoReference):
            self._found.not_read("an infrastructureRef", "names no object")
        elif self._name_machines(reference.group, machine_kind(reference.kind), named):
            named.objects.add(reference)

    def _name_machines(self, group: str, kind: str, named: _Named) -> bool:
        """Whether objects of that kind should be read."""
        if group != INFRASTRUCTURE:
            self._found.not_read(f"{kind} in API group {group}", "is not read")
            return False
        known = MACHINE_KINDS.get(kind)
        if known is None:
            self._found.not_read(kind, "only fields whose names speak of SSH keys are known")
        else:
            self._found.unseen(known.unseen)
            if isinstance(known.rule, NoFields):
                return False
        if not kind.endswith(POOL):  # a pool's object is read by its name
            named.machine_kinds.add(kind)
        return True

    def _name_bootstrap(self, found: Mapping[str, Any], named: _Named) -> None:
        """A template, or the configuration of a pool. Without a reference, bootstrap data come from a Secret."""
        reference = reference_of(found)
        if isinstance(reference, NoReference):
            self._without_configuration()
        elif self._name_configs(reference, named):
            named.objects.add(reference)

    def _without_configuration(self) -> None:
        self._found.not_read("bootstrap data without a configRef", "only their Secret has them")

    def _name_configs(self, reference: Reference, named: _Named) -> bool:
        if reference.group != BOOTSTRAP or reference.kind not in (KUBEADM_CONFIG, KUBEADM_CONFIG_TEMPLATE):
            what = f"{reference.kind} in API group {reference.group}"
            self._found.not_read(what, "the fields of that kind are not known")
            return False
        named.bootstrap_kinds.add(KUBEADM_CONFIG)
        return reference.kind == KUBEADM_CONFIG_TEMPLATE

    def _look(self, kind: str, name: str, manifest: Mapping[str, Any]) -> None:
        if kind in SPECS:
            self._found.add(kind, name, ".".join(SPECS[kind]), kubeadm_findings(kind, manifest))
        else:
            self._found.add(kind, name, prefix_of(kind), findings_in(kind, manifest, self._cluster))


__all__ = ["Reference", "WaysInReader", "reference_of"]
