"""A test environment: a management cluster, workload clusters, Machines and a running controller.

It works on the embedded API and on a real kube-apiserver alike, because it uses HTTP only.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import yaml

from attestors.wire.names import NODE_USER_PREFIX, NODES_GROUP
from signer.authority.certificate_authority import load_certificate_authority
from signer.crds import custom_resource_definitions
from signer.kube.client import JsonObject
from signer.kube.connection import ClusterConnection
from signer.kube.errors import AlreadyExists, NotFound
from signer.kube.resources import (
    CERTIFICATE_SIGNING_REQUESTS,
    CLUSTERS_V1BETA2,
    CUSTOM_RESOURCE_DEFINITIONS,
    KUBEADM_CONFIGS_V1BETA2,
    MACHINE_POOLS_V1BETA2,
    MACHINES_V1BETA2,
    NODE_ATTESTATION_POLICIES,
    SECRETS,
)
from signer.model.cluster import ClusterKey
from signer.testing.clients import DEFAULT_WAIT_SECONDS, BlockingClient
from signer.testing.cluster_api import (
    capi_crds,
    cluster_manifest,
    kubeadm_config_manifest,
    machine_manifest,
    machine_pool_manifest,
    secret_manifest,
)
from signer.testing.running_controller import CONTROLLER_NAMESPACE as CONTROLLER_NAMESPACE
from signer.testing.running_controller import RunningController as RunningController
from signer.testing.undecided import why_undecided
from signer.testing.verdict import Verdict as Verdict
from signer.testing.verdict import is_decided

_NAMESPACES: Final = "/api/v1/namespaces"


class APIServer(Protocol):
    """An API server: the embedded one, or a test's handle on a real one."""

    @property
    def ca_certificate_pem(self) -> bytes:
        """The cluster CA's certificate."""
        ...

    @property
    def ca_key_pem(self) -> bytes:
        """The cluster CA's key."""
        ...

    def connection(self, user: str = ..., groups: Sequence[str] = ...) -> ClusterConnection:
        """A connection as ``user``; as an administrator by default."""
        ...

    def token_connection(self, token: str) -> ClusterConnection:
        """A connection with a bearer token."""
        ...

    def kubeconfig(self) -> str:
        """A kubeconfig as in Cluster API's Secret."""
        ...

    def bootstrap_token(self) -> str:
        """A new bootstrap token."""
        ...


class ManagementCluster:
    """The management cluster, with the CRDs and the controller's namespace."""

    def __init__(self, api: APIServer, *, capi_crds: Path | None = None, without_ours: bool = False) -> None:
        """``capi_crds`` is a folder with Cluster API's CRDs; without it, reduced ones are installed. With
        ``without_ours``, the CRDs of this project and the controller's namespace are left to the controller's
        installation.
        """
        self.api = api
        self._client = BlockingClient(api.connection())
        self._capi_crds = capi_crds
        self._without_ours = without_ours
        self._clusters: list[WorldCluster] = []

    def __enter__(self) -> Self:
        self._client.__enter__()
        self.install_crds()
        if not self._without_ours:
            self.ensure_namespace(CONTROLLER_NAMESPACE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for cluster in self._clusters:
            cluster.close()
        self._client.__exit__(kind, error, trace)

    @property
    def client(self) -> BlockingClient:
        """An administrator's client."""
        return self._client

    def install_crds(self) -> None:
        """Install the CRDs of Cluster API and of this project, and wait until they are served."""
        ours = () if self._without_ours else custom_resource_definitions()
        definitions = [_parsed(text) for text in (*ours, *capi_crds(self._capi_crds))]
        for definition in definitions:
            try:
                self._client.create(CUSTOM_RESOURCE_DEFINITIONS.collection(), definition)
            except AlreadyExists:
                continue
        for definition in definitions:
            name = definition["metadata"]["name"]
            self._client.wait_for(CUSTOM_RESOURCE_DEFINITIONS.collection(), name, _is_established)

    def ensure_namespace(self, name: str) -> None:
        """Create a namespace unless it exists."""
        try:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self._client.create(_NAMESPACES, body)
        except AlreadyExists:
            return

    def add_cluster(self, name: str, workload: APIServer, *, namespace: str = "default") -> WorldCluster:
        """Create a Cluster with its CA and kubeconfig Secrets, as Cluster API would."""
        self.ensure_namespace(namespace)
        self._client.create(CLUSTERS_V1BETA2.collection(namespace), cluster_manifest(namespace, name))
        cluster = WorldCluster(self, name, namespace, workload)
        self._clusters.append(cluster)
        cluster.put_secret("ca", {"tls.crt": workload.ca_certificate_pem, "tls.key": workload.ca_key_pem})
        cluster.put_secret("kubeconfig", {"value": workload.kubeconfig().encode()})
        return cluster


@dataclass(frozen=True)
class WorldCluster:
    """One Cluster: its objects in the management cluster, and its workload API."""

    management: ManagementCluster
    name: str
    namespace: str
    api: APIServer
    _clients: dict[str, BlockingClient] = field(default_factory=dict, repr=False)

    @property
    def key(self) -> ClusterKey:
        """Namespace and name of the Cluster."""
        return ClusterKey(self.namespace, self.name)

    @property
    def ca_cert_hash(self) -> str:
        """The CA hash by which this cluster's nodes identify it."""
        data = {"tls.crt": self.api.ca_certificate_pem, "tls.key": self.api.ca_key_pem}
        return load_certificate_authority(data, now=datetime.now(UTC)).certificate.public_key_hash

    def put_secret(self, purpose: str, data: Mapping[str, bytes]) -> None:
        """Write Secret ``<cluster>-<purpose>``."""
        client = self.management.client
        body = secret_manifest(self.key, purpose, data)
        try:
            client.create(SECRETS.collection(self.namespace), body)
        except AlreadyExists:
            client.replace(SECRETS.object(body["metadata"]["name"], self.namespace), body)

    def delete_secret(self, purpose: str) -> None:
        """Delete Secret ``<cluster>-<purpose>``."""
        self.management.client.delete(SECRETS.object(f"{self.name}-{purpose}", self.namespace))

    def authorize(self, *attestors: str, **spec: Any) -> JsonObject:
        """Create the cluster's NodeAttestationPolicy; ``spec`` holds its other fields."""
        return self.management.client.create(
            NODE_ATTESTATION_POLICIES.collection(self.namespace),
            {
                "apiVersion": NODE_ATTESTATION_POLICIES.api_version,
                "kind": "NodeAttestationPolicy",
                "metadata": {"name": self.name, "namespace": self.namespace},
                "spec": {"authorizedAttestors": [{"name": attestor} for attestor in attestors], **spec},
            },
        )

    def add_machine(
        self,
        name: str,
        *,
        provider_id: str = "",
        addresses: Iterable[tuple[str, str]] = (),
        bootstrap_ready: bool = True,
        owner: JsonObject | None = None,
    ) -> JsonObject:
        """Create a Machine and its status; without addresses its node has the Machine's name.

        ``owner`` is the Machine's MachinePool, as read from the API.
        """
        body = machine_manifest(self.key, name, provider_id, owner)
        machine = self.management.client.create(MACHINES_V1BETA2.collection(self.namespace), body)
        return self.set_machine_status(
            machine,
            {
                "addresses": [
                    {"type": kind, "address": address} for kind, address in addresses or [("Hostname", name)]
                ],
                "initialization": {"bootstrapDataSecretCreated": bootstrap_ready},
            },
        )

    def set_machine_status(self, machine: JsonObject, status: JsonObject) -> JsonObject:
        """Write a Machine's status, as the Machine controller would."""
        path = MACHINES_V1BETA2.object(machine["metadata"]["name"], self.namespace, subresource="status")
        return self.management.client.patch(path, {"status": status})

    def patch_machine(self, name: str, patch: JsonObject) -> JsonObject:
        """Change a Machine with a merge patch."""
        return self.management.client.patch(MACHINES_V1BETA2.object(name, self.namespace), patch)

    def add_machine_pool(self, name: str, *provider_ids: str, bootstrap_ready: bool = True) -> JsonObject:
        """Create a MachinePool and its status; its instances have no Machines."""
        client = self.management.client
        body = machine_pool_manifest(self.key, name, provider_ids)
        client.create(MACHINE_POOLS_V1BETA2.collection(self.namespace), body)
        status = {"initialization": {"bootstrapDataSecretCreated": bootstrap_ready}}
        path = MACHINE_POOLS_V1BETA2.object(name, self.namespace, subresource="status")
        return client.patch(path, {"status": status})

    def patch_machine_pool(self, name: str, patch: JsonObject) -> JsonObject:
        """Change a MachinePool with a merge patch."""
        return self.management.client.patch(MACHINE_POOLS_V1BETA2.object(name, self.namespace), patch)

    def add_kubeadm_config(self, name: str, token: str, owner: JsonObject) -> JsonObject:
        """Create a KubeadmConfig with its bootstrap token, as Cluster API's kubeadm provider does.

        ``owner`` is the controlling Machine or MachinePool, as read from the API.
        """
        body = kubeadm_config_manifest(self.key, name, token, owner)
        return self.management.client.create(KUBEADM_CONFIGS_V1BETA2.collection(self.namespace), body)

    def patch(self, patch: JsonObject) -> JsonObject:
        """Change the Cluster with a merge patch."""
        return self.management.client.patch(CLUSTERS_V1BETA2.object(self.name, self.namespace), patch)

    # The workload cluster

    def client(self, connection: ClusterConnection | None = None) -> BlockingClient:
        """A client of the workload API; without ``connection``, an administrator's, which stays open."""
        if connection is not None:
            return BlockingClient(connection)
        if "administrator" not in self._clients:
            self._clients["administrator"] = BlockingClient(self.api.connection()).__enter__()
        return self._clients["administrator"]

    def remove(self) -> None:
        """Delete the Cluster and its policy. Two Clusters with one API server would decide each other's requests."""
        for resource in (NODE_ATTESTATION_POLICIES, CLUSTERS_V1BETA2):
            with contextlib.suppress(NotFound):
                self.management.client.delete(resource.object(self.name, self.namespace))

    def close(self) -> None:
        """Close the kept clients."""
        for client in self._clients.values():
            client.__exit__(None, None, None)
        self._clients.clear()

    def submit_with_token(self, manifest: JsonObject, token: str | None = None) -> JsonObject:
        """Post a CSR as a joining node does, with a bootstrap token (a new one by default)."""
        return self.submit(manifest, self.api.token_connection(token or self.api.bootstrap_token()))

    def submit_as_node(self, manifest: JsonObject, node_name: str) -> JsonObject:
        """Post a CSR as the node of that name, with a client certificate of the cluster's CA."""
        return self.submit(manifest, self.api.connection(NODE_USER_PREFIX + node_name, [NODES_GROUP]))

    def submit(self, manifest: JsonObject, connection: ClusterConnection) -> JsonObject:
        """Post a CSR over ``connection``."""
        with self.client(connection) as client:
            return client.create(CERTIFICATE_SIGNING_REQUESTS.collection(), manifest)

    def wait_until_decided(self, name: str, seconds: float = DEFAULT_WAIT_SECONDS) -> Verdict:
        """Wait until a CSR has a certificate, was denied or has failed.

        Raises:
            TimeoutError: none of these within ``seconds``; the message says why the CSR waits.
        """
        path = CERTIFICATE_SIGNING_REQUESTS.collection()
        try:
            return Verdict.of(self.client().wait_for(path, name, is_decided, seconds))
        except TimeoutError as late:
            why = why_undecided(self.management.client, self.key, name)
            raise TimeoutError(f"{late}; {why}") from None

    def verdict(self, name: str) -> Verdict:
        """The current verdict on a CSR."""
        return Verdict.of(self.client().get(CERTIFICATE_SIGNING_REQUESTS.object(name)))


@functools.cache
def _parsed(text: str) -> JsonObject:
    """A definition, which is only sent: tests install the same ones again and again, and YAML takes long."""
    parsed: JsonObject = yaml.safe_load(text)
    return parsed


def _is_established(definition: JsonObject) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or []
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)
