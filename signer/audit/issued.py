"""Compares the journal entry and certificate of a logged approval with the request and the facts."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from attestors.wire.names import NODE_USER_PREFIX, NODES_GROUP
from signer.audit.decision_inputs import RequestStage
from signer.audit.decision_line import DecisionLine, NoEntry
from signer.audit.errors import Inconsistent
from signer.audit.issued_host_certificates import require_as_recorded, require_planned
from signer.authority import certificate_validity
from signer.authority.errors import CertificateAuthorityUnavailable, IssuanceRefused
from signer.model.record import KUBELET_KINDS, JournalEntry
from signer.model.signing_request import SigningRequest
from signer.rules.machine import MachineFacts, NoRecord, is_being_deleted
from signer.rules.request import certificate_duration, public_key_digest, requested_duration
from signer.rules.shape import node_name_of


def require_issued(line: DecisionLine, request: SigningRequest, facts: MachineFacts, stage: RequestStage) -> None:
    """An approval's entry is the one that the facts plan, or one that the record already had for this key.

    Other decisions pass.

    Raises:
        Inconsistent: it is neither, or the certificate does not match it.
    """
    entry = line.decision.entry
    if isinstance(entry, NoEntry):
        return
    _require_of_this_request(line, request, entry)
    if entry.ca_cert_hash != stage.signing_ca_cert_hash:
        raise Inconsistent("the certificate is of another CA than the one that signs")
    if not isinstance(facts.record, NoRecord) and entry in facts.record.journal:
        _require_left(entry, facts.now, stage.ca_not_after)
        require_as_recorded(line, request, facts.record)
        return
    if (entry.csr_uid, entry.spec_digest) != (request.header.uid, line.request.spec_digest):
        raise Inconsistent("the journal entry is of another request")
    if entry.requester != request.header.username or entry.created != facts.created:
        raise Inconsistent("the journal entry names another requester or time of creation")
    if entry.evidence_ca_cert_hash != request.evidence.cluster.text:
        raise Inconsistent("the journal entry names another CA than the evidence")
    if entry.csr_name != request.header.name or entry.decided != _decided(entry, facts):
        raise Inconsistent("the journal entry has another name of the request or time of decision")
    duration = certificate_duration(
        facts.policy, facts.purpose, facts.identity.security, deleting=is_being_deleted(facts)
    )
    try:
        validity = certificate_validity(
            facts.now, duration, requested_duration(request, facts.record), stage.ca_not_after
        )
    except (CertificateAuthorityUnavailable, IssuanceRefused) as error:
        raise Inconsistent(f"no certificate could be issued then: {error}") from error
    if (entry.not_before, entry.not_after) != (validity.not_before, validity.not_after):
        raise Inconsistent(
            f"the certificate is valid until {entry.not_after:%Y-%m-%dT%H:%M:%SZ}, and by the policy it should be "
            f"valid until {validity.not_after:%Y-%m-%dT%H:%M:%SZ}"
        )
    require_planned(line, request, facts)


def _decided(entry: JournalEntry, facts: MachineFacts) -> datetime:
    """The entry's ``decided`` time in the record: now, or later if another identity had the name until now."""
    now = replace(entry, decided=facts.now.replace(microsecond=0))
    if isinstance(facts.record, NoRecord):
        return now.decided
    return facts.record.with_entry(now, machine=facts.machine, identity=facts.identity).journal[-1].decided


def _require_left(entry: JournalEntry, now: datetime, ca_not_after: datetime) -> None:
    if not now < entry.not_after <= ca_not_after:
        raise Inconsistent("the certificate had expired, or is valid for longer than its CA")


def _require_of_this_request(line: DecisionLine, request: SigningRequest, entry: JournalEntry) -> None:
    node_name = node_name_of(request)
    if line.decision.node_name != node_name:
        raise Inconsistent(f"the decision is about node {line.decision.node_name}, the request about {node_name}")
    if entry.kind != KUBELET_KINDS[request.header.signer.purpose]:
        raise Inconsistent("the journal entry is of another kind of certificate")
    if entry.signer_name != str(request.header.signer) or entry.public_key_digest != public_key_digest(request):
        raise Inconsistent("the journal entry is of another key or signer")
    try:
        certificate = x509.load_pem_x509_certificate(line.decision.certificate.encode("ascii"))
        found = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except ValueError as error:
        raise Inconsistent("the certificate cannot be read") from error
    if hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest() != entry.certificate_digest:
        raise Inconsistent("the certificate is not the one of the journal entry")
    if found != request.certificate_request.subject_public_key_info:
        raise Inconsistent("the certificate is of another key than the request")
    subject = {attribute.oid: attribute.value for attribute in certificate.subject}
    if subject != {NameOID.COMMON_NAME: NODE_USER_PREFIX + node_name, NameOID.ORGANIZATION_NAME: NODES_GROUP}:
        raise Inconsistent(f"the certificate's subject is not node {node_name}")
    validity = (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    if (certificate.serial_number, *validity) != (entry.serial_number, entry.not_before, entry.not_after):
        raise Inconsistent("serial number or validity of the certificate are not those of the journal entry")
