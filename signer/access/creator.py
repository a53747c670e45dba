"""Who made a grant or an approval: believed once, while admission proves it, and compared ever after. Pure.

The API server does not write down who creates an object. Admission (policies, or a webhook) makes ``spec.createdBy``
true, and :mod:`signer.access.creator_lock` proves by trial that it does. So an object's creator is believed if
admission was in force when it was created, and is sealed; from then on only the sealed one counts.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from signer.model.access import Creator, StatedCreator
from signer.model.seal import joined

PROPAGATION: Final = timedelta(seconds=2)
"""API servers learn of a new admission policy by a watch: objects that were created sooner after it may have passed."""
IDENTITY_CHARACTERS: Final = 32


@dataclass(frozen=True, slots=True)
class Guard:
    """One object of admission that proves creators: a policy, its binding, or a webhook configuration."""

    name: str
    uid: str
    generation: int
    changed: datetime
    """Its creation, or the last change of what it says."""


@dataclass(frozen=True, slots=True)
class Protected:
    """Admission refuses objects in a foreign name, as a trial has shown."""

    guards: tuple[Guard, ...]
    tried_at: datetime

    @property
    def identity(self) -> str:
        """Differs whenever a guard was replaced or changed."""
        texts = (text for one in self.guards for text in (one.name, one.uid, str(one.generation)))
        return hashlib.sha256(joined(*texts).encode()).hexdigest()[:IDENTITY_CHARACTERS]

    @property
    def since(self) -> datetime:
        """From when on an object's creator is proven."""
        return max(one.changed for one in self.guards) + PROPAGATION


@dataclass(frozen=True, slots=True)
class Unverified:
    """The operator has creators believed without proof (``creatorVerification: Unverified``)."""

    @property
    def identity(self) -> str:
        """The same at all times."""
        return "unverified"


@dataclass(frozen=True, slots=True)
class NotProtected:
    """An object in a foreign name would be accepted, or the guards are not complete."""

    message: str


@dataclass(frozen=True, slots=True)
class ProtectionUnknown:
    """The trial could not be made."""

    message: str


Lock: TypeAlias = Protected | Unverified | NotProtected | ProtectionUnknown
Proof: TypeAlias = Protected | Unverified


class CreatorNotProven(Exception):
    """The creator of an object is not proven. ``is_final``: it never will be."""

    def __init__(self, message: str, *, is_final: bool) -> None:
        super().__init__(message)
        self.is_final = is_final


def prove_creator(stated: StatedCreator, created: datetime, lock: Lock) -> Creator:
    """The creator, to be sealed.

    Raises:
        CreatorNotProven: the object states none; the lock is not proven; or it was changed after the object was made.
    """
    if not isinstance(stated, Creator):
        raise CreatorNotProven("spec.createdBy is missing", is_final=True)
    proof = require_lock(lock)
    if isinstance(proof, Protected) and created <= proof.since:
        raise CreatorNotProven(
            "it was created before the admission policies, or before their last change; create it again", is_final=True
        )
    return stated


def require_lock(lock: Lock) -> Proof:
    """The proof that creators are true now.

    Raises:
        CreatorNotProven: there is none.
    """
    match lock:
        case Protected() | Unverified():
            return lock
        case NotProtected(message) | ProtectionUnknown(message):
            raise CreatorNotProven(message, is_final=False)


def is_same_person(one: Creator, other: Creator) -> bool:
    """Whether two creators are one person, by name or by UID: somebody renamed does not become another person."""
    return one.username == other.username or (one.uid != "" and one.uid == other.uid)


__all__ = [
    "PROPAGATION",
    "CreatorNotProven",
    "Guard",
    "Lock",
    "NotProtected",
    "Proof",
    "Protected",
    "ProtectionUnknown",
    "Unverified",
    "is_same_person",
    "prove_creator",
    "require_lock",
]
