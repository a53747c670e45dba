"""The invariant, read from the API servers alone: every certificate in any CSR has an AttestedNode that permits it.

To be asked when nothing is under way: between approval and certificate a request of ours shows as a violation.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from attestors.contract import Security
from attestors.wire.names import NODE_USER_PREFIX, NODES_GROUP, Purpose, SignerName, parse_signer_name
from signer.kube.resources import ATTESTED_NODES, CERTIFICATE_SIGNING_REQUESTS, IDENTITY_RESERVATIONS, SECRETS
from signer.model.cluster import ClusterKey
from signer.model.record import KUBELET_KINDS, AttestedNode, JournalEntry
from signer.model.record_object import InvalidRecord, parse_record
from signer.model.reservation import InvalidReservation, Pair, ReservationSide, parse_reservation
from signer.model.seal import ControllerKeys, RecordSeals
from signer.model.signing_request import spec_digest
from signer.store.controller_key import SECRET_NAME, parse_controller_keys
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, Verdict, WorldCluster
from tests.integration.fixtures import Harness

BUILTIN_SERVING_SIGNER: Final = "kubernetes.io/kubelet-serving"
_USAGE: Final = {Purpose.CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH, Purpose.SERVING: ExtendedKeyUsageOID.SERVER_AUTH}


@dataclass(frozen=True, slots=True)
class ShownCluster:
    """One workload cluster: its CA (PEM), and every CSR as its API server shows it."""

    key: ClusterKey
    ca_certificate: bytes
    requests: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """What the API servers show: the controller's keys, all AttestedNodes, all IdentityReservations, the clusters."""

    keys: ControllerKeys
    records: tuple[dict[str, Any], ...]
    reservations: tuple[dict[str, Any], ...]
    clusters: tuple[ShownCluster, ...]


def look(management: ManagementCluster, clusters: Iterable[WorldCluster]) -> Shown:
    """Read it all, as an administrator."""
    return Shown(
        parse_controller_keys(management.client.get(SECRETS.object(SECRET_NAME, CONTROLLER_NAMESPACE))),
        tuple(management.client.items(ATTESTED_NODES.collection())),
        tuple(management.client.items(IDENTITY_RESERVATIONS.collection(CONTROLLER_NAMESPACE))),
        tuple(
            ShownCluster(
                ClusterKey(cluster.namespace, cluster.name),
                base64.b64decode(
                    management.client.get(SECRETS.object(f"{cluster.name}-ca", cluster.namespace))["data"]["tls.crt"]
                ),
                tuple(cluster.client().items(CERTIFICATE_SIGNING_REQUESTS.collection())),
            )
            for cluster in clusters
        ),
    )


def violations(shown: Shown, *, not_ours: Collection[str] = ()) -> list[str]:
    """Everything that breaks the invariant, a sentence each.

    ``not_ours`` names CSRs whose certificates were had without the controller, and known so to the test: before
    Enforce, or from an administrator. A journal keeps its last sixteen entries, so a node that was certified more often
    shows up here, too.
    """
    records = authentic_records(shown)
    found: list[str] = []
    found += _of_pairs(records, shown.reservations)
    found += _of_journals(records)
    for cluster in shown.clusters:
        of_cluster = [record for record in records if record.machine.cluster == cluster.key]
        authority = _certificate(cluster.ca_certificate)
        for manifest in cluster.requests:
            name = manifest["metadata"]["name"]
            if name not in not_ours:
                found += [f"{cluster.key} {name}: {text}" for text in _of_request(manifest, of_cluster, authority)]
    return found


def authentic_records(shown: Shown) -> list[AttestedNode]:
    """The AttestedNodes that the controller wrote. Any other permits nothing, whatever it says."""
    seals = RecordSeals(shown.keys)
    records: list[AttestedNode] = []
    for manifest in shown.records:
        with contextlib.suppress(InvalidRecord):
            record = seals.unseal(parse_record(manifest))
            if isinstance(record, AttestedNode):
                records.append(record)
    return records


def assert_every_certificate_is_permitted(
    management: ManagementCluster, clusters: Iterable[WorldCluster], *, not_ours: Collection[str] = ()
) -> list[AttestedNode]:
    """Look, and find no violation. Returns the records."""
    shown = look(management, clusters)
    assert violations(shown, not_ours=not_ours) == []
    return authentic_records(shown)


def assert_one_owner_each(harness: Harness, clusters: Iterable[WorldCluster]) -> list[AttestedNode]:
    """The invariant for clusters of a harness, which know no certificates but the controller's. Returns the records."""
    return assert_every_certificate_is_permitted(harness.management, clusters)


def whole_pairs(harness: Harness) -> set[Pair]:
    """What the reservations say."""
    return _whole_pairs(harness.reservations())


def verdicts(cluster: WorldCluster) -> dict[str, Verdict]:
    """Every CSR of the cluster."""
    manifests: list[dict[str, Any]] = cluster.client().items(CERTIFICATE_SIGNING_REQUESTS.collection())
    return {manifest["metadata"]["name"]: Verdict.of(manifest) for manifest in manifests}


# Records and reservations


def _of_pairs(records: list[AttestedNode], reservations: Iterable[dict[str, Any]]) -> Iterator[str]:
    """A pair without a record may be left by a crash; a record without its pair may not."""
    try:
        whole = _whole_pairs(reservations)
    except InvalidReservation as error:
        yield f"IdentityReservation: {error}"
        return
    for record in records:
        if Pair(record.machine, record.identity) not in whole:
            yield f"AttestedNode {record.name}: its pair of reservations is not there"
    for kind, owners in (
        ("Machine", Counter(record.machine.digest for record in records)),
        ("identity", Counter(record.identity.digest for record in records)),
        ("node name", Counter(record.name for record in records)),
    ):
        yield from (f"{kind} {digest}: in {count} AttestedNodes" for digest, count in owners.items() if count > 1)


def _whole_pairs(reservations: Iterable[dict[str, Any]]) -> set[Pair]:
    found = [parse_reservation(manifest) for manifest in reservations]
    machines, identities = ({one.pair for one in found if one.side is side} for side in ReservationSide)
    return machines & identities


def _of_journals(records: list[AttestedNode]) -> Iterator[str]:
    """One certificate for each entry, one entry for each request."""
    entries = [entry for record in records for entry in record.journal]
    for kind, values in (
        ("serial number", Counter(f"{entry.serial_number:x}" for entry in entries)),
        ("certificate", Counter(entry.certificate_digest for entry in entries)),
        ("request", Counter(entry.csr_uid for entry in entries)),
        ("built-in request", Counter(one.csr_uid for record in records for one in record.builtin_approvals)),
    ):
        yield from (f"{kind} {value}: journaled {count} times" for value, count in values.items() if count > 1)


# Requests


def _of_request(manifest: dict[str, Any], records: list[AttestedNode], authority: x509.Certificate) -> list[str]:
    status = manifest.get("status") or {}
    kinds = {condition["type"] for condition in status.get("conditions") or []}
    encoded = base64.b64decode(status.get("certificate") or "")
    if "Approved" not in kinds or "Failed" in kinds:
        return ["a certificate without approval, or after failure"] if encoded else []
    signer_name = manifest["spec"]["signerName"]
    match parse_signer_name(signer_name):
        case SignerName() as signer:
            return list(_of_our_request(manifest, signer, encoded, records, authority))
        case _ if signer_name == BUILTIN_SERVING_SIGNER:
            return list(_of_builtin_request(manifest, encoded, records, authority))
        case _:
            return [f"approved for {signer_name}, which no AttestedNode can permit"]


def _of_our_request(
    manifest: dict[str, Any],
    signer: SignerName,
    encoded: bytes,
    records: list[AttestedNode],
    authority: x509.Certificate,
) -> Iterator[str]:
    uid, digest = manifest["metadata"]["uid"], spec_digest(manifest["spec"])
    journaled = [
        (record, entry)
        for record in records
        for entry in record.journal
        if (entry.csr_uid, entry.spec_digest) == (uid, digest)
    ]
    if not journaled and encoded:
        yield from _of_copy(manifest, signer, _certificate(encoded), records, authority)
        return
    if not journaled:
        yield "approved, and in no journal"
        return
    if not encoded:
        yield "approved, and without certificate"
        return
    certificate = _certificate(encoded)
    record, entry = journaled[0]
    if hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest() != entry.certificate_digest:
        yield "another certificate than the journal allows"
    yield from _against_entry(certificate, entry)
    if (entry.csr_name, entry.requester, entry.signer_name) != (
        manifest["metadata"]["name"],
        manifest["spec"]["username"],
        manifest["spec"]["signerName"],
    ):
        yield "journaled as a request of another name, requester or signer"
    if entry.kind != KUBELET_KINDS[signer.purpose]:
        yield "journaled as another kind of certificate"
    yield from _against_request(certificate, manifest, record.node_name, signer.purpose, authority)


def _of_copy(
    manifest: dict[str, Any],
    signer: SignerName,
    certificate: x509.Certificate,
    records: list[AttestedNode],
    authority: x509.Certificate,
) -> Iterator[str]:
    """A copy of a journaled request: it may have that very certificate, and no other."""
    digest = hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()
    permitting = [record for record in records if any(one.certificate_digest == digest for one in record.journal)]
    if not permitting:
        yield "approved, and in no journal"
        return
    yield from _against_request(certificate, manifest, permitting[0].node_name, signer.purpose, authority)


def _against_entry(certificate: x509.Certificate, entry: JournalEntry) -> Iterator[str]:
    if certificate.serial_number != entry.serial_number:
        yield "another serial number than the journal's"
    if (certificate.not_valid_before_utc, certificate.not_valid_after_utc) != (entry.not_before, entry.not_after):
        yield "valid at another time than the journal's"


def _of_builtin_request(
    manifest: dict[str, Any], encoded: bytes, records: list[AttestedNode], authority: x509.Certificate
) -> Iterator[str]:
    """Approve-only: kube-controller-manager signs, later or never."""
    uid, digest = manifest["metadata"]["uid"], spec_digest(manifest["spec"])
    permitting = [record for record in records if record.has_builtin_approval(uid, digest)]
    if not permitting:
        yield "a built-in serving request, approved, and in no journal"
        return
    record = permitting[0]
    asked = _public_key(x509.load_pem_x509_csr(base64.b64decode(manifest["spec"]["request"])))
    if all(one.public_key_digest != hashlib.sha256(asked).hexdigest() for one in record.builtin_approvals):
        yield "a built-in serving request, journaled with another key"
    if record.identity.security is not Security.SECURE:
        yield "a built-in serving request, approved on the word of an insecure attestor"
    if manifest["spec"]["username"] != NODE_USER_PREFIX + record.node_name:
        yield "a built-in serving request, approved for another node than the requester"
    if encoded:
        yield from _against_request(_certificate(encoded), manifest, record.node_name, Purpose.SERVING, authority)


def _against_request(
    certificate: x509.Certificate,
    manifest: dict[str, Any],
    node_name: str,
    purpose: Purpose,
    authority: x509.Certificate,
) -> Iterator[str]:
    """The recorded node's name, the request's key and alternative names, one purpose, this cluster's CA."""
    request = x509.load_pem_x509_csr(base64.b64decode(manifest["spec"]["request"]))
    subject = {attribute.oid: attribute.value for attribute in certificate.subject}
    if len(list(certificate.subject)) != 2 or subject != {
        NameOID.ORGANIZATION_NAME: NODES_GROUP,
        NameOID.COMMON_NAME: NODE_USER_PREFIX + node_name,
    }:
        yield f"the certificate is for {certificate.subject.rfc4514_string()}, the record for {node_name}"
    if _public_key(certificate) != _public_key(request):
        yield "the certificate has another key than the request"
    if _alternative_names(certificate) != _alternative_names(request):
        yield "the certificate has other alternative names than the request"
    if purpose is Purpose.CLIENT and _alternative_names(certificate):
        yield "a client certificate with alternative names"
    usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    if list(usages) != [_USAGE[purpose]]:
        yield "the certificate is for another purpose than its signer's"
    if certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
        yield "the certificate is an authority's"
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        yield "the certificate is not of the cluster's CA"


def _alternative_names(of: x509.Certificate | x509.CertificateSigningRequest) -> set[x509.GeneralName]:
    try:
        return set(of.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return set()


def _public_key(of: x509.Certificate | x509.CertificateSigningRequest) -> bytes:
    return of.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _certificate(encoded: bytes) -> x509.Certificate:
    with warnings.catch_warnings():
        # Cluster API gives its CAs serial number 0, about which parsing warns.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        return x509.load_pem_x509_certificate(encoded)
