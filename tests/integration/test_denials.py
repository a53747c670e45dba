"""Rows of the table "Bad input: decision" that end in a Denied condition, each through the running controller."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import pytest

from attestors.contract import Security
from attestors.wire import pem
from attestors.wire.names import PROVIDER_ID_OID, SUPPORTED_VERSIONS_ANNOTATION, Purpose, SignerName
from signer.authority.der import read_blocks
from signer.authority.lenient_certificate import parse_ca_certificate
from signer.kube.errors import ApiError
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS, IDENTITY_RESERVATIONS, MACHINES_V1BETA2, SECRETS
from signer.model.cluster import machine_view
from signer.model.record import AttestedIdentity, MachineKey
from signer.model.reservation import Pair, ReservationSide
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from signer.testing.fixtures import embedded_api
from signer.testing.nodes import SimulatedNode
from signer.testing.world import CONTROLLER_NAMESPACE, Verdict, WorldCluster
from tests.integration.fixtures import CONTROLLER_USER, Harness, assert_readable, keys_of, node_of, pending, provider_id
from tests.integration.requests import (
    base64_of,
    blocks_of,
    manifest_of,
    plant,
    truncated,
    with_header,
)
from tests.support.reservations import reservation_spec
from tests.unit.signer.builders import extension, extension_request, node_subject, pkcs10, provider_id_extension, tlv

Requests = Callable[[SimulatedNode], bytes | str]
MACHINES: Final = 60
_NUMBERS: Final = itertools.count(1)
HOSTILE: Final = "evil\x1b[31m\nforged log line\x00\u202e"


@pytest.fixture(scope="module")
def cluster(shared_harness: Harness) -> WorldCluster:
    """The cluster that all these tests ask; the controller knows its Machines from the start."""
    cluster = shared_harness.cluster()
    for number in range(1, MACHINES + 1):
        cluster.add_machine(f"machine-{number}", provider_id=provider_id(f"machine-{number}"))
    shared_harness.run()
    return cluster


@pytest.fixture
def machine() -> str:
    """A Machine of this test's own."""
    number = next(_NUMBERS)
    assert number <= MACHINES
    return f"machine-{number}"


def _denied(harness: Harness, cluster: WorldCluster, csr: str, reason: str, about: tuple[str, str]) -> Verdict:
    """Wait for the denial; it must be well-formed, without a certificate, and reported in an Event on ``about``."""
    verdict = cluster.wait_until_decided(csr)
    assert (verdict.condition, verdict.reason) == ("Denied", reason), verdict
    assert verdict.certificate == b""
    assert_readable(verdict.message)
    kind, name = about
    assert_readable(harness.wait_for_event(reason, name, kind))
    return verdict


def _der(node: SimulatedNode, *extensions: bytes) -> bytes:
    return pkcs10(node.key, subject=node_subject(node.node_name), extensions=extensions)


def _joined(*parts: bytes) -> bytes:
    return b"".join(parts)


def _twice_the_extension(node: SimulatedNode) -> bytes:
    one = provider_id_extension(tlv(0x0C, node.provider_id.encode()))
    return _joined(*blocks_of(node, _der(node, one, one)))


def _too_large(node: SimulatedNode) -> bytes:
    csr, provider, data = blocks_of(node)
    return csr + provider + data + pem.encode(pem.Block("CERTIFICATE", bytes(64 * 1024)))


NOT_BASE64: Final = "not base64"
MALFORMED: Final[dict[str, Requests]] = {
    "empty": lambda node: "",
    NOT_BASE64: lambda node: "!" + base64_of(_joined(*blocks_of(node))),
    "no PEM": lambda node: b"\x00\xff no block at all",
    "CSR not first": lambda node: _joined(*reversed(blocks_of(node))),
    "CSR twice": lambda node: _joined(blocks_of(node)[0], *blocks_of(node)),
    "provider twice": lambda node: _joined(*blocks_of(node)[:2], blocks_of(node)[1]),
    "provider missing": lambda node: _joined(blocks_of(node)[0], blocks_of(node)[2]),
    "evidence missing": lambda node: _joined(*blocks_of(node)[:2]),
    "unknown block": lambda node: _joined(*blocks_of(node)[:2], pem.encode(pem.Block("CERTIFICATE", b"x"))),
    "text between": lambda node: b"\nand\n".join(blocks_of(node)),
    "text in front": lambda node: b"text\n" + _joined(*blocks_of(node)),
    "text behind": lambda node: _joined(*blocks_of(node), HOSTILE.encode()),
    "PEM headers": lambda node: _joined(with_header(blocks_of(node)[0]), *blocks_of(node)[1:]),
    "truncated DER": lambda node: _joined(truncated(blocks_of(node)[0]), *blocks_of(node)[1:]),
    "DER with a tail": lambda node: _joined(*blocks_of(node, node.certificate_request() + b"\0")),
    "an extension twice": _twice_the_extension,
    "more than 64 KiB": _too_large,
}
REFUSED_BY_THE_API: Final = ("empty", NOT_BASE64, "no PEM", "CSR not first", "truncated DER", "DER with a tail")
"""What a real API server does not even store."""


@pytest.mark.parametrize("snapshot", [snapshot for snapshot in MALFORMED if snapshot != NOT_BASE64])
def test_malformed_request(shared_harness: Harness, cluster: WorldCluster, machine: str, snapshot: str) -> None:
    csr = f"malformed-{machine}"
    plant(cluster, manifest_of(csr, MALFORMED[snapshot](node_of(cluster, machine))))
    _denied(shared_harness, cluster, csr, "MalformedRequest", ("Cluster", cluster.name))


@pytest.mark.parametrize("snapshot", REFUSED_BY_THE_API)
def test_requests_that_an_api_server_does_not_store(cluster: WorldCluster, snapshot: str) -> None:
    manifest = manifest_of("refused", MALFORMED[snapshot](node_of(cluster, "nobody")))
    with pytest.raises(ApiError) as refused:
        cluster.submit_with_token(manifest)
    assert refused.value.status in (400, 422)


def test_requests_that_cannot_even_be_denied(shared_harness: Harness, cluster: WorldCluster, machine: str) -> None:
    """No API server can decode such an object, so none accepts a condition on it; no other request waits."""
    plant(cluster, manifest_of("undeniable", MALFORMED[NOT_BASE64](node_of(cluster, machine))))
    shared_harness.join(cluster)
    assert_readable(shared_harness.wait_for_event("WorkloadClusterUnreachable", cluster.name, "Cluster"))
    pending(cluster, "undeniable")
    embedded_api(cluster).delete("certificatesigningrequests", "undeniable")


PROVIDER_IDS: Final[dict[str, Callable[[SimulatedNode], bytes]]] = {
    "missing": lambda node: _der(node),
    "not UTF8String": lambda node: _der(node, extension(PROVIDER_ID_OID, tlv(0x13, node.provider_id.encode()))),
    "more than 512 characters": lambda node: _der(node, extension(PROVIDER_ID_OID, tlv(0x0C, b"x" * 513))),
    "empty": lambda node: _der(node, extension(PROVIDER_ID_OID, tlv(0x0C, b""))),
    "with a tail": lambda node: _der(node, extension(PROVIDER_ID_OID, tlv(0x0C, node.provider_id.encode()) + b"\0")),
    "no UTF-8": lambda node: _der(node, extension(PROVIDER_ID_OID, tlv(0x0C, b"test:///\xff"))),
    "control characters": lambda node: _der(node, extension(PROVIDER_ID_OID, tlv(0x0C, HOSTILE.encode()))),
}


@pytest.mark.parametrize("snapshot", PROVIDER_IDS)
def test_invalid_provider_id(shared_harness: Harness, cluster: WorldCluster, machine: str, snapshot: str) -> None:
    node = node_of(cluster, machine)
    csr = f"provider-id-{machine}"
    request = _joined(*blocks_of(node, PROVIDER_IDS[snapshot](node)))
    cluster.submit_with_token(manifest_of(csr, request))
    _denied(shared_harness, cluster, csr, "InvalidProviderID", ("Cluster", cluster.name))


def test_provider_block_disagrees_with_the_signer(shared_harness: Harness, cluster: WorldCluster, machine: str) -> None:
    csr, _, data = blocks_of(node_of(cluster, machine))
    other = pem.encode(pem.Block("KUBELET AUTHENTICATOR ATTESTATION PROVIDER", b"insecure"))
    cluster.submit_with_token(manifest_of("provider-mismatch", csr + other + data))
    _denied(shared_harness, cluster, "provider-mismatch", "ProviderMismatch", ("Machine", machine))


def test_attestor_that_the_policy_does_not_name(shared_harness: Harness, cluster: WorldCluster, machine: str) -> None:
    node = SimulatedNode(machine, provider_id(machine), cluster.ca_cert_hash, "insecure")
    cluster.submit_with_token(node.client_request("not-authorized"))
    _denied(shared_harness, cluster, "not-authorized", "AttestorNotAuthorized", ("Machine", machine))


REQUESTERS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "a user": ("jane", ("system:authenticated",)),
    "an administrator": ("kubernetes-admin", ("system:masters", "system:authenticated")),
    "a service account": ("system:serviceaccount:default:default", ("system:serviceaccounts",)),
    "a token of another group": ("system:bootstrap:abcdef", ("system:authenticated",)),
    "no token": ("system:bootstrap:root", ("system:bootstrappers",)),
    "another node": ("system:node:somebody-else", ("system:nodes", "system:authenticated")),
    "a node outside of the nodes": ("system:node:{machine}", ("system:authenticated",)),
    "hostile text": (HOSTILE, ("system:bootstrappers",)),
}


@pytest.mark.parametrize("snapshot", REQUESTERS)
def test_requester_that_is_not_allowed(
    shared_harness: Harness, cluster: WorldCluster, machine: str, snapshot: str
) -> None:
    username, groups = REQUESTERS[snapshot]
    manifest = node_of(cluster, machine).client_request(f"requester-{machine}")
    plant(cluster, manifest, (username.format(machine=machine), groups))
    verdict = _denied(shared_harness, cluster, f"requester-{machine}", "RequesterNotAllowed", ("Machine", machine))
    assert "\x1b" not in verdict.message


def test_name_of_another_machine(shared_harness: Harness, cluster: WorldCluster, machine: str) -> None:
    cluster.add_machine("victim", provider_id=provider_id("victim"))
    cluster.submit_with_token(node_of(cluster, machine, "victim").client_request("name-mismatch"))
    _denied(shared_harness, cluster, "name-mismatch", "NodeNameMismatch", ("Machine", machine))


def test_identity_reserved_for_another_machine(shared_harness: Harness, cluster: WorldCluster, machine: str) -> None:
    """The same machine in two clusters: the first has it."""
    shared_harness.join(cluster, "moonlighting")
    second = shared_harness.cluster("second", namespace="team-b")
    second.add_machine("moonlighting", provider_id=provider_id("moonlighting"))
    second.submit_with_token(node_of(second, "moonlighting").client_request("identity-conflict"))
    verdict = second.wait_until_decided("identity-conflict")
    assert (verdict.condition, verdict.reason) == ("Denied", "IdentityConflict"), verdict
    assert_readable(verdict.message)
    assert verdict.certificate == b""


def test_machine_reserved_for_another_identity(shared_harness: Harness, cluster: WorldCluster, machine: str) -> None:
    client = shared_harness.management.client
    view = machine_view(client.get(MACHINES_V1BETA2.object(machine, cluster.namespace)))
    pair = Pair(MachineKey.of(view), AttestedIdentity("keyed-mac", "keyed-mac:another", Security.SECURE))
    for side in ReservationSide:
        client.create(
            IDENTITY_RESERVATIONS.collection(CONTROLLER_NAMESPACE),
            {
                "apiVersion": IDENTITY_RESERVATIONS.api_version,
                "kind": "IdentityReservation",
                "metadata": {"name": pair.name(side), "namespace": CONTROLLER_NAMESPACE},
                "spec": reservation_spec(side, pair, keys=keys_of(shared_harness)),
            },
        )
    cluster.submit_with_token(node_of(cluster, machine).client_request("machine-conflict"))
    _denied(shared_harness, cluster, "machine-conflict", "IdentityConflict", ("Machine", machine))


def test_machine_is_deleting(shared_harness: Harness, cluster: WorldCluster, machine: str) -> None:
    cluster.patch_machine(machine, {"metadata": {"finalizers": ["machine.cluster.x-k8s.io"]}})
    path = MACHINES_V1BETA2.object(machine, cluster.namespace)
    shared_harness.management.client.delete(path)
    shared_harness.join(cluster)  # its Machine came after the deletion: the controller knows of both
    cluster.submit_with_token(node_of(cluster, machine).client_request("deleting"))
    verdict = cluster.wait_until_decided("deleting")
    assert (verdict.condition, verdict.reason) == ("Denied", "MachineDeleting"), verdict
    assert_readable(shared_harness.wait_for_event("MachineDeleting", machine))


def test_evidence_of_another_key(shared_harness: Harness, cluster: WorldCluster, machine: str) -> None:
    """Replayed evidence: a reader of the honest CSR can copy everything but the key."""
    honest = node_of(cluster, machine)
    thief = node_of(cluster, machine)
    cluster.submit_with_token(thief.client_request("replayed", evidence_of=honest.evidence()))
    verdict = _denied(shared_harness, cluster, "replayed", "BindingMismatch", ("Machine", machine))
    assert_readable(verdict.message, honest.evidence().fields["mac"])


def test_evidence_of_another_purpose(shared_harness: Harness, cluster: WorldCluster, machine: str) -> None:
    node = node_of(cluster, machine)
    serving = node.evidence(Purpose.SERVING)
    cluster.submit_with_token(node.client_request("other-purpose", evidence_of=serving))
    _denied(shared_harness, cluster, "other-purpose", "BindingMismatch", ("Machine", machine))


def test_evidence_for_another_cluster(shared_harness: Harness, cluster: WorldCluster, machine: str) -> None:
    node = node_of(cluster, machine).but(ca_cert_hash="sha256:" + "0" * 64)
    cluster.submit_with_token(node.client_request("other-cluster"))
    _denied(shared_harness, cluster, "other-cluster", "ClusterMismatch", ("Machine", machine))


def test_evidence_for_an_incoming_ca_waits(shared_harness: Harness) -> None:
    """The Secret lists a CA beside the one that signs: a node of that CA is one of this cluster's, and not denied."""
    cluster, machine = shared_harness.cluster("changing-ca"), "of-the-changing-ca"
    cluster.add_machine(machine, provider_id=provider_id(machine))
    shared_harness.join(cluster)
    coming = new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256).secret_data["tls.crt"]
    bundle = cluster.api.ca_certificate_pem + coming
    cluster.put_secret("ca", {"tls.crt": bundle, "tls.key": cluster.api.ca_key_pem})
    (block,) = read_blocks(coming, maximum_bytes=len(coming), maximum_blocks=1)
    node = node_of(cluster, machine).but(ca_cert_hash=parse_ca_certificate(block.content).public_key_hash)
    cluster.submit_with_token(node.client_request("coming-in"))
    assert_readable(shared_harness.wait_for_event("CertificateAuthorityChanging", machine, "Machine"))
    pending(cluster, "coming-in")
    shared_harness.join(cluster)


def _reads_of_the_authority(harness: Harness, cluster: WorldCluster) -> int:
    return len(harness.api.requests.matching(f"GET {SECRETS.object(f'{cluster.name}-ca', cluster.namespace)}"))


def test_a_request_refused_anyway_causes_no_read_of_the_ca(
    shared_harness: Harness, cluster: WorldCluster, machine: str
) -> None:
    """The requester chooses the CA that it names; the cached CA is read again only if that is the only fault."""
    shared_harness.join(cluster)
    before = _reads_of_the_authority(shared_harness, cluster)
    for number in range(3):
        request = node_of(cluster, machine).but(ca_cert_hash=f"sha256:{number:064x}").client_request(f"both-{number}")
        request["spec"]["usages"] = ["digital signature", "client auth", "server auth"]
        cluster.submit_with_token(request)
        _denied(shared_harness, cluster, f"both-{number}", "InvalidUsages", ("Machine", machine))
    assert _reads_of_the_authority(shared_harness, cluster) == before
    cluster.submit_with_token(node_of(cluster, machine).but(ca_cert_hash="sha256:" + "1" * 64).client_request("one"))
    _denied(shared_harness, cluster, "one", "ClusterMismatch", ("Machine", machine))
    assert _reads_of_the_authority(shared_harness, cluster) == before + 1


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        (b"{}", "MalformedEvidence"),
        (b'{"version":"v1","version":"v1"}', "MalformedEvidence"),
        (b"\xff\x00", "MalformedEvidence"),
        (b'{"version":"v99","caCertHash":"sha256:' + b"0" * 64 + b'"}', "UnsupportedVersion"),
    ],
)
def test_unreadable_evidence(
    shared_harness: Harness, cluster: WorldCluster, machine: str, evidence: bytes, reason: str
) -> None:
    csr, provider, _ = blocks_of(node_of(cluster, machine))
    data = pem.encode(pem.Block("KUBELET AUTHENTICATOR ATTESTATION DATA", evidence))
    name = f"evidence-{machine}"
    cluster.submit_with_token(manifest_of(name, csr + provider + data))
    verdict = _denied(shared_harness, cluster, name, reason, ("Cluster", cluster.name))
    if reason == "UnsupportedVersion":
        assert verdict.annotations[SUPPORTED_VERSIONS_ANNOTATION] == "v1"


def test_signature_of_another_key(shared_harness: Harness, cluster: WorldCluster, machine: str) -> None:
    node = node_of(cluster, machine)
    one = provider_id_extension(tlv(0x0C, node.provider_id.encode()))
    forged = pkcs10(node.key, subject=node_subject(machine), attributes=[extension_request(one)], signature=bytes(70))
    plant(cluster, manifest_of("forged", _joined(*blocks_of(node, forged))))
    _denied(shared_harness, cluster, "forged", "InvalidSignature", ("Machine", machine))


def test_signers_of_others_are_ignored(shared_harness: Harness, cluster: WorldCluster) -> None:
    """Unknown provider, another domain, the built-in kubelet signer: the controller writes nothing about them."""
    node = node_of(cluster, "nobody")
    request = _joined(*blocks_of(node))
    signers: dict[str, Any] = {
        "unknown-provider": str(SignerName(Purpose.CLIENT, "unheard-of")),
        "other-domain": "example.com/kube-apiserver-client-kubelet-keyed-mac",
        "stock": "kubernetes.io/kube-apiserver-client-kubelet",
    }
    for name, signer_name in signers.items():
        cluster.submit_with_token(manifest_of(name, request, signer_name))
    # Decided after the others were seen: the watch keeps their order.
    shared_harness.join(cluster)
    for name in signers:
        assert cluster.verdict(name).condition == ""
        touched = embedded_api(cluster).requests.matching(f"* {CERTIFICATE_SIGNING_REQUESTS.object(name)}*")
        assert not [entry for entry in touched if entry.user == CONTROLLER_USER]
