"""The benchmark's load: Machines and valid CSRs."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass, field

from keyed_mac.keys import derive_machine_key

from attestors.wire.names import NODE_USER_PREFIX, NODES_GROUP
from signer.configuration import Configuration, OperatorAttestor
from signer.kube.client import JsonObject
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS, MACHINES_V1BETA2
from signer.testing.clients import BlockingClient
from signer.testing.nodes import SimulatedNode
from signer.testing.world import CONTROLLER_NAMESPACE, WorldCluster
from tests.support.raw_client import RawClient

BUILTIN_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"


@dataclass(frozen=True)
class Load:
    """A number of nodes of one cluster."""

    cluster: WorldCluster
    count: int
    first: int = 0
    """The number of the first node."""
    master_key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    called: str = "node"
    """Prefix of the node names; unique, because one identity belongs to one Machine over all clusters."""

    @property
    def configuration(self) -> Configuration:
        """The controller's configuration for these nodes."""
        key = base64.b64encode(self.master_key).decode("ascii")
        return Configuration(
            namespace=CONTROLLER_NAMESPACE, attestors={"keyed-mac": OperatorAttestor(settings={"masterKey": key})}
        )

    def names(self) -> list[str]:
        """The names of nodes and Machines."""
        return [f"{self.called}-{number:05d}" for number in range(self.first, self.first + self.count)]

    def add_machines(self) -> None:
        """Create all Machines at once."""
        client = self.cluster.management.client
        path = MACHINES_V1BETA2.collection(self.cluster.namespace)
        created = client.create_all(path, [self._machine(name) for name in self.names()])
        ready = {"initialization": {"bootstrapDataSecretCreated": True}}
        client.patch_all(
            [
                (
                    f"{path}/{machine['metadata']['name']}/status",
                    {
                        "status": {
                            **ready,
                            "addresses": [{"type": "Hostname", "address": machine["metadata"]["name"]}],
                        }
                    },
                )
                for machine in created
            ]
        )

    def requests(self, prefix: str) -> list[JsonObject]:
        """One CSR per node, with a new key and with key encipherment, which kube-controller-manager 1.20 requires."""
        ca_cert_hash = self.cluster.ca_cert_hash
        manifests = []
        for name in self.names():
            provider_id = f"bench:///{name}"
            key = base64.b64encode(derive_machine_key(self.master_key, provider_id)).decode("ascii")
            node = SimulatedNode(
                name, provider_id, ca_cert_hash, "keyed-mac", {"provider-id": provider_id, "machine-key": key}
            )
            manifest = node.client_request(f"{prefix}-{name}")
            manifest["spec"]["usages"].append("key encipherment")
            manifests.append(manifest)
        return manifests

    def _machine(self, name: str) -> JsonObject:
        return {
            "apiVersion": MACHINES_V1BETA2.api_version,
            "kind": "Machine",
            "metadata": {"name": name, "namespace": self.cluster.namespace},
            "spec": {
                "clusterName": self.cluster.name,
                "providerID": f"bench:///{name}",
                "bootstrap": {"dataSecretName": "bench"},
                "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Test", "name": name},
            },
        }


def for_builtin_signer(manifests: list[JsonObject], prefix: str) -> list[JsonObject]:
    """The same requests for the built-in signer, which kube-controller-manager decides."""
    return [
        {
            **manifest,
            "metadata": {"name": f"{prefix}-{manifest['metadata']['name']}"},
            "spec": {**manifest["spec"], "signerName": BUILTIN_SIGNER},
        }
        for manifest in manifests
    ]


def submit(load: Load, manifests: list[JsonObject]) -> set[str]:
    """Post first joins at once, with one bootstrap token; returns their names."""
    with BlockingClient(load.cluster.api.token_connection(load.cluster.api.bootstrap_token())) as client:
        created = client.create_all(CERTIFICATE_SIGNING_REQUESTS.collection(), manifests)
    return {manifest["metadata"]["name"] for manifest in created}


def submit_as_nodes(load: Load, manifests: list[JsonObject]) -> set[str]:
    """Post renewals, each as its node; returns their names."""
    names = set()
    with RawClient(load.cluster.api.connection()) as client:
        for node_name, manifest in zip(load.names(), manifests, strict=True):
            headers = {"Impersonate-User": NODE_USER_PREFIX + node_name, "Impersonate-Group": NODES_GROUP}
            path = CERTIFICATE_SIGNING_REQUESTS.collection()
            names.add(client.request("POST", path, manifest, headers=headers).expect(201)["metadata"]["name"])
    return names
