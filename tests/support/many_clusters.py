"""A management cluster and any number of workload clusters, all on embedded APIs in one event loop.

Each workload cluster has its own port, serving certificate and objects, so that a controller with a thousand clusters
has a thousand connections to a thousand servers. Objects are written without HTTP, which takes only seconds.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Final, Self

from signer.crds import custom_resource_definitions
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS, CLUSTERS_V1BETA2, NODE_ATTESTATION_POLICIES
from signer.testing.api import EmbeddedAPI
from signer.testing.api.thread import LoopThread
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from signer.testing.cluster_api import capi_crds
from signer.testing.world import CONTROLLER_NAMESPACE
from tests.support.yaml_documents import safe_load

_NAMESPACE: Final = "default"
_BOOKMARK_SECONDS: Final = 60.0


class ManyClusters:
    """A management cluster and its workload clusters, as a context manager."""

    def __init__(self) -> None:
        self._thread = LoopThread("many clusters")
        self.management = EmbeddedAPI(loop_thread=self._thread)
        self.workloads: dict[str, EmbeddedAPI] = {}
        """API servers by Cluster name; each Cluster has Secrets and a policy in the namespace ``default``."""
        self._numbers = itertools.count()
        self._withdrawn: list[EmbeddedAPI] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self.management.__enter__()
        for text in (*custom_resource_definitions(), *capi_crds()):
            self.management.create(safe_load(text))
        self.management.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CONTROLLER_NAMESPACE}})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for api in (*self.workloads.values(), *self._withdrawn, self.management):
            api.close()
        self._thread.stop()

    def add(self, count: int, attestor: str, mode: str = "Enforce") -> list[str]:
        """Add ``count`` workload clusters with a policy each; returns their names."""
        names = [f"cluster-{next(self._numbers):05}" for _ in range(count)]
        for name in names:
            # Its own: Clusters with one CA are not Ready. An RSA key takes a tenth of a second to make.
            authority = new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256)
            api = EmbeddedAPI(
                ca_certificate=authority.certificate,
                ca_key=authority.private_key,
                seed_kubeadm=True,
                bookmark_seconds=_BOOKMARK_SECONDS,
                loop_thread=self._thread,
            )
            self.workloads[name] = api.__enter__()
            self._put_secret(name, "ca", authority.secret_data)
            self._put_secret(name, "kubeconfig", {"value": api.kubeconfig(name).encode()})
        for name in names:
            self.management.create(_cluster(name))
            self.management.create(_policy(name, attestor, mode))
        return names

    def withdraw(self, name: str) -> EmbeddedAPI:
        """Delete a Cluster with its policy; returns its API server, which keeps running."""
        for resource in (NODE_ATTESTATION_POLICIES, CLUSTERS_V1BETA2):
            self.management.delete(f"{resource.plural}.{resource.group}", name, _NAMESPACE)
        api = self.workloads.pop(name)
        self._withdrawn.append(api)
        return api

    def watched(self) -> int:
        """The number of workload clusters whose requests are watched."""
        return sum(map(_is_watched, self.workloads.values()))

    def ready(self) -> int:
        """The number of policies that are Ready."""
        plural = f"{NODE_ATTESTATION_POLICIES.plural}.{NODE_ATTESTATION_POLICIES.group}"
        return sum(map(_is_ready, self.management.objects(plural, _NAMESPACE)))

    def _put_secret(self, cluster: str, purpose: str, data: dict[str, bytes]) -> None:
        self.management.create(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": f"{cluster}-{purpose}", "namespace": _NAMESPACE},
                "type": "cluster.x-k8s.io/secret",
                "data": {key: base64.b64encode(value).decode("ascii") for key, value in data.items()},
            }
        )


def _cluster(name: str) -> dict[str, Any]:
    return {
        "apiVersion": CLUSTERS_V1BETA2.api_version,
        "kind": "Cluster",
        "metadata": {"name": name, "namespace": _NAMESPACE},
        "spec": {
            "clusterNetwork": {"services": {"cidrBlocks": ["10.96.0.0/12"]}},
            "controlPlaneEndpoint": {"host": "control-plane.example", "port": 6443},
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Test", "name": name},
        },
    }


def _policy(name: str, attestor: str, mode: str) -> dict[str, Any]:
    return {
        "apiVersion": NODE_ATTESTATION_POLICIES.api_version,
        "kind": "NodeAttestationPolicy",
        "metadata": {"name": name, "namespace": _NAMESPACE},
        "spec": {"authorizedAttestors": [{"name": attestor}], "mode": mode},
    }


def _is_watched(api: EmbeddedAPI) -> bool:
    requests = CERTIFICATE_SIGNING_REQUESTS
    return api.store.collection(requests.group, requests.plural).log.watchers > 0


def _is_ready(policy: dict[str, Any]) -> bool:
    conditions: Iterable[dict[str, str]] = (policy.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
