"""What to do about a cluster's two SSH authorities, from facts alone. Pure.

They are made once and never overwritten: a Secret that is there and cannot be used stops everything, and is named.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from attestors.wire.node_access import Trust
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import PublicKey
from signer.authority.ssh.authorities import HostAuthority, UserAuthority
from signer.authority.ssh.secret import AuthorityPurpose
from signer.model.cluster import ClusterKey
from signer.model.fields import format_time
from signer.model.seal import Generation, joined
from signer.model.ssh_access import NO_MASTER_SECRET, NoMasterSecret, NoRotationPeriod, SSHSettings
from signer.ssh.available import AvailableAuthorities, NotAvailable, Reason
from signer.ssh.master_secret import DerivedKeys, NotDerived
from signer.ssh.secrets import Absent, HeldAuthority, ReadAuthority, RecordedTrust, Unusable, secret_name


@dataclass(frozen=True, slots=True)
class AuthorityFacts:
    """What is known in one pass."""

    key: ClusterKey
    now: datetime
    wanted: SSHSettings | NotAvailable
    """What the policy asks for, or why policy, operator or Cluster rule it out."""
    user: ReadAuthority
    host: ReadAuthority
    derived: DerivedKeys | NotDerived | NoMasterSecret = NO_MASTER_SECRET


@dataclass(frozen=True, slots=True)
class MakeAuthority:
    """Create the Secret of a new authority."""

    purpose: AuthorityPurpose


@dataclass(frozen=True, slots=True)
class SealAuthority:
    """Seal the Secret with the current controller key: the previous one will not be known for ever."""

    held: HeldAuthority


@dataclass(frozen=True, slots=True)
class RecordTrust:
    """Write the number of the new trust into the user authority's Secret, before anything shows it."""

    held: HeldAuthority
    trust: RecordedTrust


@dataclass(frozen=True, slots=True)
class Offer:
    """The authorities may sign."""

    authorities: AvailableAuthorities


Move: TypeAlias = MakeAuthority | SealAuthority | RecordTrust | Offer | NotAvailable

_ORDER: Final = (AuthorityPurpose.HOST, AuthorityPurpose.USER)
"""The user authority's Secret is made last, and keeps what both are."""


def next_move(facts: AuthorityFacts) -> Move:
    """The next thing to do. Each write is followed by another pass that reads what is there."""
    read = {AuthorityPurpose.HOST: facts.host, AuthorityPurpose.USER: facts.user}
    if isinstance(facts.wanted, NotAvailable):
        kept = [secret_name(facts.key, purpose) for purpose in _ORDER if not isinstance(read[purpose], Absent)]
        text = f"; nothing is signed, and the controller keeps in Secrets: {', '.join(kept)}" if kept else ""
        return NotAvailable(facts.wanted.reason, f"{facts.wanted.message}{text}")
    for purpose in _ORDER:
        found = read[purpose]
        if isinstance(found, Unusable):
            return NotAvailable(found.reason, f"Secret {secret_name(facts.key, purpose)}: {found.message}")
    for purpose in _ORDER:
        if isinstance(read[purpose], Absent):
            return MakeAuthority(purpose)
    host, user = facts.host, facts.user
    assert isinstance(host, HeldAuthority)
    assert isinstance(user, HeldAuthority)
    for held in (host, user):
        if held.sealed_with is Generation.PREVIOUS:
            return SealAuthority(held)
    if isinstance(facts.derived, NotDerived):
        return NotAvailable(Reason.MASTER_SECRET_UNUSABLE, facts.derived.message)
    break_glass = _break_glass(facts.wanted, facts.derived)
    own = {host.authority.public_key, user.authority.public_key}
    for where, key in break_glass.items():
        if key in own:
            return NotAvailable(
                Reason.BREAK_GLASS_KEY_IS_AUTHORITY,
                f"{where} is the key of one of the cluster's own authorities "
                f"({key.fingerprint}), whose certificates would then open every node: remove it",
            )
    return _with_trust(facts.now, tuple(dict.fromkeys(break_glass.values())), user, host)


def _break_glass(wanted: SSHSettings, derived: DerivedKeys | NoMasterSecret) -> dict[str, PublicKey]:
    """The break-glass keys, by the field that each comes from."""
    stated = {
        f"spec.ssh.breakGlass.publicKeys[{position}]": key.public_key
        for position, key in enumerate(wanted.break_glass_keys)
    }
    made = derived.public_keys if isinstance(derived, DerivedKeys) else {}
    return stated | {f"generation {number} of spec.ssh.masterSecretRef": key for number, key in made.items()}


def _with_trust(
    now: datetime, break_glass: tuple[PublicKey, ...], user: HeldAuthority, host: HeldAuthority
) -> RecordTrust | Offer:
    digest = trust_digest(user.authority.public_key, host.authority.public_key, break_glass)
    if not isinstance(user.trust, RecordedTrust):
        return RecordTrust(user, RecordedTrust(int(now.timestamp()), digest))
    if user.trust.digest != digest:
        return RecordTrust(user, RecordedTrust(max(user.trust.version + 1, int(now.timestamp())), digest))
    assert isinstance(user.authority, UserAuthority)
    assert isinstance(host.authority, HostAuthority)
    trust = Trust(
        (user.authority.public_key, *break_glass),
        (host.authority.public_key,),
        user.trust.version,
    )
    return Offer(AvailableAuthorities(user.authority, host.authority, trust, user.created_at, host.created_at))


def trust_digest(user: PublicKey, host: PublicKey, break_glass: tuple[PublicKey, ...]) -> str:
    """SHA-256 over what nodes and clients should trust; the order of break-glass keys means nothing."""
    lines = [key_line(user), key_line(host), *sorted(map(key_line, break_glass))]
    return hashlib.sha256(joined(*lines).encode("utf-8")).hexdigest()


@dataclass(frozen=True, slots=True)
class WithinPeriod:
    """Neither authority is older than the policy's period."""

    message: str


@dataclass(frozen=True, slots=True)
class PeriodPassed:
    """An authority is older. Nothing starts by itself."""

    message: str


@dataclass(frozen=True, slots=True)
class NoPeriod:
    """The policy names none."""


def age(
    authorities: AvailableAuthorities, period: timedelta | NoRotationPeriod, now: datetime
) -> WithinPeriod | PeriodPassed | NoPeriod:
    """Whether the authorities are older than the policy's period."""
    if isinstance(period, NoRotationPeriod):
        return NoPeriod()
    oldest = min(authorities.user_created_at, authorities.host_created_at)
    message = f"the older of the two SSH authorities was made at {format_time(oldest)}, and the period"
    end = oldest + period
    if now < end:
        return WithinPeriod(f"{message} of the policy ends at {format_time(end)}")
    return PeriodPassed(f"{message} of the policy ended at {format_time(end)}: replace the two authorities")
