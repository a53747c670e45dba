"""Seals: which AttestedNodes we wrote ourselves, and have not been changed, copied or renamed since.

A seal is ``v1.<key identifier>.<HMAC-SHA256, hexadecimal>`` over the record's namespace, its name and every value of
its spec. It is computed from the parsed record, never from the object's text: what was verified is exactly what is
used afterwards. Not covered are the object's UID, owner references and labels, which ``clusterctl move`` rewrites.

What is sealed must not change for as long as such records live: a later field of a record needs ``v2``.
"""

from __future__ import annotations

import enum
import functools
import hmac
import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from signer.model.record import AttestedNode, BuiltinApproval, JournalEntry

KEY_BYTES: Final = 32
"""Length of a controller key: as long as the output of SHA-256, as RFC 2104 section 3 recommends."""
_VERSION: Final = "v1"
_IDENTIFIER_CHARACTERS: Final = 16
_MAC_CHARACTERS: Final = 64


class InvalidControllerKey(ValueError):
    """A controller key that is not ``KEY_BYTES`` long."""


class KeyUse(enum.Enum):
    """What a subkey is for; no two uses ever share one (RFC 5869 section 3.2, "info")."""

    RECORD = b"node-attestation record v1"
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
    """Why a record does not authenticate."""

    MALFORMED_SEAL = "its seal is not of our form"
    UNKNOWN_KEY = "it was sealed with another controller's key, or with one that was rotated away"
    """Or with one so new that it was not read yet."""
    WRONG_SEAL = "it is not what was sealed, or was not sealed for this place"


@dataclass(frozen=True, slots=True)
class Unauthentic:
    """Not a record of ours as we wrote it: it reserves and approves nothing."""

    fault: Fault


Unsealed: TypeAlias = AttestedNode | Unauthentic


class RecordSeals:
    """Makes and verifies the seals of records under one set of controller keys."""

    def __init__(self, keys: ControllerKeys) -> None:
        subkeys = keys.subkeys(KeyUse.RECORD)
        self._current = subkeys[0]
        # The current one stays in front should both have one identifier.
        self._secrets = {subkey.identifier: subkey.secret for subkey in reversed(subkeys)}

    def seal(self, record: AttestedNode) -> str:
        """``spec.seal`` of that record, under the current key."""
        return f"{_VERSION}.{self._current.identifier}.{_mac(self._current.secret, record)}"

    def unseal(self, record: AttestedNode) -> Unsealed:
        """The record itself, if its seal says that we wrote it, here and under this name. In constant time."""
        version, _, rest = record.seal.partition(".")
        identifier, _, mac = rest.partition(".")
        if version != _VERSION or len(mac) != _MAC_CHARACTERS or not mac.isascii():
            return Unauthentic(Fault.MALFORMED_SEAL)
        secret = self._secrets.get(identifier)
        if secret is None:
            return Unauthentic(Fault.UNKNOWN_KEY)
        if not hmac.compare_digest(_mac(secret, record), mac):
            return Unauthentic(Fault.WRONG_SEAL)
        return record


def _mac(secret: bytes, record: AttestedNode) -> str:
    return hmac.digest(secret, _sealed(record).encode("utf-8"), "sha256").hex()


def _sealed(record: AttestedNode) -> str:
    machine, identity = record.machine, record.identity
    head = (
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
        str(len(record.journal)),
    )
    journal = "".join([_sealed_entry(entry) for entry in record.journal])
    builtin_approvals = "".join([_sealed_approval(approval) for approval in record.builtin_approvals])
    return _joined(*head) + journal + _joined(str(len(record.builtin_approvals))) + builtin_approvals


# All but the newest were sealed and verified before.
@functools.lru_cache(maxsize=1024)
def _sealed_entry(entry: JournalEntry) -> str:
    return _joined(
        entry.csr_name,
        entry.csr_uid,
        entry.spec_digest,
        entry.signer_name,
        entry.requester,
        str(entry.serial_number),
        _seconds(entry.not_before),
        _seconds(entry.not_after),
        entry.ca_cert_hash,
        entry.certificate_digest,
        entry.public_key_digest,
        _seconds(entry.created),
        _seconds(entry.decided),
    )


def _sealed_approval(approval: BuiltinApproval) -> str:
    return _joined(approval.csr_name, approval.csr_uid, approval.spec_digest, _seconds(approval.decided))


def _joined(*texts: str) -> str:
    """Each with its length before it, so that no two records give the same bytes."""
    return "".join([f"{len(text)}:{text}," for text in texts])


# The same times are sealed and verified with each version of their record.
@functools.lru_cache(maxsize=4096)
def _seconds(moment: datetime) -> str:
    """Whole seconds since 1970, as the object keeps them."""
    return str(math.floor(moment.timestamp()))
