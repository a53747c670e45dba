"""What a grant's object asks for, taken into the sealed record. Pure.

Admission lets the creator alone change ingress and heartbeats, and lets few others unset ``suspend``. While admission
is off, anybody with the right to update may change them. So a change counts only if the guards of admission are the
same objects, unchanged, at the look before the change and at the look after it. Otherwise the new value becomes what
the controller has seen, and nothing follows from it: the creator has to say it again. ``suspend: true`` always counts.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from signer.access.approvals import SealedApproval, newly_sealed
from signer.access.creator import CreatorNotProven, require_lock
from signer.access.facts import ApprovalsUnknown, Facts, Keepalive
from signer.access.lifetimes import first_created, next_heartbeat_counts
from signer.access.record import GrantRecord, Seen
from signer.access.right_answers import Allowed
from signer.model.access import AccessGrant, Creator


def first_record(facts: Facts, grant: AccessGrant, creator: Creator, guard: str) -> GrantRecord:
    """The record of a grant at first sight. Its creation counts as a heartbeat."""
    created = first_created(facts.metadata.created, facts.now)
    return GrantRecord(
        sequence=1,
        cluster=grant.cluster.name,
        creator=creator,
        created=created,
        spec_digest=grant.digest,
        logins=grant.rights,
        duration=grant.duration,
        heartbeat=created,
        seen=Seen.of(grant, guard),
        ingress=grant.ingress,
        is_suspended=grant.is_suspended,
        approvals=_approvals(facts, (), creator),
    )


def observed(facts: Facts, record: GrantRecord) -> GrantRecord:
    """The record after this look; the same one if nothing counts that it does not have."""
    grant = facts.grant
    changes: dict[str, object] = {}
    if facts.asks_suspension:
        changes["is_suspended"] = True
    if not isinstance(grant, AccessGrant) or grant.digest != record.spec_digest:
        if facts.asks_suspension:  # who takes it back is to be seen
            changes["seen"] = replace(record.seen, is_suspended=True)
        return _changed(record, changes)
    try:
        guard = require_lock(facts.lock).identity
    except CreatorNotProven:
        changes["seen"] = Seen(
            record.seen.guard,
            record.seen.heartbeat,
            record.seen.ingress,
            record.seen.is_suspended or grant.is_suspended,
        )
        return _changed(record, changes)
    before, asked = record.seen, Seen.of(grant, guard)
    same_guard = before.guard == guard
    if same_guard and before.ingress != asked.ingress:
        changes["ingress"] = grant.ingress
    if same_guard and before.is_suspended and not grant.is_suspended:
        changes["is_suspended"] = False
    heartbeat_seen = asked.heartbeat
    if same_guard and (before.heartbeat != asked.heartbeat or facts.keepalive is Keepalive.TAKEN):
        may_count = isinstance(facts.right, Allowed) and facts.time_counts
        if may_count and facts.now >= heartbeat_counts_from(record):
            changes["heartbeat"] = facts.now.replace(microsecond=0)
        else:
            heartbeat_seen = before.heartbeat  # it counts at a later look
    changes["seen"] = Seen(guard, heartbeat_seen, asked.ingress, asked.is_suspended)
    changes["approvals"] = _approvals(facts, record.approvals, record.creator)
    return _changed(record, changes)


def _approvals(facts: Facts, sealed: tuple[SealedApproval, ...], creator: Creator) -> tuple[SealedApproval, ...]:
    """Those to be sealed. While it is not known which there are, those that are sealed stay so, and do not count."""
    if isinstance(facts.approvals, ApprovalsUnknown):
        return sealed
    return newly_sealed(facts.approvals, sealed, facts.lock, creator, facts.approvers)


def heartbeat_counts_from(record: GrantRecord) -> datetime:
    """From when on another heartbeat counts."""
    return next_heartbeat_counts(record.heartbeat, record.created)


def has_waiting_heartbeat(facts: Facts, record: GrantRecord) -> bool:
    """Whether a heartbeat came that does not count yet."""
    grant = facts.grant
    if not isinstance(grant, AccessGrant):
        return False
    return facts.keepalive is Keepalive.TAKEN or Seen.of(grant, record.seen.guard).heartbeat != record.seen.heartbeat


def _changed(record: GrantRecord, changes: dict[str, object]) -> GrantRecord:
    if all(getattr(record, name) == value for name, value in changes.items()):
        return record
    return record.next(**changes)


__all__ = ["first_record", "has_waiting_heartbeat", "heartbeat_counts_from", "observed"]
