"""The authorities that a rotation replaces, and how the rotation names them in its record and in Secrets."""

from __future__ import annotations

import enum
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from signer.authority.successor import AuthorityKind

__all__ = [
    "ROTATION_ID",
    "AuthorityKind",
    "AuthorityReference",
    "NotMade",
    "Role",
    "RotatedAuthority",
    "new_rotation_id",
    "pair_suffix",
]

_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"
_ID_CHARACTERS: Final = 8
ROTATION_ID: Final = re.compile(r"[a-z2-7]{8}", re.ASCII)


class Role(enum.Enum):
    """Which of the two authorities of one kind."""

    OLD = "old"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class AuthorityReference:
    """Identifies one authority without holding it."""

    digest: str
    """SHA-256 of the certificate's DER, or of the public key's where there is no certificate; hexadecimal."""
    public_key_hash: str
    """The discovery hash, ``sha256:<64 lower-case hex>``, by which evidence names it."""
    not_after: datetime


@dataclass(frozen=True, slots=True)
class NotMade:
    """The new authority does not exist yet."""


@dataclass(frozen=True, slots=True)
class RotatedAuthority:
    """One authority of a rotation."""

    kind: AuthorityKind
    old: AuthorityReference
    new: AuthorityReference | NotMade

    @property
    def made(self) -> AuthorityReference:
        """The new authority.

        Raises:
            LookupError: it is not made yet. The steps after ``NewAuthority`` never see that.
        """
        if isinstance(self.new, NotMade):
            raise LookupError(f"the new {self.kind.value} authority is not made yet")
        return self.new

    def of(self, role: Role) -> AuthorityReference:
        """The authority in that role. Raises LookupError like :attr:`made`."""
        return self.old if role is Role.OLD else self.made


def new_rotation_id() -> str:
    """A random name for one rotation: 40 bits, which is part of object names."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(_ID_CHARACTERS))


def pair_suffix(kind: AuthorityKind, rotation_id: str, role: Role) -> str:
    """The suffix of the Secret that keeps one pair during the rotation: ``<cluster>-<suffix>``."""
    own = f"{kind.value}-{rotation_id}"
    return own if role is Role.NEW else f"{own}-old"
