"""What the authorities are asked to sign."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from attestors.wire.ssh.certificate import FOREVER, NONCE_BYTES
from attestors.wire.ssh.keys import HostKey, PublicKey
from attestors.wire.ssh.options import CriticalOption, Extension
from attestors.wire.ssh.principals import HostPrincipal, UserPrincipal
from signer.authority.ssh.errors import SSHAuthorityReason, SSHAuthorityRefused
from signer.authority.ssh.key_id import KeyID

BACKDATE_SECONDS: Final = 60
"""Certificates begin that much earlier, for hosts whose clock is behind."""
MAXIMUM_USER_LIFETIME: Final = timedelta(hours=1)
ISSUED_EXTENSIONS: Final = frozenset({Extension.PERMIT_PORT_FORWARDING, Extension.PERMIT_PTY})
_SERIAL_BITS: Final = 63


@dataclass(frozen=True, slots=True)
class Serial:
    """A serial number.

    Raises:
        SSHAuthorityRefused: ``SerialInvalid``: not from 1 to 2^63 - 1.
    """

    number: int

    def __post_init__(self) -> None:
        if not 1 <= self.number < 2**_SERIAL_BITS:
            raise SSHAuthorityRefused(
                SSHAuthorityReason.SERIAL_INVALID,
                "a serial number is from 1 to 2^63 - 1: no revocation list can name 0; draw another one",
            )

    @classmethod
    def from_random(cls, random: bytes) -> Serial:
        """The serial number of 63 random bits.

        Raises:
            SSHAuthorityRefused: ``SerialInvalid``: not 8 bytes, or the bits are all zero.
        """
        if len(random) != 8:
            raise SSHAuthorityRefused(SSHAuthorityReason.SERIAL_INVALID, "a serial number takes 8 random bytes")
        return cls(int.from_bytes(random, "big") >> 1)


@dataclass(frozen=True, slots=True)
class Nonce:
    """What makes the signed bytes unpredictable for a requester. The same nonce makes the same certificate.

    Raises:
        SSHAuthorityRefused: ``NonceInvalid``: not 32 bytes.
    """

    value: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.value) != NONCE_BYTES:
            raise SSHAuthorityRefused(SSHAuthorityReason.NONCE_INVALID, f"a nonce has {NONCE_BYTES} bytes")

    @classmethod
    def of_entry(cls, key: bytes, entry: bytes) -> Nonce:
        """The nonce of a journal entry: HMAC-SHA256 under a subkey of the controller key.

        A controller that ended between journal and answer makes the same certificate again.
        """
        return cls(hmac.digest(key, entry, "sha256"))


@dataclass(frozen=True, slots=True)
class AnyClock:
    """A user certificate that counts whatever a host's clock says, so for ever.

    For emergencies, by an authority that is offline, and for a key that is destroyed after the login.
    """


@dataclass(frozen=True, slots=True)
class UserCertificateRequest:
    """A certificate for a person's key.

    Raises:
        SSHAuthorityRefused: ``PrincipalsMissing``, ``ExtensionNotIssued``, or ``LifetimeInvalid``: not from 1 second
            to 1 hour, or for any clock with more than one principal.
    """

    public_key: PublicKey
    key_id: KeyID
    principals: tuple[UserPrincipal, ...]
    serial: Serial
    nonce: Nonce
    now: int
    """Unix time."""
    lifetime: timedelta | AnyClock
    """From ``now``."""
    critical_options: tuple[CriticalOption, ...] = ()
    extensions: tuple[Extension, ...] = ()

    def __post_init__(self) -> None:
        _require_principals(self.principals)
        if not ISSUED_EXTENSIONS.issuperset(self.extensions):
            raise SSHAuthorityRefused(
                SSHAuthorityReason.EXTENSION_NOT_ISSUED,
                "certificates permit a terminal and port forwarding, and nothing else; leave the other extensions out",
            )
        if isinstance(self.lifetime, AnyClock):
            _require_one_principal(self.principals)
        elif not timedelta(seconds=1) <= self.lifetime <= MAXIMUM_USER_LIFETIME:
            raise SSHAuthorityRefused(
                SSHAuthorityReason.LIFETIME_INVALID,
                "a user's certificate lives from 1 second to 1 hour: it ends by itself where no revocation reaches",
            )
        _require_time(self.now)

    @property
    def validity(self) -> tuple[int, int]:
        """Begin and end, in Unix time."""
        return (0, FOREVER) if isinstance(self.lifetime, AnyClock) else _validity(self.now, self.lifetime)


@dataclass(frozen=True, slots=True)
class WithoutEnd:
    """A host certificate that does not end, as in RFC 016."""


@dataclass(frozen=True, slots=True)
class HostCertificateRequest:
    """A certificate for a host's key.

    Raises:
        SSHAuthorityRefused: ``PrincipalsMissing`` or ``LifetimeInvalid``.
    """

    public_key: HostKey
    key_id: KeyID
    principals: tuple[HostPrincipal, ...]
    serial: Serial
    nonce: Nonce
    now: int
    """Unix time."""
    lifetime: timedelta | WithoutEnd
    """From ``now``."""

    def __post_init__(self) -> None:
        _require_principals(self.principals)
        if isinstance(self.lifetime, timedelta) and self.lifetime < timedelta(seconds=1):
            raise SSHAuthorityRefused(
                SSHAuthorityReason.LIFETIME_INVALID, "a host's certificate lives for 1 second or longer"
            )
        _require_time(self.now)

    @property
    def validity(self) -> tuple[int, int]:
        """Begin and end, in Unix time."""
        return _validity(self.now, self.lifetime)


def _validity(now: int, lifetime: timedelta | WithoutEnd) -> tuple[int, int]:
    end = FOREVER if isinstance(lifetime, WithoutEnd) else now + int(lifetime.total_seconds())
    return now - BACKDATE_SECONDS, end


def _require_principals(principals: tuple[UserPrincipal, ...] | tuple[HostPrincipal, ...]) -> None:
    if not principals:
        raise SSHAuthorityRefused(
            SSHAuthorityReason.PRINCIPALS_MISSING,
            "versions of OpenSSH differ on certificates without principals: every login, or none; name one",
        )


def _require_one_principal(principals: tuple[UserPrincipal, ...]) -> None:
    if len(principals) > 1:
        raise SSHAuthorityRefused(
            SSHAuthorityReason.LIFETIME_INVALID,
            "a certificate for any clock never ends, so it is for one login; name one principal",
        )


def _require_time(now: int) -> None:
    if now <= BACKDATE_SECONDS:
        raise SSHAuthorityRefused(SSHAuthorityReason.LIFETIME_INVALID, "the time is before 1970; set the clock")
