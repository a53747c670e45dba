"""The cast of the demo: one honest machine and three that are not, and what must become of each."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from keyed_mac.keys import derive_machine_key

from signer.testing.nodes import SimulatedNode
from signer.testing.world import WorldCluster

MACHINES = ("worker-1", "worker-2", "worker-3", "worker-4")


def provider_id(machine: str) -> str:
    """The provider ID that the demo's infrastructure gives a Machine."""
    return f"demo://rack-7/{machine}"


@dataclass(frozen=True)
class Attempt:
    """One machine that asks for a certificate."""

    machine: str
    asks_for: str
    story: str
    manifest: Mapping[str, Any]
    must_be: str
    """``Approved`` or ``Denied``."""
    must_say: str
    """The reason in the condition."""


def attempts(cluster: WorldCluster, master_key: bytes) -> list[Attempt]:
    """The four attempts, in the order in which they are made."""

    def node(machine: str, node_name: str | None = None) -> SimulatedNode:
        identifier = provider_id(machine)
        machine_key = base64.b64encode(derive_machine_key(master_key, identifier)).decode("ascii")
        return SimulatedNode(
            node_name=node_name or machine,
            provider_id=identifier,
            ca_cert_hash=cluster.ca_cert_hash,
            provider="keyed-mac",
            settings={"provider-id": identifier, "machine-key": machine_key},
        )

    honest = node("worker-1")
    mangled = node("worker-4").client_request("join-worker-4")
    spec = mangled["spec"]
    text = base64.b64decode(spec["request"])
    # A second CSR behind the evidence: the API server looks at the first block only.
    spec["request"] = base64.b64encode(text + text[: text.index(b"-----BEGIN KUBELET")]).decode("ascii")
    replayed = node("worker-3").but(node_name="worker-1", provider_id=provider_id("worker-1"))
    return [
        Attempt(
            "worker-1", "worker-1", "proves who it is", honest.client_request("join-worker-1"), "Approved", "Attested"
        ),
        Attempt(
            "worker-2",
            "worker-1",
            "proves who it is, but asks for another Machine's name",
            node("worker-2", "worker-1").client_request("join-worker-2"),
            "Denied",
            "NodeNameMismatch",
        ),
        Attempt(
            "worker-3",
            "worker-1",
            "copies the evidence of worker-1 from its CSR, with a key of its own",
            replayed.client_request("join-worker-3", evidence_of=honest.evidence()),
            "Denied",
            "BindingMismatch",
        ),
        Attempt(
            "worker-4", "worker-4", "hides a second CSR behind its evidence", mangled, "Denied", "MalformedRequest"
        ),
    ]
