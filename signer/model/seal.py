"""Seals: which objects we wrote ourselves, and have not been changed, copied or renamed since.

A seal is ``v2.<key identifier>.<HMAC-SHA256, hexadecimal>`` over the place of an object and every value of its content.
It is computed from the parsed object, never from the object's text: what was verified is exactly what is used
afterwards. Each kind of object has a subkey of its own (:class:`KeyUse`), so the seal of one kind is never good for
another: :class:`Seals` makes and verifies seals of any kind, :class:`RecordSeals` those of AttestedNodes.

Of an AttestedNode the namespace, the name and all of ``spec`` are sealed. Not covered are the object's UID, owner
references and labels, which ``clusterctl move`` rewrites.

What is sealed must not change for as long as such objects live: a later field of a record needs another use of the key
and another version.
"""

from __future__ import annotations

import enum
import functools
import hmac
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from signer.model.record import AttestedNode
from signer.model.record_object import approval_line, entry_line

KEY_BYTES: Final = 32
"""Length of a controller key: as long as the output of SHA-256, as RFC 2104 section 3 recommends."""
_VERSION: Final = "v2"
_IDENTIFIER_CHARACTERS: Final = 16
_MAC_CHARACTERS: Final = 64


class InvalidControllerKey(ValueError):
    """A controller key that is not ``KEY_BYTES`` long."""


class KeyUse(enum.Enum):
    """What a subkey is for: one use for each kind of object that is sealed, and one for challenges. No two uses ever
    share a subkey (RFC 5869 section 3.2, "info").
    """

    RECORD = b"node-attestation record v2"
    CHALLENGE = b"node-attestation challenge v1"


@dataclass(frozen=True, slots=True)
class Subkey:
    """A key for one use, derived from a controller key."""

    identifier: str
    """Tells generations apart; it says nothing about the key."""
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class NoPreviousKey:
    """The key was never rotated."""


@dataclass(frozen=True, slots=True)
class ControllerKeys:
    """The controller's own key, and the one before it: both are good, the current one makes new seals.

    Raises:
        InvalidControllerKey: a key has another length than ``KEY_BYTES``.
    """

    current: bytes = field(repr=False)
    previous: bytes | NoPreviousKey = field(default_factory=NoPreviousKey, repr=False)

    def __post_init__(self) -> None:
        for key in self._generations():
            if len(key) != KEY_BYTES:
                raise InvalidControllerKey(f"a controller key has {KEY_BYTES} bytes")

    def subkeys(self, use: KeyUse) -> tuple[Subkey, ...]:
        """The subkeys for that use, the current generation's first."""
        return tuple(_subkey(key, use) for key in self._generations())

    def _generations(self) -> tuple[bytes, ...]:
        return (self.current,) if isinstance(self.previous, NoPreviousKey) else (self.current, self.previous)


def _subkey(key: bytes, use: KeyUse) -> Subkey:
    """HKDF-Expand (RFC 5869 section 2.3): one block for the secret, another's beginning for the identifier."""
    secret = hmac.digest(key, use.value + b"\x01", "sha256")
    identifier = hmac.digest(key, use.value + b" identifier\x01", "sha256")
    return Subkey(identifier.hex()[:_IDENTIFIER_CHARACTERS], secret)


class Fault(enum.Enum):
    """Why an object does not authenticate."""

    MALFORMED_SEAL = "its seal is not of our form"
    UNKNOWN_KEY = "it was sealed with another controller's key, or with one that was rotated away"
    """Or with one so new that it was not read yet."""
    WRONG_SEAL = "it is not what was sealed, or was not sealed for this place"


@dataclass(frozen=True, slots=True)
class Unauthentic:
    """Not a record of ours as we wrote it: it reserves and approves nothing."""

    fault: Fault


Unsealed: TypeAlias = AttestedNode | Unauthentic


@dataclass(frozen=True, slots=True)
class Authentic:
    """The seal is ours, and is that content's."""


class Seals:
    """Makes and verifies the seals of one kind of object under one set of controller keys."""

    def __init__(self, keys: ControllerKeys, use: KeyUse) -> None:
        subkeys = keys.subkeys(use)
        self._current = subkeys[0]
        # The current one stays in front should both have one identifier.
        self._secrets = {subkey.identifier: subkey.secret for subkey in reversed(subkeys)}

    def seal(self, content: str) -> str:
        """The seal of that content, under the current key. See :func:`joined`."""
        return f"{_VERSION}.{self._current.identifier}.{_mac(self._current.secret, content)}"

    def verify(self, seal: str, content: Callable[[], str]) -> Authentic | Unauthentic:
        """Whether we sealed exactly that content, of that kind. In constant time."""
        version, _, rest = seal.partition(".")
        identifier, _, mac = rest.partition(".")
        if version != _VERSION or len(mac) != _MAC_CHARACTERS or not mac.isascii():
            return Unauthentic(Fault.MALFORMED_SEAL)
        secret = self._secrets.get(identifier)
        if secret is None:
            return Unauthentic(Fault.UNKNOWN_KEY)
        if not hmac.compare_digest(_mac(secret, content()), mac):
            return Unauthentic(Fault.WRONG_SEAL)
        return Authentic()


class RecordSeals:
    """Makes and verifies the seals of records."""

    def __init__(self, keys: ControllerKeys) -> None:
        self._seals = Seals(keys, KeyUse.RECORD)

    def seal(self, record: AttestedNode) -> str:
        """``spec.seal`` of that record, under the current key."""
        return self._seals.seal(_sealed(record))

    def unseal(self, record: AttestedNode) -> Unsealed:
        """The record itself, if its seal says that we wrote it, here and under this name."""
        verified = self._seals.verify(record.seal, lambda: _sealed(record))
        return record if isinstance(verified, Authentic) else verified


def joined(*texts: str) -> str:
    """Each with its length before it, so that no two contents give the same bytes."""
    return "".join([f"{len(text)}:{text}," for text in texts])


def _mac(secret: bytes, content: str) -> str:
    return hmac.digest(secret, content.encode("utf-8"), "sha256").hex()


def _sealed(record: AttestedNode) -> str:
    """An entry's line says all of the entry, and is in the object already."""
    machine, identity = record.machine, record.identity
    return joined(
        machine.cluster.namespace,
        record.name,
        machine.cluster.name,
        machine.kind,
        machine.name,
        machine.provider_id,
        record.machine_uid,
        record.node_name,
        identity.provider,
        identity.identity,
        identity.security.value,
        _seconds(record.first_attestation),
        _seconds(record.last_attestation),
        _seconds(record.last_not_after),
        _seconds(record.dropped_not_after),
        str(len(record.journal)),
        *map(entry_line, record.journal),
        str(len(record.builtin_approvals)),
        *map(approval_line, record.builtin_approvals),
    )


# The same times are sealed and verified with each version of their record.
@functools.lru_cache(maxsize=4096)
def _seconds(moment: datetime) -> str:
    """Whole seconds since 1970, as the object keeps them."""
    return str(math.floor(moment.timestamp()))
