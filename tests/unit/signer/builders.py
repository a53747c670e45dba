"""Requests, Machines and facts for the tests of model and rules.

PKCS#10 is put together from DER by hand, so that a test can say what no honest library writes.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from attestors.contract import AttestorDescription, Freshness, Security, VerifiedIdentity
from attestors.wire import binding, pem, provider_id
from attestors.wire.binding import Binding, CACertHash
from attestors.wire.names import (
    ATTESTATION_DATA_LABEL,
    ATTESTATION_PROVIDER_LABEL,
    CERTIFICATE_REQUEST_LABEL,
    PROVIDER_ID_OID,
    Purpose,
    SignerName,
)
from signer.model.authority_sharing import NOT_SHARED
from signer.model.cluster import ClusterKey, ClusterView, MachineAddress, MachineView
from signer.model.floors import NO_FLOOR
from signer.model.policy import Policy, parse_policy
from signer.model.record import (
    BUILTIN_KUBELET_SERVING,
    KUBELET_CLIENT,
    KUBELET_SERVING,
    AttestedIdentity,
    AttestedNode,
    BuiltinApproval,
    JournalEntry,
    new_record,
)
from signer.model.serving_facts import ServingFacts
from signer.model.signing_request import BuiltinServingRequest, NoCredentialNamed, SigningRequest, parse_signing_request
from signer.rules.machine import MachineFacts, MachineGone, NoRecord
from signer.rules.request import RequestFacts

NOW: Final = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
CLUSTER: Final = ClusterKey("team-a", "prod")
NODE: Final = "ip-10-0-0-1.ec2.internal"
PROVIDER_ID: Final = "aws:///eu-west-1a/i-0123456789abcdef0"
CA_CERT_HASH: Final = "sha256:" + "ab" * 32
CLIENT_SIGNER: Final = "cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm"
SERVING_SIGNER: Final = "cluster.x-k8s.io/kubelet-serving-tpm"
BUILTIN_SERVING_SIGNER: Final = "kubernetes.io/kubelet-serving"
CLIENT_USAGES: Final = ("digital signature", "client auth")
SERVING_USAGES: Final = ("digital signature", "server auth")
BOOTSTRAP: Final = ("system:bootstrap:abc123", ("system:bootstrappers", "system:authenticated"))
AS_NODE: Final = (f"system:node:{NODE}", ("system:nodes", "system:authenticated"))
TPM: Final = AttestorDescription("tpm", Security.SECURE, ("v1",), Freshness.CHALLENGE)
INSECURE: Final = AttestorDescription("insecure", Security.INSECURE, ("v1",), Freshness.NONE)
PROVIDERS: Final = frozenset({"tpm", "insecure"})

COMMON_NAME: Final = "2.5.4.3"
ORGANIZATION: Final = "2.5.4.10"
SUBJECT_ALTERNATIVE_NAME: Final = "2.5.29.17"
EXTENSION_REQUEST: Final = "1.2.840.113549.1.9.14"

UTF8_STRING, PRINTABLE_STRING, T61_STRING, IA5_STRING = 0x0C, 0x13, 0x14, 0x16
UNIVERSAL_STRING, BMP_STRING = 0x1C, 0x1E

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

_SIGNATURE_ALGORITHMS: Final = {
    (ec, "sha1"): "1.2.840.10045.4.1",
    (ec, "sha224"): "1.2.840.10045.4.3.1",
    (ec, "sha256"): "1.2.840.10045.4.3.2",
    (ec, "sha384"): "1.2.840.10045.4.3.3",
    (ec, "sha512"): "1.2.840.10045.4.3.4",
    (rsa, "sha1"): "1.2.840.113549.1.1.5",
    (rsa, "sha256"): "1.2.840.113549.1.1.11",
}


# DER


def tlv(tag: int, content: bytes) -> bytes:
    """One DER element."""
    length = len(content)
    if length < 0x80:
        return bytes((tag, length)) + content
    octets = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(octets))) + octets + content


def sequence(*elements: bytes) -> bytes:
    return tlv(0x30, b"".join(elements))


def set_of(*elements: bytes) -> bytes:
    """In the order that DER demands."""
    return tlv(0x31, b"".join(sorted(elements)))


def integer(value: int) -> bytes:
    return tlv(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def oid(dotted: str) -> bytes:
    first, second, *rest = (int(arc) for arc in dotted.split("."))
    content = b""
    for arc in (first * 40 + second, *rest):
        octets = [arc & 0x7F]
        while arc := arc >> 7:
            octets.append(0x80 | arc & 0x7F)
        content += bytes(reversed(octets))
    return tlv(0x06, content)


def attribute(kind: str, value: str | bytes, tag: int = UTF8_STRING) -> bytes:
    """AttributeTypeAndValue."""
    return sequence(oid(kind), tlv(tag, value.encode() if isinstance(value, str) else value))


def rdn(kind: str, value: str | bytes, tag: int = UTF8_STRING) -> bytes:
    """A relative distinguished name of one attribute."""
    return set_of(attribute(kind, value, tag))


def node_subject(node_name: str = NODE) -> bytes:
    return sequence(rdn(ORGANIZATION, "system:nodes"), rdn(COMMON_NAME, f"system:node:{node_name}"))


def extension(kind: str, value: bytes, *, critical: bool = False) -> bytes:
    return sequence(oid(kind), *([tlv(0x01, b"\xff")] if critical else []), tlv(0x04, value))


def provider_id_extension(value: bytes | None = None, *, critical: bool = False) -> bytes:
    return extension(PROVIDER_ID_OID, provider_id.encode(PROVIDER_ID) if value is None else value, critical=critical)


def dns(name: str | bytes) -> bytes:
    return tlv(0x82, name.encode() if isinstance(name, str) else name)


def ip(packed: bytes) -> bytes:
    return tlv(0x87, packed)


def alternative_names(*names: bytes, critical: bool = False) -> bytes:
    return extension(SUBJECT_ALTERNATIVE_NAME, sequence(*names), critical=critical)


def extension_request(*extensions: bytes) -> bytes:
    return sequence(oid(EXTENSION_REQUEST), set_of(sequence(*extensions)))


# Keys


@cache
def ec_key(curve: type[ec.EllipticCurve] = ec.SECP256R1) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve())


@cache
def rsa_key(name: str) -> rsa.RSAPrivateKey:
    """A key from ``fixtures/keys``; making one is slow."""
    path = Path(__file__).parents[3] / "fixtures" / "keys" / f"{name}.pem"
    key = load_pem_private_key(path.read_bytes(), password=None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


def public_key_info(key: Any) -> bytes:
    encoded: bytes = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return encoded


def rsa_public_key_info(modulus: int, exponent: int) -> bytes:
    key = sequence(integer(modulus), integer(exponent))
    return sequence(sequence(oid("1.2.840.113549.1.1.1"), tlv(0x05, b"")), tlv(0x03, b"\0" + key))


# PKCS#10


def pkcs10(
    key: PrivateKey | None = None,
    *,
    subject: bytes | None = None,
    extensions: Sequence[bytes] | None = None,
    attributes: Sequence[bytes] | None = None,
    version: int = 0,
    public_key: bytes | None = None,
    hash_name: str = "sha256",
    signature: bytes | None = None,
) -> bytes:
    """A signed request; each argument replaces what an honest node writes."""
    key = key or ec_key()
    if attributes is None:
        attributes = [extension_request(*([provider_id_extension()] if extensions is None else extensions))]
    to_be_signed = sequence(
        integer(version),
        node_subject() if subject is None else subject,
        public_key or public_key_info(key),
        tlv(0xA0, b"".join(sorted(attributes))),
    )
    algorithm: hashes.HashAlgorithm = getattr(hashes, hash_name.upper())()
    if isinstance(key, ec.EllipticCurvePrivateKey):
        signed = key.sign(to_be_signed, ec.ECDSA(algorithm))
        parameters = b""
        kind: Any = ec
    else:
        signed = key.sign(to_be_signed, padding.PKCS1v15(), algorithm)
        parameters = tlv(0x05, b"")
        kind = rsa
    return sequence(
        to_be_signed,
        sequence(oid(_SIGNATURE_ALGORITHMS[kind, hash_name]), parameters),
        tlv(0x03, b"\0" + (signed if signature is None else signature)),
    )


# CertificateSigningRequests


def evidence_json(version: str = "v1", ca_cert_hash: str = CA_CERT_HASH) -> bytes:
    return f'{{"version":"{version}","caCertHash":"{ca_cert_hash}","quote":"AAAA"}}'.encode()


def blocks(der: bytes | None = None, provider: str = "tpm", evidence: bytes | None = None) -> bytes:
    """``spec.request`` before base64."""
    return b"".join(
        pem.encode(pem.Block(label, content))
        for label, content in (
            (CERTIFICATE_REQUEST_LABEL, pkcs10() if der is None else der),
            (ATTESTATION_PROVIDER_LABEL, provider.encode()),
            (ATTESTATION_DATA_LABEL, evidence_json() if evidence is None else evidence),
        )
    )


def manifest(
    request: bytes | None = None,
    *,
    signer_name: str = CLIENT_SIGNER,
    requester: tuple[str, Iterable[str]] = BOOTSTRAP,
    usages: Sequence[str] = CLIENT_USAGES,
    **status: Any,
) -> dict[str, Any]:
    """A CSR as an API server returns it."""
    return {
        "metadata": {
            "name": "csr-x1",
            "uid": "7f9c1f5e-0000-4000-8000-000000000001",
            "resourceVersion": "42",
            "creationTimestamp": "2026-03-01T11:59:59Z",
        },
        "spec": {
            "request": base64.b64encode(blocks() if request is None else request).decode(),
            "signerName": signer_name,
            "usages": list(usages),
            "username": requester[0],
            "groups": list(requester[1]),
        },
        "status": status,
    }


def serving_manifest(*names: bytes, extensions: Sequence[bytes] | None = None, **changes: Any) -> dict[str, Any]:
    if extensions is None:
        extensions = [provider_id_extension(), alternative_names(*names)]
    given: dict[str, Any] = {"signer_name": SERVING_SIGNER, "requester": AS_NODE, "usages": SERVING_USAGES}
    return manifest(blocks(pkcs10(extensions=extensions)), **given | changes)


def builtin_serving_manifest(der: bytes | None = None, **changes: Any) -> dict[str, Any]:
    """A kubelet's own request to the built-in serving signer; by default for its node name and address."""
    der = der or pkcs10(extensions=[alternative_names(dns(NODE), ip(bytes((10, 0, 0, 1))))])
    given: dict[str, Any] = {"signer_name": BUILTIN_SERVING_SIGNER, "requester": AS_NODE, "usages": SERVING_USAGES}
    return manifest(pem.encode(pem.Block(CERTIFICATE_REQUEST_LABEL, der)), **given | changes)


def builtin_serving_request(csr: dict[str, Any] | None = None) -> BuiltinServingRequest:
    parsed = parse_signing_request(builtin_serving_manifest() if csr is None else csr, PROVIDERS)
    assert isinstance(parsed, BuiltinServingRequest), parsed
    return parsed


def signing_request(csr: dict[str, Any] | None = None) -> SigningRequest:
    parsed = parse_signing_request(manifest() if csr is None else csr, PROVIDERS)
    assert isinstance(parsed, SigningRequest), parsed
    return parsed


def der_request(der: bytes) -> SigningRequest:
    return signing_request(manifest(blocks(der)))


# Facts


def cluster_view(**changes: Any) -> ClusterView:
    view = ClusterView(
        key=CLUSTER,
        uid="c-1",
        paused=False,
        deleting=False,
        control_plane_host="",
        service_networks=(IPv4Network("10.96.0.0/12"),),
    )
    return replace(view, **changes)


def policy(**spec: Any) -> Policy:
    given: dict[str, Any] = {"authorizedAttestors": [{"name": "tpm"}]}
    return parse_policy(
        {"metadata": {"namespace": CLUSTER.namespace, "name": CLUSTER.name}, "spec": given | spec}, NO_FLOOR
    )


def request_facts(request: SigningRequest | None = None, **changes: Any) -> RequestFacts:
    facts = RequestFacts(
        request=request or signing_request(),
        cluster=cluster_view(),
        policy=policy(),
        attestor=TPM,
        insecure_allowed=False,
        operator_allows=True,
        ca_cert_hashes=frozenset({CA_CERT_HASH}),
        shared=NOT_SHARED,
    )
    return replace(facts, **changes)


def machine_view(**changes: Any) -> MachineView:
    view = MachineView(
        cluster=CLUSTER,
        kind="Machine",
        name="prod-md-0-x7k2p",
        uid="m-1",
        provider_id=PROVIDER_ID,
        addresses=(MachineAddress("InternalDNS", NODE), MachineAddress("InternalIP", "10.0.0.1")),
        infrastructure_name="prod-md-0-infra",
        node_ref="",
        bootstrap_ready=True,
        paused=False,
        deleting=False,
    )
    return replace(view, **changes)


def request_binding(number: int = 1) -> Binding:
    return binding.compute(
        evidence_version="v1",
        cluster=CACertHash(CA_CERT_HASH),
        signer_name=SignerName(Purpose.CLIENT, "tpm"),
        subject_public_key_info=bytes([number]),
    )


def verified(**changes: Any) -> VerifiedIdentity:
    expected = request_binding()
    given: dict[str, Any] = {
        "provider_id": PROVIDER_ID,
        "identity": "ek:1",
        "binding": expected.prove(expected.value),
    }
    return VerifiedIdentity(**given | changes)


def attested_identity(identity: str = "ek:1") -> AttestedIdentity:
    return AttestedIdentity("tpm", identity, Security.SECURE)


def journal_entry(number: int = 1, **changes: Any) -> JournalEntry:
    signer = changes.get("signer_name", CLIENT_SIGNER)
    entry = JournalEntry(
        kind=KUBELET_SERVING if signer == SERVING_SIGNER else KUBELET_CLIENT,
        csr_name=f"csr-{number}",
        csr_uid=f"uid-{number}",
        spec_digest="cd" * 32,
        signer_name=CLIENT_SIGNER,
        requester=BOOTSTRAP[0],
        serial_number=number,
        not_before=NOW - timedelta(minutes=5),
        not_after=NOW + timedelta(days=7),
        ca_cert_hash=CA_CERT_HASH,
        evidence_ca_cert_hash=CA_CERT_HASH,
        certificate_digest="ef" * 32,
        public_key_digest=f"{number:064x}",
        created=NOW - timedelta(seconds=1),
        decided=NOW,
    )
    return replace(entry, **changes)


def builtin_approval(**changes: Any) -> BuiltinApproval:
    approval = BuiltinApproval(
        kind=BUILTIN_KUBELET_SERVING,
        csr_name="csr-s",
        csr_uid="uid-s",
        spec_digest="cd" * 32,
        public_key_digest="12" * 32,
        created=NOW - timedelta(seconds=1),
        decided=NOW,
    )
    return replace(approval, **changes)


def record(machine: MachineView | None = None, identity: str = "ek:1", **changes: Any) -> AttestedNode:
    made = new_record(machine or machine_view(), NODE, attested_identity(identity), journal_entry())
    return replace(made, **changes)


def machine_facts(**changes: Any) -> MachineFacts:
    facts = MachineFacts(
        node_name=NODE,
        requester=BOOTSTRAP[0],
        signer_name=CLIENT_SIGNER,
        created=NOW - timedelta(seconds=1),
        public_key_digest="0" * 64,
        purpose=Purpose.CLIENT,
        dns_names=(),
        ip_addresses=(),
        identity=attested_identity(),
        proven=verified(),
        cluster=cluster_view(),
        policy=policy(),
        machine=machine_view(),
        record=NoRecord(),
        recorded_machine=MachineGone(),
        others_called_so=(),
        other_names=(),
        conflicting_names=frozenset(),
        serving=ServingFacts(),
        credential=NoCredentialNamed(),
        now=NOW,
    )
    return replace(facts, **changes)
