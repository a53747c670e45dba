"""``spec.ssh`` of a policy: SSH to the cluster's nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import parse_key_line
from attestors.wire.ssh.keys import PublicKey
from signer.model.access_policy import NO_ACCESS, AccessRules, NoAccess
from signer.model.addresses import MAXIMUM_NAME_CHARACTERS, is_subdomain

DEFAULT_HOST_CERTIFICATE_DURATION: Final = timedelta(days=30)
MAXIMUM_BREAK_GLASS_KEYS: Final = 8
MAXIMUM_REVOKED: Final = 1000
"""Key ids, and serial numbers."""
MAXIMUM_REVOKED_KEYS: Final = 256
MINIMUM_ROTATION_PERIOD: Final = timedelta(days=1)
MAXIMUM_ROTATION_PERIOD: Final = timedelta(days=3660)
MAXIMUM_MASTER_SECRET_GENERATION: Final = 1_000_000
MAXIMUM_MASTER_SECRET_GENERATIONS: Final = 2
_KEY_ID: Final = re.compile(r"[!-~]{1,1024}")
_SERIAL: Final = re.compile(r"[1-9][0-9]{0,18}")
"""Every number of 19 digits fits 64 bits."""
_COMMENT: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,256}")


class InvalidBreakGlassKeys(ValueError):
    """The list is invalid. The message continues a field's path, and never quotes a key."""


class InvalidRevocations(ValueError):
    """``spec.ssh.revoked`` is invalid. The message continues that path, and never quotes a value."""


@dataclass(frozen=True, slots=True)
class BreakGlassKey:
    """The public key of a user authority whose private key is nowhere online.

    Raises:
        InvalidBreakGlassKeys: ``key`` is not a line ``type base64``.
    """

    key: str
    """As in the policy: audit lines hold policies, and a line has one reading."""
    comment: str = ""
    """For people. Nothing depends on it."""

    def __post_init__(self) -> None:
        try:
            parse_key_line(self.key)
        except SSHRefused as error:
            raise InvalidBreakGlassKeys(f".key: {error}") from error

    @property
    def public_key(self) -> PublicKey:
        """The key, parsed."""
        return parse_key_line(self.key)


class InvalidMasterSecretReference(ValueError):
    """The reference is invalid. The message continues a field's path."""


@dataclass(frozen=True, slots=True)
class MasterSecretReference:
    """RFC 016 literally: a Secret in the Cluster's namespace holds the master secret of a break-glass authority."""

    name: str
    generations: tuple[int, ...] = (0,)
    """Which of the authorities that the secret makes, 0 being the RFC's. Two while one replaces another."""


@dataclass(frozen=True, slots=True)
class NoMasterSecret:
    """The policy names none, so no break-glass authority is online."""


NO_MASTER_SECRET: Final = NoMasterSecret()


@dataclass(frozen=True, slots=True)
class NoRotationPeriod:
    """The policy names no period after which the authorities should be replaced."""


@dataclass(frozen=True, slots=True)
class RevokedByPolicy:
    """What nodes are to refuse. Key ids and serial numbers count for certificates of every authority.

    Raises:
        InvalidRevocations: an entry is not of its form.
    """

    key_ids: tuple[str, ...] = ()
    serials: tuple[str, ...] = ()
    """Decimal: JSON numbers do not hold 64 bits."""
    public_keys: tuple[str, ...] = ()
    """Lines ``type base64``, of users' keys or of authorities."""

    def __post_init__(self) -> None:
        for index, key_id in enumerate(self.key_ids):
            if _KEY_ID.fullmatch(key_id) is None:
                raise InvalidRevocations(f".keyIDs[{index}] must have 1 to 1024 printable ASCII characters, no spaces")
        for index, serial in enumerate(self.serials):
            if _SERIAL.fullmatch(serial) is None:
                raise InvalidRevocations(f".serials[{index}] must be a number of at most 19 digits, as a string, not 0")
        for index, line in enumerate(self.public_keys):
            try:
                parse_key_line(line)
            except SSHRefused as error:
                raise InvalidRevocations(f".publicKeys[{index}]: {error}") from error


@dataclass(frozen=True, slots=True)
class SSHSettings:
    """The policy turns SSH on."""

    host_certificate_duration: timedelta
    break_glass_keys: tuple[BreakGlassKey, ...]
    """At most ``MAXIMUM_BREAK_GLASS_KEYS``, each once."""
    rotation_period: timedelta | NoRotationPeriod
    master_secret: MasterSecretReference | NoMasterSecret = NO_MASTER_SECRET
    revoked: RevokedByPolicy = field(default_factory=RevokedByPolicy)
    access: AccessRules | NoAccess = NO_ACCESS
    """Whether people may ask for access by AccessGrants."""


@dataclass(frozen=True, slots=True)
class SSHOff:
    """The policy does not turn SSH on."""


SSH_OFF: Final = SSHOff()


def parse_break_glass_keys(value: Any) -> tuple[BreakGlassKey, ...]:
    """Parse ``spec.ssh.breakGlass.publicKeys``; empty for None.

    Raises:
        InvalidBreakGlassKeys: it is no list, or too long; a key is not one line ``type base64``, or is there twice; a
            comment is too long or holds control characters.
    """
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAXIMUM_BREAK_GLASS_KEYS:
        raise InvalidBreakGlassKeys(f" must be a list of at most {MAXIMUM_BREAK_GLASS_KEYS}")
    found: list[BreakGlassKey] = []
    for index, item in enumerate(value):
        one = _key(f"[{index}]", item)
        if one.public_key in {other.public_key for other in found}:
            raise InvalidBreakGlassKeys(f"[{index}].key is there twice")
        found.append(one)
    return tuple(found)


def parse_master_secret_reference(value: Any) -> MasterSecretReference | NoMasterSecret:
    """Parse ``spec.ssh.masterSecretRef``.

    Raises:
        InvalidMasterSecretReference: the name is none of a Secret, or the generation is out of range.
    """
    if value is None:
        return NO_MASTER_SECRET
    name, stated = (value.get("name"), value.get("generations")) if isinstance(value, dict) else (None, None)
    if not isinstance(name, str) or not is_subdomain(name) or len(name) > MAXIMUM_NAME_CHARACTERS:
        raise InvalidMasterSecretReference(".name must be the name of a Secret in the policy's namespace")
    if stated is None:
        return MasterSecretReference(name)
    if (
        not isinstance(stated, list)
        or not 1 <= len(stated) <= MAXIMUM_MASTER_SECRET_GENERATIONS
        or any(type(one) is not int or not 0 <= one <= MAXIMUM_MASTER_SECRET_GENERATION for one in stated)
        or len(set(stated)) < len(stated)
    ):
        raise InvalidMasterSecretReference(
            f".generations must be one or two different numbers from 0 to {MAXIMUM_MASTER_SECRET_GENERATION}"
        )
    return MasterSecretReference(name, tuple(stated))


def parse_revoked(value: Mapping[str, Any]) -> RevokedByPolicy:
    """Parse ``spec.ssh.revoked``.

    Raises:
        InvalidRevocations: a list is none, or too long; an entry is not of its form, or is there twice.
    """
    return RevokedByPolicy(
        _revoked(value, "keyIDs", MAXIMUM_REVOKED),
        _revoked(value, "serials", MAXIMUM_REVOKED),
        _revoked(value, "publicKeys", MAXIMUM_REVOKED_KEYS),
    )


def _revoked(value: Mapping[str, Any], name: str, maximum: int) -> tuple[str, ...]:
    found = value.get(name)
    if found is None:
        return ()
    if not isinstance(found, list) or len(found) > maximum or not all(isinstance(one, str) for one in found):
        raise InvalidRevocations(f".{name} must be a list of at most {maximum} strings")
    if len(set(found)) < len(found):
        raise InvalidRevocations(f".{name} has an entry twice")
    return tuple(found)


def _key(path: str, item: Any) -> BreakGlassKey:
    line = item.get("key") if isinstance(item, dict) else None
    if not isinstance(line, str):
        raise InvalidBreakGlassKeys(f"{path}.key is missing: write the public key as `type base64`")
    comment = item.get("comment")
    if comment is not None and (not isinstance(comment, str) or _COMMENT.fullmatch(comment) is None):
        raise InvalidBreakGlassKeys(f"{path}.comment must be one line of at most 256 characters")
    try:
        return BreakGlassKey(line, comment or "")
    except InvalidBreakGlassKeys as error:
        raise InvalidBreakGlassKeys(f"{path}{error}") from error


__all__ = [
    "DEFAULT_HOST_CERTIFICATE_DURATION",
    "MAXIMUM_BREAK_GLASS_KEYS",
    "MAXIMUM_MASTER_SECRET_GENERATION",
    "MAXIMUM_MASTER_SECRET_GENERATIONS",
    "MAXIMUM_REVOKED",
    "MAXIMUM_REVOKED_KEYS",
    "MAXIMUM_ROTATION_PERIOD",
    "MINIMUM_ROTATION_PERIOD",
    "NO_MASTER_SECRET",
    "SSH_OFF",
    "BreakGlassKey",
    "InvalidBreakGlassKeys",
    "InvalidMasterSecretReference",
    "MasterSecretReference",
    "NoMasterSecret",
    "InvalidRevocations",
    "NoRotationPeriod",
    "RevokedByPolicy",
    "SSHOff",
    "SSHSettings",
    "parse_break_glass_keys",
    "parse_master_secret_reference",
    "parse_revoked",
]
