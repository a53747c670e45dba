"""Writes issuances and ends to the audit log, before they take effect."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from attestors.wire.ssh.key_line import parse_key_line
from signer.access.approvals import authentic
from signer.access.certificates import access_of, hops_of
from signer.access.creator import is_same_person
from signer.access.facts import Facts
from signer.access.parts import IssuanceFacts
from signer.access.record import Closing, GrantRecord
from signer.access.right_answers import Allowed
from signer.access.signing import SignedHop
from signer.audit.access_line import EndLine, IssuanceLine, LoggedApproval, logged_certificate
from signer.audit.lines import AccessEndedContent, AccessIssuedContent
from signer.audit.log import AuditLog
from signer.model.access import Creator, Decision
from signer.model.cluster import ClusterKey


async def log_issuance(
    facts: Facts, issuance: IssuanceFacts, record: GrantRecord, hops: Sequence[SignedHop], log: AuditLog
) -> None:
    """Write a line about certificates that are about to leave.

    Raises:
        AuditLogUnavailable: it is not in the log, so they must not leave.
    """
    grant, entry = issuance.grant, hops[0].entry
    sources = {one.hop: one for one in hops_of(issuance)}
    line = IssuanceLine(
        cluster=str(grant.cluster),
        time=facts.now,
        key_id=entry.key_id,
        access=access_of(issuance),
        creator=record.creator,
        reason=grant.reason,
        ticket=grant.ticket,
        spec_digest=grant.digest,
        approvals=counted_approvals(facts, record),
        key_fingerprint=parse_key_line(grant.ssh_public_key).fingerprint,
        issued=entry.issued,
        not_after=entry.ends,
        authority=entry.authority,
        certificates=tuple(logged_certificate(sources[one.entry.hop], one.line) for one in hops),
    )
    await log.append(AccessIssuedContent(line.encode()))


def counted_approvals(facts: Facts, record: GrantRecord) -> tuple[LoggedApproval, ...]:
    """The approvals that count, one for each person."""
    persons: list[Creator] = []
    found: list[LoggedApproval] = []
    for one in authentic(facts.known_approvals, record.approvals):
        person = one.created_by
        if (
            isinstance(person, Creator)
            and one.decision is Decision.APPROVE
            and isinstance(facts.approvers.get(one.metadata.uid), Allowed)
            and not any(is_same_person(person, other) for other in (record.creator, *persons))
        ):
            persons.append(person)
            found.append(LoggedApproval(person.username, one.metadata.uid))
    return tuple(found)


async def log_end(facts: Facts, record: GrantRecord, message: str, log: AuditLog) -> None:
    """Write a line about a grant that is about to end, or to pause.

    Raises:
        AuditLogUnavailable: it is not in the log.
    """
    state, metadata = record.state, facts.metadata
    if not isinstance(state, Closing):
        return
    if not isinstance(record.last_end, datetime) and not state.cause.is_final:
        return  # the same key id may be used later
    key_id = record.key_id(metadata, record.epoch)
    line = EndLine(
        cluster=str(ClusterKey(metadata.namespace, record.cluster)),
        time=facts.now,
        key_id=key_id,
        name=metadata.name,
        uid=metadata.uid,
        creator=record.creator.username,
        epoch=record.epoch,
        cause=state.cause.value,
        message=message,
        serial_numbers=tuple(one.serial for one in record.journal if one.key_id == key_id),
    )
    await log.append(AccessEndedContent(line.encode()))


__all__ = ["counted_approvals", "log_end", "log_issuance"]
