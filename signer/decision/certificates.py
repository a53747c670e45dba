"""From an attested request to its certificate, and to the journal entry that allows it.

The certificate is signed before it is journaled, because the journal contains its digest. It leaves this process only
after the journal and the approval were written. After a crash, any replica creates the same certificate again.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from attestors.contract import Security
from attestors.wire.names import NODE_USER_PREFIX, NODES_GROUP, Purpose
from signer.authority import (
    KUBELET_CLIENT,
    KUBELET_SERVING,
    CertificateUsage,
    IssuanceRefused,
    IssuanceRefusedReason,
    IssuanceRequest,
    IssuingSet,
    certificate_validity,
    issue,
    new_serial_number,
    require_issuable,
)
from signer.authority.errors import CertificateAuthorityUnavailable
from signer.model.decision import Approve, Deferred, Refused
from signer.model.reasons import Reason
from signer.model.record import KUBELET_KINDS, AttestedNode, JournalEntry
from signer.model.reservation import CLOCKS_APART
from signer.model.signing_request import SigningRequest
from signer.rules.machine import MachineFacts, is_being_deleted
from signer.rules.request import certificate_duration, public_key_digest, requested_duration

_AS_LONG: Final = timedelta(minutes=1)
"""Lifetimes that differ by less count as equal: they are rounded, and limited by the CA's expiry."""
_LEAST_LIFETIME: Final = timedelta(minutes=10)
"""An entry whose certificate would have less lifetime left than the API server's minimum is planned again."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A signed certificate that has not left this process."""

    pem: bytes
    digest: str
    """SHA-256 of its DER encoding, in hexadecimal."""


def plan(request: SigningRequest, facts: MachineFacts, authority: IssuingSet) -> IssuanceRequest:
    """The certificate to issue for this request, with a new serial number and validity.

    Raises:
        Deferred: the CA has expired.
        Refused: the request asks for an invalid validity.
    """
    duration = certificate_duration(
        facts.policy, facts.purpose, facts.identity.security, deleting=is_being_deleted(facts)
    )
    asked = requested_duration(request, facts.record)
    try:
        validity = certificate_validity(
            facts.now, duration, asked, authority.signer_of(facts.purpose).certificate.not_after
        )
    except CertificateAuthorityUnavailable as error:
        raise Deferred(Reason.CERTIFICATE_AUTHORITY_UNAVAILABLE, str(error)) from error
    except IssuanceRefused as error:
        raise Refused(Reason.MALFORMED_REQUEST, str(error)) from error
    return _issuance(request, facts.node_name, new_serial_number(), validity.not_before, validity.not_after)


def planned(request: SigningRequest, node_name: str, entry: JournalEntry) -> IssuanceRequest:
    """The certificate of a journal entry."""
    return _issuance(request, node_name, entry.serial_number, entry.not_before, entry.not_after)


def _issuance(
    request: SigningRequest, node_name: str, serial_number: int, not_before: datetime, not_after: datetime
) -> IssuanceRequest:
    """Subject and alternative names as checked, key from the CSR, usages from its spec.

    Raises:
        IssuanceRefused: a kubelet certificate must not have these usages or names.
    """
    certificate_request = request.certificate_request
    try:
        usages = frozenset(CertificateUsage(usage) for usage in request.header.usages)
    except ValueError:
        raise IssuanceRefused(IssuanceRefusedReason.USAGES_INVALID, "a usage is none of a kubelet's") from None
    return IssuanceRequest(
        profile=KUBELET_CLIENT if request.header.signer.purpose is Purpose.CLIENT else KUBELET_SERVING,
        subject_common_name=NODE_USER_PREFIX + node_name,
        organization=NODES_GROUP,
        public_key=certificate_request.public_key,  # type: ignore[arg-type]  # its constructor refuses other kinds
        dns_names=certificate_request.dns_names,
        ip_addresses=certificate_request.ip_addresses,
        usages=usages,
        serial_number=serial_number,
        not_before=not_before,
        not_after=not_after,
    )


async def sign(issuance: IssuanceRequest, authority: IssuingSet) -> Certificate:
    """Sign the certificate. Slow keys sign in a thread, because signing releases the GIL.

    Raises:
        Deferred: the certificate would be invalid, through a fault of the controller or of the CA.
    """
    try:
        if authority.signer_of(issuance.profile.purpose).is_slow_to_sign:
            pem = await asyncio.to_thread(issue, authority, issuance)
        else:
            pem = issue(authority, issuance)
    except IssuanceRefused as error:
        raise bad_certificate(error) from error
    return Certificate(pem, hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem.decode("ascii"))).hexdigest())


def bad_certificate(error: IssuanceRefused) -> Deferred:
    """The deferral for a certificate that the CA must not sign."""
    return Deferred(Reason.INTERNAL_ERROR, f"the certificate would be a bad one: {error}")


@dataclass(frozen=True, slots=True)
class NotRepeatable:
    """The certificate of a journal entry cannot be created again: a new one is planned."""


class Signing(Protocol):
    """Creates planned certificates."""

    async def sign(self, issuance: IssuanceRequest, authority: IssuingSet) -> Certificate:
        """Create a new certificate; see :func:`sign`."""
        ...

    async def sign_again(
        self, issuance: IssuanceRequest, digest: str, authority: IssuingSet
    ) -> Certificate | NotRepeatable:
        """Create the earlier certificate with that digest again."""
        ...


class SigningByKey:
    """Creates certificates with the cluster's CA."""

    async def sign(self, issuance: IssuanceRequest, authority: IssuingSet) -> Certificate:
        """See Signing."""
        return await sign(issuance, authority)

    async def sign_again(
        self, issuance: IssuanceRequest, digest: str, authority: IssuingSet
    ) -> Certificate | NotRepeatable:
        """See Signing."""
        certificate = await sign(issuance, authority)
        return certificate if certificate.digest == digest else NotRepeatable()


SIGNING_BY_KEY: Final[Signing] = SigningByKey()


def journal_entry(
    request: SigningRequest,
    facts: MachineFacts,
    issuance: IssuanceRequest,
    certificate: Certificate,
    authority: IssuingSet,
) -> JournalEntry:
    """The journal entry of this request and its certificate."""
    header = request.header
    return JournalEntry(
        kind=KUBELET_KINDS[header.signer.purpose],
        csr_name=header.name,
        csr_uid=header.uid,
        spec_digest=header.spec_digest,
        signer_name=str(header.signer),
        requester=header.username,
        serial_number=issuance.serial_number,
        not_before=issuance.not_before,
        not_after=issuance.not_after,
        ca_cert_hash=signing_hash(authority, facts.purpose),
        evidence_ca_cert_hash=request.evidence.cluster.text,
        certificate_digest=certificate.digest,
        public_key_digest=public_key_digest(request),
        created=facts.created,
        decided=facts.now.replace(microsecond=0),
    )


async def repeat(
    request: SigningRequest,
    facts: MachineFacts,
    record: AttestedNode,
    entry: JournalEntry,
    authority: IssuingSet,
    signing: Signing = SIGNING_BY_KEY,
) -> Approve | NotRepeatable:
    """Create the certificate of a journal entry again, after a crash between journal and certificate.

    The CA may have a new certificate for its old key, which is valid only since then. Policy or floor may have become
    stricter: a certificate that would be valid for longer than they let it is planned again.
    """
    longest = certificate_duration(
        facts.policy, facts.purpose, facts.identity.security, deleting=is_being_deleted(facts)
    )
    if not fits(entry, authority, facts.purpose, facts.now) or entry.not_after > facts.now + longest + CLOCKS_APART:
        return NotRepeatable()
    try:
        issuance = planned(request, record.node_name, entry)
        require_issuable(authority, issuance)
    except IssuanceRefused:
        return NotRepeatable()
    certificate = await signing.sign_again(issuance, entry.certificate_digest, authority)
    return certificate if isinstance(certificate, NotRepeatable) else approval(record, entry, certificate)


async def repeat_for_key(
    request: SigningRequest,
    facts: MachineFacts,
    record: AttestedNode,
    authority: IssuingSet,
    signing: Signing = SIGNING_BY_KEY,
) -> Approve | NotRepeatable:
    """The certificate that this key already has, if it lives as long as a new one and is in the first half of its life.

    Any client that can read a request can post copies of it, even with another ``expirationSeconds``, which no evidence
    covers. A copy gets the original's certificate and no second one: it can neither fill the journal nor shorten a
    certificate's life.
    """
    entries = record.entries_for_key(public_key_digest(request), str(request.header.signer))
    if not entries:
        return NotRepeatable()
    wanted = plan(request, facts, authority)
    for entry in entries:
        life = entry.not_after - entry.not_before
        if life + _AS_LONG < wanted.not_after - wanted.not_before or entry.not_before + life / 2 <= facts.now:
            continue
        repeated = await repeat(request, facts, record, entry, authority, signing)
        if not isinstance(repeated, NotRepeatable):
            return repeated
    return NotRepeatable()


def fits(entry: JournalEntry, authority: IssuingSet, purpose: Purpose, now: datetime) -> bool:
    """Whether the certificate of a journal entry can still be issued and has enough lifetime left."""
    same = entry.ca_cert_hash == signing_hash(authority, purpose)
    return same and now + _LEAST_LIFETIME < entry.not_after <= authority.signer_of(purpose).certificate.not_after


def approval(record: AttestedNode, entry: JournalEntry, certificate: Certificate) -> Approve:
    """The decision that publishes this certificate."""
    secure = record.identity.security is Security.SECURE
    return Approve(
        node_name=record.node_name,
        reason=Reason.ATTESTED if secure else Reason.ASSERTED,
        message=f"{'Attested' if secure else 'Asserted without proof'} by {record.identity.provider}: "
        f"{record.machine} is node {record.node_name}",
        entry=entry,
        certificate=certificate.pem,
    )


def signing_hash(authority: IssuingSet, purpose: Purpose) -> str:
    """The CA that signs for that purpose, in kubeadm's hash form."""
    return authority.signer_of(purpose).certificate.public_key_hash
