"""Requests that no honest node makes, and API servers that accept them."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Sequence
from typing import Any, Final

from attestors.wire import evidence as evidence_format
from attestors.wire import pem
from attestors.wire.names import (
    APPROVAL_SEAL_ANNOTATION,
    ATTESTATION_DATA_LABEL,
    ATTESTATION_PROVIDER_LABEL,
    CERTIFICATE_REQUEST_LABEL,
    Purpose,
    SignerName,
)
from signer.testing.fixtures import embedded_api
from signer.testing.nodes import SimulatedNode, signing_request
from signer.testing.world import WorldCluster

BOOTSTRAP: Final = ("system:bootstrap:abcdef", ("system:bootstrappers", "system:authenticated"))
KEYED_MAC_SIGNER: Final = str(SignerName(Purpose.CLIENT, "keyed-mac"))


def blocks_of(node: SimulatedNode, der: bytes | None = None) -> tuple[bytes, bytes, bytes]:
    """The three PEM blocks of an honest request, apart; ``der`` replaces the PKCS#10 in the first."""
    return (
        pem.encode(pem.Block(CERTIFICATE_REQUEST_LABEL, der or node.certificate_request())),
        pem.encode(pem.Block(ATTESTATION_PROVIDER_LABEL, node.provider.encode())),
        pem.encode(pem.Block(ATTESTATION_DATA_LABEL, evidence_format.encode(node.evidence()))),
    )


def manifest_of(name: str, request: bytes | str, signer_name: str = KEYED_MAC_SIGNER) -> dict[str, Any]:
    """A CSR manifest; text is used unchanged as ``spec.request``."""
    manifest = signing_request(name, request if isinstance(request, bytes) else b"", signer_name)
    if isinstance(request, str):
        manifest["spec"]["request"] = request
    return manifest


def plant(
    cluster: WorldCluster,
    manifest: dict[str, Any],
    requester: tuple[str, Sequence[str]] = BOOTSTRAP,
    created: str = "2026-01-01T00:00:00Z",
    conditions: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Store a CSR in the workload API without its own checks: a hostile API server can hold anything."""
    api = embedded_api(cluster)
    username, groups = requester
    metadata = {
        **manifest["metadata"],
        "uid": str(uuid.uuid4()),
        "creationTimestamp": created,
    }
    spec = {**manifest["spec"], "username": username, "groups": list(groups)}
    planted = {
        **manifest,
        "metadata": metadata,
        "spec": spec,
        "status": {"conditions": [*conditions]} if conditions else {},
    }
    collection = api.store.collection("certificates.k8s.io", "certificatesigningrequests")
    # The store lives in the server's thread; any call of ObjectAccess goes there, this one has no name of its own.
    api._loop_thread.call(lambda: api.store.write(collection, planted))
    return planted


def approve_as_somebody_else(cluster: WorldCluster, name: str, kind: str = "Approved", seal: str = "") -> None:
    """Approve or deny a CSR as an administrator of the workload cluster; works in a request hook, too."""
    api = embedded_api(cluster)
    found = api.get("certificatesigningrequests", name)
    condition = {"type": kind, "status": "True", "reason": "ByHand", "message": "kubectl certificate"}
    found["status"] = {"conditions": [condition]}
    if seal:
        found["metadata"].setdefault("annotations", {})[APPROVAL_SEAL_ANNOTATION] = seal
    api.update(found, "approval")


def truncated(encoded: bytes) -> bytes:
    """A PEM block whose DER lost its last bytes."""
    block = pem.split(encoded, maximum_bytes=len(encoded), maximum_blocks=1)[0]
    return pem.encode(pem.Block(block.label, block.content[:-5]))


def with_header(encoded: bytes) -> bytes:
    """A PEM block with an RFC 1421 header."""
    first, _, rest = encoded.partition(b"\n")
    return first + b"\nProc-Type: 4,ENCRYPTED\n\n" + rest


def base64_of(data: bytes) -> str:
    """As JSON carries it."""
    return base64.b64encode(data).decode("ascii")
