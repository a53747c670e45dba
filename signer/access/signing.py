"""Makes the entries of the journal and their certificates. The same entry gives the same bytes."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from attestors.wire.ssh.errors import SSHRefused
from signer.access.parts import HopRequest
from signer.access.plan import NotIssued
from signer.access.record import JournalEntry, content_of
from signer.authority.ssh.authorities import UserAuthority
from signer.authority.ssh.errors import SSHAuthorityRefused
from signer.authority.ssh.requests import Nonce, Serial, UserCertificateRequest
from signer.model.fields import format_time
from signer.model.seal import ControllerKeys, KeyUse

_SIGNING_FAILED: Final = "SigningFailed"


def _random_serial() -> int:
    return secrets.randbelow(2**63 - 1) + 1


@dataclass(frozen=True, slots=True)
class SignedHop:
    """A certificate and its entry."""

    entry: JournalEntry
    line: str = field(repr=False)

    @property
    def status(self) -> dict[str, Any]:
        """For ``status.certificates``."""
        entry = self.entry
        return {
            "hop": entry.hop.value,
            "certificate": self.line,
            "serial": str(entry.serial),
            "keyID": entry.key_id,
            "validBefore": format_time(entry.ends),
        }


def sign_hops(
    requests: Sequence[HopRequest],
    lifetime: timedelta,
    authority: UserAuthority,
    keys: ControllerKeys,
    now: datetime,
    draw: Callable[[], int] = _random_serial,
) -> tuple[SignedHop, ...]:
    """Certificates that begin now, and their entries; nothing leaves before the entries are written.

    Raises:
        NotIssued: the authority refuses.
    """
    issued = now.replace(microsecond=0)
    return tuple(_signed(one, _entry(one, issued, lifetime, authority, draw), authority, keys) for one in requests)


def _entry(
    request: HopRequest, issued: datetime, lifetime: timedelta, authority: UserAuthority, draw: Callable[[], int]
) -> JournalEntry:
    return JournalEntry(
        request.hop,
        draw(),
        issued,
        issued + lifetime,
        str(request.key_id),
        authority.public_key.fingerprint,
        content_of(request),
    )


def _signed(request: HopRequest, entry: JournalEntry, authority: UserAuthority, keys: ControllerKeys) -> SignedHop:
    secret = keys.subkeys(KeyUse.SSH_NONCE)[0].secret
    try:
        signed = authority.sign(
            UserCertificateRequest(
                public_key=request.public_key,
                key_id=request.key_id,
                principals=request.principals,
                serial=Serial(entry.serial),
                nonce=Nonce.of_entry(secret, b"access grant " + entry.canonical),
                now=int(entry.issued.timestamp()),
                lifetime=entry.ends - entry.issued,
                critical_options=request.critical_options,
                extensions=request.extensions,
            )
        )
    except (SSHRefused, SSHAuthorityRefused) as error:
        raise NotIssued(_SIGNING_FAILED, str(error)) from error
    return SignedHop(entry, signed.line)


__all__ = ["SignedHop", "sign_hops"]
