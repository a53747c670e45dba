"""Seals prove that the controller wrote an object, and that it was not changed, copied or renamed since.

A seal is ``v2.<key identifier>.<HMAC-SHA256, hexadecimal>`` over an object's place and every value of its content. It
is computed from the parsed object, never from the object's text, so the verified values are exactly those that are
used.
Each kind of object has its own subkey (:class:`KeyUse`), so a seal of one kind is never valid for another.
:class:`Seals` makes and verifies seals of any kind, :class:`RecordSeals` those of AttestedNodes.

The seal of an AttestedNode covers the namespace, the name and all of ``spec``. It does not cover the object's UID,
owner references and labels, which ``clusterctl move`` rewrites.

The sealed content must not change while such objects exist: a new field of a record needs another use of the key and
another version.
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

from signer.model.host_keys import AttestedHostKeys, FormerHostCertificates, NoHostKeys, ReportedTrust
from signer.model.record import AttestedNode
from signer.model.record_object import CLAIM, approval_line, entry_line

KEY_BYTES: Final = 32
"""Length of a controller key: as long as the output of SHA-256, as RFC 2104 section 3 recommends."""
SECRET_NAME: Final = "node-attestation-controller-key"  # noqa: S105 - the name of a Secret
"""Of the Secret in the controller's namespace that holds the controller keys."""
_VERSION: Final = "v2"
_IDENTIFIER_CHARACTERS: Final = 16
_MAC_CHARACTERS: Final = 64


class InvalidControllerKey(ValueError):
    """A controller key is not ``KEY_BYTES`` long."""


class KeyUse(enum.Enum):
    """The uses of subkeys: one for each kind of sealed object, and one each for challenges, statements and
    nonces. No two uses
    share a subkey (RFC 5869 section 3.2, "info").
    """

    RECORD = b"node-attestation record v2"
    CHALLENGE = b"node-attestation challenge v1"
    ROTATION = b"node-attestation rotation v1"
    """The state of a rotation of certificate authorities."""
    ROTATION_PAIR = b"node-attestation rotation pair v1"
    """The Secrets with the pairs that a rotation keeps."""
    STATEMENT = b"node-attestation statement v1"
    SSH_NONCE = b"node-attestation SSH nonce v1"
    """Nonces of SSH certificates: one journal entry has one."""
    SSH_AUTHORITY = b"node-attestation SSH authority v1"
    """The Secrets of a cluster's SSH authorities."""
    ACCESS_GRANT = b"node-attestation access grant v1"
    """The records of AccessGrants, in their status."""
    ACCESS_REVOCATIONS = b"node-attestation access revocations v1"
    """The ConfigMaps with the key ids of grants that ended."""
    APPROVAL = b"node-attestation approval v1"
    """The controller's approvals of CSRs, in an annotation."""
    REMOVED_BINDINGS = b"node-attestation removed bindings v1"
    """The ConfigMaps with the bindings that Enforce removed."""
    AUDIT_LINE = b"node-attestation audit line v1"
    AUDIT_HEAD = b"node-attestation audit head v1"
    """The published ends of audit logs."""
    RESERVATION = b"node-attestation reservation v1"
    AUTHORITIES = b"node-attestation authorities v1"
    """The hashes of a cluster's CAs, in the status of its policy."""


@dataclass(frozen=True, slots=True)
class Subkey:
    """A key for one use, derived from a controller key."""

    identifier: str
    """Distinguishes generations of the key. It reveals nothing about the key."""
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class NoPreviousKey:
    """The key was never rotated."""


@dataclass(frozen=True, slots=True)
class ControllerKeys:
    """The controller key and the previous one. Both verify seals; the current one makes new seals.

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
        """The subkeys for that use, that of the current key first."""
        return tuple(_subkey(key, use) for key in self._generations())

    def _generations(self) -> tuple[bytes, ...]:
        return (self.current,) if isinstance(self.previous, NoPreviousKey) else (self.current, self.previous)


def _subkey(key: bytes, use: KeyUse) -> Subkey:
    """HKDF-Expand (RFC 5869 section 2.3): one block for the secret, the beginning of another for the identifier."""
    secret = hmac.digest(key, use.value + b"\x01", "sha256")
    identifier = hmac.digest(key, use.value + b" identifier\x01", "sha256")
    return Subkey(identifier.hex()[:_IDENTIFIER_CHARACTERS], secret)


class Fault(enum.Enum):
    """Why an object does not authenticate."""

    MALFORMED_SEAL = "its seal is malformed"
    UNKNOWN_KEY = "it was sealed with the key of another controller, or with one that is no longer in use"
    """The key may also be so new that the controller has not read it yet."""
    WRONG_SEAL = "its content or place is not what was sealed"


@dataclass(frozen=True, slots=True)
class Unauthentic:
    """The object is not as the controller wrote it. It does not count."""

    fault: Fault


Unsealed: TypeAlias = AttestedNode | Unauthentic


class Generation(enum.Enum):
    """Which of the controller's keys made a seal."""

    CURRENT = "current"
    PREVIOUS = "previous"
    """The seal counts until this key is replaced, so what must count longer is sealed anew before."""


@dataclass(frozen=True, slots=True)
class Authentic:
    """The controller made the seal for that content."""

    generation: Generation = Generation.CURRENT


def key_identifier_of(seal: str) -> str:
    """The identifier of the key that a seal names, as its writer claims; empty if it names none."""
    version, _, rest = seal.partition(".")
    identifier = rest.partition(".")[0]
    return identifier if version == _VERSION and len(identifier) == _IDENTIFIER_CHARACTERS else ""


class Seals:
    """Makes and verifies the seals of one kind of object under one set of controller keys."""

    def __init__(self, keys: ControllerKeys, use: KeyUse) -> None:
        subkeys = keys.subkeys(use)
        self._current = subkeys[0]
        # The current key takes precedence if both have the same identifier.
        self._secrets = {subkey.identifier: subkey.secret for subkey in reversed(subkeys)}

    @property
    def key_identifier(self) -> str:
        """Of the current key; it reveals nothing about it."""
        return self._current.identifier

    def seal(self, content: str) -> str:
        """The seal of that content with the current key. See :func:`joined`."""
        return f"{_VERSION}.{self._current.identifier}.{_mac(self._current.secret, content)}"

    def verify(self, seal: str, content: Callable[[], str]) -> Authentic | Unauthentic:
        """Whether the controller sealed exactly that content. The comparison takes constant time."""
        version, _, rest = seal.partition(".")
        identifier, _, mac = rest.partition(".")
        if version != _VERSION or len(mac) != _MAC_CHARACTERS or not mac.isascii():
            return Unauthentic(Fault.MALFORMED_SEAL)
        secret = self._secrets.get(identifier)
        if secret is None:
            return Unauthentic(Fault.UNKNOWN_KEY)
        if not hmac.compare_digest(_mac(secret, content()), mac):
            return Unauthentic(Fault.WRONG_SEAL)
        return Authentic(Generation.CURRENT if identifier == self._current.identifier else Generation.PREVIOUS)


class RecordSeals:
    """Makes and verifies the seals of records."""

    def __init__(self, keys: ControllerKeys) -> None:
        self._seals = Seals(keys, KeyUse.RECORD)

    def seal(self, record: AttestedNode) -> str:
        """``spec.seal`` of that record with the current key."""
        return self._seals.seal(_sealed(record))

    def unseal(self, record: AttestedNode) -> Unsealed:
        """The record, if its seal is valid for its content, namespace and name."""
        verified = self._seals.verify(record.seal, lambda: _sealed(record))
        return record if isinstance(verified, Authentic) else verified


def joined(*texts: str) -> str:
    """The texts, each with its length before it, so that different contents give different results."""
    return "".join([f"{len(text)}:{text}," for text in texts])


def _mac(secret: bytes, content: str) -> str:
    return hmac.digest(secret, content.encode("utf-8"), "sha256").hex()


def _sealed(record: AttestedNode) -> str:
    """The sealed content. An entry's line has all of the entry."""
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
        *((CLAIM,) if machine.is_claimed else ()),  # by record.machine_uid
        *((_sealed_host_keys(record.ssh),) if not isinstance(record.ssh, NoHostKeys) else ()),
    )


def _sealed_host_keys(ssh: AttestedHostKeys | ReportedTrust) -> str:
    """One text, which differs from ``CLAIM``, whatever is in it."""
    if isinstance(ssh, ReportedTrust):
        return joined("ssh trust", str(ssh.trust_version), _seconds(ssh.attested))
    former = ssh.former
    return joined(
        "ssh",
        str(ssh.trust_version),
        _seconds(ssh.attested),
        str(len(ssh.host_keys)),
        *(text for one in ssh.host_keys for text in (one.public_key, str(one.serial_number))),
        str(len(ssh.principals)),
        *ssh.principals,
        _seconds(ssh.not_before),
        _seconds(ssh.not_after),
        ssh.authority,
        ssh.nonce_key,
        *((former.authority, _seconds(former.not_after)) if isinstance(former, FormerHostCertificates) else ()),
    )


# Each version of a record repeats most of its times.
@functools.lru_cache(maxsize=4096)
def _seconds(moment: datetime) -> str:
    """Whole seconds since 1970: the object has no fractions."""
    return str(math.floor(moment.timestamp()))
