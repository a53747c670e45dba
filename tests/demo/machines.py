"""The cast of the demo: one honest machine and three that are not, and what must become of each."""

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
    """The provider ID that the demo's infrastructure gives a Machine."""
    return f"demo://rack-7/{machine}"


@dataclass(frozen=True)
class Attempt:
    """One machine that asks for a certificate."""

    machine: str
    asks_for: str
    story: str
    ask: Callable[[], str]
    """Files the CSR, at the moment of the attempt, and returns its name."""
    must_be: str
    """``Approved`` or ``Denied``."""
    must_say: str
    """The reason in the condition."""


class Cast:
    """The machines of one cluster; all hold the same bootstrap token, and each its own machine key."""

    def __init__(self, cluster: WorldCluster, master_key: bytes, token: str) -> None:
        self._cluster = cluster
        self._master_key = master_key
        self._token = token

    def attempts(self) -> list[Attempt]:
        """The four attempts, in the order in which they are made."""
        return [
            Attempt("worker-1", "worker-1", "It proves who it is.", self._honest, "Approved", "Attested"),
            Attempt(
                "worker-2",
                "worker-1",
                "It proves who it is, and asks for another Machine's name.",
                self._other_name,
                "Denied",
                "NodeNameMismatch",
            ),
            Attempt(
                "worker-3",
                "worker-1",
                "It reads worker-1's CSR, as every token may, and copies the evidence beside a key of its own.",
                self._replay,
                "Denied",
                "BindingMismatch",
            ),
            Attempt(
                "worker-4",
                "worker-4",
                "It hides a second CSR behind its evidence, where the API server does not look.",
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

    def _file(self, manifest: Manifest) -> str:
        self._cluster.submit_with_token(manifest, self._token)
        return str(manifest["metadata"]["name"])

    def _honest(self) -> str:
        return self._file(self._node("worker-1").client_request("join-worker-1"))

    def _other_name(self) -> str:
        return self._file(self._node("worker-2").but(node_name="worker-1").client_request("join-worker-2"))

    def _replay(self) -> str:
        thief = self._node("worker-3").but(node_name="worker-1", provider_id=provider_id("worker-1"))
        stolen = stolen_evidence(self._cluster, "join-worker-1", self._token)
        return self._file(thief.client_request("join-worker-3", evidence_of=stolen))

    def _malformed(self) -> str:
        manifest = self._node("worker-4").client_request("join-worker-4")
        text = base64.b64decode(manifest["spec"]["request"])
        second = text[: text.index(b"-----BEGIN KUBELET")]
        manifest["spec"]["request"] = base64.b64encode(text + second).decode("ascii")
        return self._file(manifest)


def stolen_evidence(cluster: WorldCluster, name: str, token: str | None = None) -> Evidence:
    """The evidence of somebody else's CSR, as every bootstrap token may read it."""
    with cluster.client(cluster.api.token_connection(token or cluster.api.bootstrap_token())) as client:
        stolen = client.get(CERTIFICATE_SIGNING_REQUESTS.object(name))
    blocks = request_format.decode(base64.b64decode(stolen["spec"]["request"]))
    return evidence_format.decode(blocks.evidence)
