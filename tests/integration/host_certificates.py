"""Requests with host keys, and what they get."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

import pytest
from cryptography import x509

from attestors.wire.certificate_request import build
from attestors.wire.names import SSH_HOST_KEYS_OID
from attestors.wire.node_access import NodeAccess, NodeAccessText, NoNodeAccess, find, parse
from attestors.wire.ssh.signatures import PrivateKey
from attestors.wire.ssh_host_keys import HostKeysClaim, claim_with, encode
from signer.configuration import SSHPermission
from signer.kube.backoff import Backoff
from signer.kube.resources import NODE_ATTESTATION_POLICIES
from signer.ssh import reconciler
from signer.testing.nodes import SimulatedNode
from signer.testing.world import Verdict, WorldCluster
from tests.integration.requests import blocks_of, manifest_of
from tests.support.processes import wait_until

ALLOWED: Final = SSHPermission(frozenset({"default"}))


def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the Secrets of the authorities."""
    monkeypatch.setattr(reconciler, "WAITING", Backoff(base_seconds=0.1, maximum_seconds=0.2, jitter=0.0))
    monkeypatch.setattr(reconciler, "VERIFIED_SECONDS", 0.3)


def wait_for_authorities(cluster: WorldCluster) -> None:
    """Until they may sign."""
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)

    def is_available() -> bool:
        conditions = (cluster.management.client.get(path).get("status") or {}).get("conditions") or ()
        return any(one["type"] == "SSHAuthoritiesAvailable" and one["status"] == "True" for one in conditions)

    wait_until(is_available, "the SSH authorities are available")


def claim_of(node: SimulatedNode, *keys: PrivateKey, version: int = 0) -> bytes:
    """The extension's value."""
    claims = tuple(claim_with(key, node.subject_public_key_info) for key in keys)
    return encode(HostKeysClaim(version, claims))


def request_with(node: SimulatedNode, name: str, value: bytes, *, oid: str = SSH_HOST_KEYS_OID) -> dict[str, Any]:
    """A CSR of that node with that extension."""
    further = [x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), value)]
    csr = build(node.key, node_name=node.node_name, provider_id=node.provider_id, further=further)
    return manifest_of(name, b"".join(blocks_of(node, csr)))


def access_in(verdict: Verdict) -> NodeAccess | NoNodeAccess:
    """What stands behind the certificate."""
    found = find(verdict.certificate)
    return parse(found.content) if isinstance(found, NodeAccessText) else found


def principals_in(access: NodeAccess) -> Sequence[str]:
    """Of its first certificate."""
    return [str(one) for one in access.host_certificates[0].certificate.principals]


def published(cluster: WorldCluster, csr: str) -> bytes:
    """``status.certificate``."""
    items = cluster.client().get("/apis/certificates.k8s.io/v1/certificatesigningrequests")["items"]
    found = next(item for item in items if item["metadata"]["name"] == csr)
    return base64.b64decode(found["status"]["certificate"])
