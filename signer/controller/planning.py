"""From an attested request to the certificate that it may become, as the journal will hold it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from attestors.contract import Security
from attestors.wire.names import Purpose
from signer.authority import Authority, IssuanceRefused, certificate_validity, new_serial_number
from signer.authority.errors import CertificateAuthorityUnavailable
from signer.model.decision import Approve, Deferred, Refused
from signer.model.reasons import Reason
from signer.model.record import AttestedNode, JournalEntry
from signer.model.signing_request import SigningRequest
from signer.rules.machine import MachineFacts

_LEAST_LIFETIME: Final = timedelta(minutes=10)
"""An entry whose certificate would have less left than the API server's least duration is planned again."""


def plan(request: SigningRequest, facts: MachineFacts, authority: Authority) -> JournalEntry:
    """The certificate that this request may become: serial number, validity, CA."""
    envelope, policy = request.envelope, facts.policy
    if facts.identity.security is Security.INSECURE:
        duration = policy.insecure_duration
    elif facts.purpose is Purpose.SERVING:
        duration = policy.serving_duration
    else:
        duration = policy.client_duration
    try:
        validity = certificate_validity(
            facts.now, duration, envelope.expiration_seconds, authority.signing.certificate.not_after
        )
    except CertificateAuthorityUnavailable as error:
        raise Deferred(Reason.CERTIFICATE_AUTHORITY_UNAVAILABLE, str(error)) from error
    except IssuanceRefused as error:
        raise Refused(Reason.MALFORMED_REQUEST, str(error)) from error
    return JournalEntry(
        csr_name=envelope.name,
        csr_uid=envelope.uid,
        spec_digest=envelope.spec_digest,
        signer_name=str(envelope.signer),
        requester=envelope.username,
        serial_number=new_serial_number(),
        not_before=validity.not_before,
        not_after=validity.not_after,
        ca_cert_hash=signing_hash(authority),
        decided=facts.now.replace(microsecond=0),
    )


def approval(record: AttestedNode, entry: JournalEntry) -> Approve:
    secure = record.identity.security is Security.SECURE
    return Approve(
        node_name=record.node_name,
        reason=Reason.ATTESTED if secure else Reason.ASSERTED,
        message=f"{'Attested' if secure else 'Asserted without proof'} by {record.identity.provider}: "
        f"{record.machine} is node {record.node_name}",
        entry=entry,
    )


def fits(entry: JournalEntry, authority: Authority, now: datetime) -> bool:
    """Whether the certificate of a journal entry can still be issued, and is worth it."""
    same = entry.ca_cert_hash == signing_hash(authority)
    return same and now + _LEAST_LIFETIME < entry.not_after <= authority.signing.certificate.not_after


def signing_hash(authority: Authority) -> str:
    return authority.signing.certificate.public_key_hash
