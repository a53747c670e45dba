"""Approvals by others: n distinct persons, none of them the creator, each for exactly this grant. Pure.

An approval counts if all of this holds: it names the grant's UID and the digest of its spec; its creator is proven and
sealed, as the grant's own; its creator is another person than the grant's; and that person has the right ``approve`` on
every login. A denial by such a person ends the grant.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from signer.access.creator import CreatorNotProven, Lock, is_same_person, prove_creator
from signer.access.right_answers import Allowed, Denied, RightAnswer
from signer.model.access import AccessApproval, AccessGrant, Creator, Decision
from signer.model.seal import joined

MAXIMUM_SEALED: Final = 16
MAXIMUM_CANDIDATES: Final = 64
"""Approvals of one grant that are looked at: each may cost a review at the API server."""


@dataclass(frozen=True, slots=True)
class SealedApproval:
    """An approval whose creator was proven, as the grant's record keeps it."""

    uid: str
    username: str
    digest: str
    """Of everything that the approval says."""


def digest_of_approval(approval: AccessApproval) -> str:
    """SHA-256, hexadecimal, of what an approval says, and of its creator."""
    creator = approval.created_by
    stated = (creator.username, creator.uid, *sorted(creator.groups)) if isinstance(creator, Creator) else ()
    texts = (approval.metadata.uid, approval.grant.name, approval.grant.uid, approval.decision.value)
    return hashlib.sha256(joined(*texts, approval.spec_digest, *stated).encode("utf-8", "surrogatepass")).hexdigest()


def candidates(
    grant: AccessGrant, approvals: Iterable[AccessApproval], sealed: Sequence[SealedApproval] = ()
) -> tuple[AccessApproval, ...]:
    """The approvals that are about this grant as it is. An earlier grant of that name had another UID.

    Anybody who may make approvals may make many: of each person, the last one of each decision counts, besides those
    that are sealed. Sealed ones come first, then denials, then the oldest.
    """
    known = {one.uid for one in sealed}
    found = [
        one
        for one in approvals
        if one.metadata.namespace == grant.metadata.namespace
        and one.grant.name == grant.metadata.name
        and one.grant.uid == grant.metadata.uid
        and one.spec_digest == grant.digest
        and not one.metadata.is_deleted
    ]
    found.sort(key=lambda one: (one.metadata.created, one.metadata.uid))
    last = {(one.created_by, one.decision): one.metadata.uid for one in found}.values()
    kept = [one for one in found if one.metadata.uid in known or one.metadata.uid in last]
    kept.sort(key=lambda one: (one.metadata.uid not in known, one.decision is not Decision.DENY))
    return tuple(kept[:MAXIMUM_CANDIDATES])


def newly_sealed(
    found: Sequence[AccessApproval],
    sealed: Sequence[SealedApproval],
    lock: Lock,
    creator: Creator,
    rights: Mapping[str, RightAnswer],
) -> tuple[SealedApproval, ...]:
    """The sealed approvals that still exist, and those whose creators are proven now, and may approve. The creator's
    own are not kept, and a second one of a person takes no place. A denial always has one.

    ``rights`` are the persons', by UID of the approval: who has none could take all places else.
    """
    present = {one.metadata.uid: one for one in found}
    kept = [one for one in sealed if one.uid in present]
    for approval in found:
        uid, is_denial = approval.metadata.uid, approval.decision is Decision.DENY
        if any(one.uid == uid for one in kept) or not isinstance(rights.get(uid), Allowed):
            continue
        if len(kept) >= MAXIMUM_SEALED and not is_denial:
            continue
        try:
            person = prove_creator(approval.created_by, approval.metadata.created, lock)
        except CreatorNotProven:
            continue
        if is_same_person(person, creator) or _has_said(person, approval.decision, kept, present):
            continue
        one = SealedApproval(uid, person.username, digest_of_approval(approval))
        kept = [*kept[: MAXIMUM_SEALED - 1], one]
    return tuple(kept)


def _has_said(
    person: Creator, decision: Decision, kept: Iterable[SealedApproval], present: Mapping[str, AccessApproval]
) -> bool:
    """Whether an authentic one of those kept is the same word of that person."""
    same = (present[one.uid] for one in kept if digest_of_approval(present[one.uid]) == one.digest)
    return any(
        one.decision is decision and isinstance(one.created_by, Creator) and is_same_person(one.created_by, person)
        for one in same
    )


def authentic(found: Sequence[AccessApproval], sealed: Sequence[SealedApproval]) -> tuple[AccessApproval, ...]:
    """The approvals that are as they were sealed."""
    digests = {one.uid: one.digest for one in sealed}
    return tuple(one for one in found if digests.get(one.metadata.uid) == digest_of_approval(one))


@dataclass(frozen=True, slots=True)
class JudgedApproval:
    """An authentic approval, and whether its creator may approve."""

    approval: AccessApproval
    right: RightAnswer = field(default_factory=Allowed)


@dataclass(frozen=True, slots=True)
class Approved:
    """Enough persons approve."""

    by: tuple[str, ...]
    """Their names, sorted."""


@dataclass(frozen=True, slots=True)
class ApprovalsMissing:
    """Too few persons approve."""

    message: str


@dataclass(frozen=True, slots=True)
class DeniedByPerson:
    """A person who may approve denies the grant."""

    username: str


Tally: TypeAlias = Approved | ApprovalsMissing | DeniedByPerson


def tally(creator: Creator, judged: Sequence[JudgedApproval], required: int) -> Tally:
    """Count what persons say about a grant."""
    persons: list[Creator] = []
    without_right = unknown = 0
    unknown_denial = ""
    for one in judged:
        person = one.approval.created_by
        if not isinstance(person, Creator) or is_same_person(person, creator):
            continue
        if isinstance(one.right, Denied):
            without_right += 1
        elif not isinstance(one.right, Allowed) and one.approval.decision is Decision.DENY:
            unknown_denial = person.username
        elif not isinstance(one.right, Allowed):
            unknown += 1
        elif one.approval.decision is Decision.DENY:
            return DeniedByPerson(person.username)
        elif not any(is_same_person(person, other) for other in persons):
            persons.append(person)
    if unknown_denial:
        return ApprovalsMissing(f"{unknown_denial} denies the grant, and it is not known now whether that person may")
    if len(persons) >= required:
        return Approved(tuple(sorted(one.username for one in persons)))
    message = f"{len(persons)} of {required} approvals"
    if without_right:
        message += f"; {without_right} by persons without the right to approve"
    if unknown:
        message += f"; {unknown} by persons whose right is not known now"
    return ApprovalsMissing(message)


__all__ = [
    "MAXIMUM_CANDIDATES",
    "MAXIMUM_SEALED",
    "ApprovalsMissing",
    "Approved",
    "DeniedByPerson",
    "JudgedApproval",
    "SealedApproval",
    "Tally",
    "authentic",
    "candidates",
    "digest_of_approval",
    "newly_sealed",
    "tally",
]
