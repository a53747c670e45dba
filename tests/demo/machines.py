"""The demo's machines of cluster production: an honest one and three dishonest ones, with the expected outcomes."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from keyed_mac.keys import derive_machine_key

from attestors.wire import evidence as evidence_format
from attestors.wire import request as request_format
from attestors.wire.evidence import Evidence
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.testing.nodes import SimulatedNode
from signer.testing.world import WorldCluster

MACHINES = ("worker-1", "worker-2", "worker-3", "worker-4")

Manifest: TypeAlias = dict[str, Any]


def provider_id(machine: str) -> str:
    """The provider ID of a Machine."""
    return f"demo://rack-7/{machine}"


@dataclass(frozen=True)
class Attempt:
    """One machine's request for a certificate."""

    machine: str
    node: str
    """Name of the node for which it requests the certificate."""
    description: str
    submit: Callable[[], str]
    """Posts the CSR and returns its name."""
    expected_condition: str
    """``Approved`` or ``Denied``."""
    expected_reason: str


class Cast:
    """The machines of one cluster; all hold the same bootstrap token, and each has a machine key of its own."""

    def __init__(self, cluster: WorldCluster, master_key: bytes, token: str) -> None:
        self._cluster = cluster
        self._master_key = master_key
        self._token = token

    def attempts(self) -> list[Attempt]:
        """The four attempts, in order."""
        return [
            Attempt("worker-1", "worker-1", "It proves its identity.", self._honest, "Approved", "Attested"),
            Attempt(
                "worker-2",
                "worker-1",
                "It proves its identity, but requests the name of another Machine.",
                self._other_name,
                "Denied",
                "NodeNameMismatch",
            ),
            Attempt(
                "worker-3",
                "worker-1",
                "It reads worker-1's CSR, as any bootstrap token may, and copies the evidence into a CSR for its own "
                "key.",
                self._replay,
                "Denied",
                "BindingMismatch",
            ),
            Attempt(
                "worker-4",
                "worker-4",
                "It appends a second CSR to the request. The API server checks only the first one. A controller that "
                "read the second one would sign a CSR that nothing checked.",
                self._malformed,
                "Denied",
                "MalformedRequest",
            ),
        ]

    def _node(self, machine: str) -> SimulatedNode:
        identifier = provider_id(machine)
        machine_key = base64.b64encode(derive_machine_key(self._master_key, identifier)).decode("ascii")
        return SimulatedNode(
            node_name=machine,
            provider_id=identifier,
            ca_cert_hash=self._cluster.ca_cert_hash,
            provider="keyed-mac",
            settings={"provider-id": identifier, "machine-key": machine_key},
        )

    def _post(self, manifest: Manifest) -> str:
        self._cluster.submit_with_token(manifest, self._token)
        return str(manifest["metadata"]["name"])

    def _honest(self) -> str:
        return self._post(self._node("worker-1").client_request("join-worker-1"))

    def _other_name(self) -> str:
        return self._post(self._node("worker-2").but(node_name="worker-1").client_request("join-worker-2"))

    def _replay(self) -> str:
        thief = self._node("worker-3").but(node_name="worker-1", provider_id=provider_id("worker-1"))
        stolen = stolen_evidence(self._cluster, "join-worker-1", self._token)
        return self._post(thief.client_request("join-worker-3", evidence_of=stolen))

    def _malformed(self) -> str:
        manifest = self._node("worker-4").client_request("join-worker-4")
        text = base64.b64decode(manifest["spec"]["request"])
        second = text[: text.index(b"-----BEGIN KUBELET")]
        manifest["spec"]["request"] = base64.b64encode(text + second).decode("ascii")
        return self._post(manifest)


def stolen_evidence(cluster: WorldCluster, name: str, token: str | None = None) -> Evidence:
    """The evidence in another machine's CSR, which any bootstrap token may read."""
    with cluster.client(cluster.api.token_connection(token or cluster.api.bootstrap_token())) as client:
        stolen = client.get(CERTIFICATE_SIGNING_REQUESTS.object(name))
    blocks = request_format.decode(base64.b64decode(stolen["spec"]["request"]))
    return evidence_format.decode(blocks.evidence)
