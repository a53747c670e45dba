"""Approvals by others: n distinct persons, none of them the creator, each for exactly this grant. Pure.

An approval counts if all of this holds: it names the grant's UID and the digest of its spec; its creator is proven and
sealed, as the grant's own; its creator is another person than the grant's; and that person has the right ``approve`` on
every login. A denial by such a person ends the grant.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from signer.access.creator import CreatorNotProven, Lock, is_same_person, prove_creator
from signer.access.right_answers import Allowed, Denied, RightAnswer
from signer.model.access import AccessApproval, AccessGrant, Creator, Decision
from signer.model.seal import joined

MAXIMUM_SEALED: Final = 16
MAXIMUM_CANDIDATES: Final = 64
"""Approvals of one grant that are looked at, oldest first: each may cost a review at the API server."""


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


def candidates(grant: AccessGrant, approvals: Iterable[AccessApproval]) -> tuple[AccessApproval, ...]:
    """The approvals that are about this grant as it is, oldest first. An earlier grant of that name had another UID."""
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
    return tuple(found[:MAXIMUM_CANDIDATES])


def newly_sealed(
    found: Sequence[AccessApproval], sealed: Sequence[SealedApproval], lock: Lock, creator: Creator
) -> tuple[SealedApproval, ...]:
    """The sealed approvals that still exist, and those whose creators are proven now. The creator's own are not kept,
    and a second one of a person takes no place.
    """
    present = {one.metadata.uid: one for one in found}
    kept = [one for one in sealed if one.uid in present]
    known = {one.uid for one in kept}
    for approval in found:
        if approval.metadata.uid in known or len(kept) >= MAXIMUM_SEALED:
            continue
        try:
            person = prove_creator(approval.created_by, approval.metadata.created, lock)
        except CreatorNotProven:
            continue
        if not is_same_person(person, creator):
            kept.append(SealedApproval(approval.metadata.uid, person.username, digest_of_approval(approval)))
    return tuple(kept)


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
    for one in judged:
        person = one.approval.created_by
        if not isinstance(person, Creator) or is_same_person(person, creator):
            continue
        if isinstance(one.right, Denied):
            without_right += 1
        elif not isinstance(one.right, Allowed):
            unknown += 1
        elif one.approval.decision is Decision.DENY:
            return DeniedByPerson(person.username)
        elif not any(is_same_person(person, other) for other in persons):
            persons.append(person)
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
