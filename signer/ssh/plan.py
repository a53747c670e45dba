"""What to do about a cluster's two SSH authorities, from facts alone. Pure.

They are made once, and replaced by an order alone (:mod:`.orders`, :mod:`.rotation_plan`): a Secret that is there and
cannot be used stops everything, and is named. Trust is recorded before it is shown, and a rotation goes on only by the
trust that is recorded.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from attestors.wire.node_access import Trust
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import HostKey, PublicKey
from signer.authority.ssh.authorities import HostAuthority, UserAuthority
from signer.authority.ssh.secret import AuthorityPurpose
from signer.model.cluster import ClusterKey
from signer.model.fields import format_time
from signer.model.seal import Generation, joined
from signer.model.ssh_access import NO_MASTER_SECRET, NoMasterSecret, NoRotationPeriod, SSHSettings
from signer.ssh.available import AvailableAuthorities, NotAvailable, Reason
from signer.ssh.master_secret import DerivedKeys, NotDerived
from signer.ssh.reports import NotReported, Reports
from signer.ssh.rotation_plan import Next, Nodes, Progress, Skips, asks_nodes, progress
from signer.ssh.secrets import (
    Absent,
    Change,
    HeldAuthority,
    ReadAuthority,
    RecordedTrust,
    Unusable,
    secret_name,
)


@dataclass(frozen=True, slots=True)
class AuthorityFacts:
    """What is known in one pass."""

    key: ClusterKey
    now: datetime
    wanted: SSHSettings | NotAvailable
    """What the policy asks for, or why policy, operator or Cluster rule it out."""
    user: ReadAuthority
    host: ReadAuthority
    reports: Reports | NotReported
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
class Rotate:
    """Make the change that comes next in the rotation of one authority."""

    held: HeldAuthority
    change: Change
    skips: Skips


@dataclass(frozen=True, slots=True)
class Offer:
    """The authorities may sign."""

    authorities: AvailableAuthorities
    user: HeldAuthority
    host: HeldAuthority
    user_progress: Progress
    host_progress: Progress


Move: TypeAlias = MakeAuthority | SealAuthority | RecordTrust | Rotate | Offer | NotAvailable

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
    own = {one.public_key for held in (host, user) for one in held.trusted}
    for where, key in break_glass.items():
        if key in own:
            return NotAvailable(
                Reason.BREAK_GLASS_KEY_IS_AUTHORITY,
                f"{where} is the key of one of the cluster's own authorities "
                f"({key.fingerprint}), whose certificates would then open every node: remove it",
            )
    return _with_trust(facts, tuple(dict.fromkeys(break_glass.values())), user, host)


def _break_glass(wanted: SSHSettings, derived: DerivedKeys | NoMasterSecret) -> dict[str, PublicKey]:
    """The break-glass keys, by the field that each comes from."""
    stated = {
        f"spec.ssh.breakGlass.publicKeys[{position}]": key.public_key
        for position, key in enumerate(wanted.break_glass_keys)
    }
    made = derived.public_keys if isinstance(derived, DerivedKeys) else {}
    return stated | {f"generation {number} of spec.ssh.masterSecretRef": key for number, key in made.items()}


def _with_trust(
    facts: AuthorityFacts, break_glass: tuple[PublicKey, ...], user: HeldAuthority, host: HeldAuthority
) -> RecordTrust | Rotate | Offer:
    users, hosts = _public_keys(user), _public_keys(host)
    digest, seconds = trust_digest(users, hosts, break_glass), int(facts.now.timestamp())
    version = user.trust.version if isinstance(user.trust, RecordedTrust) else 0
    raised = facts.reports.version_after(version, facts.now) if isinstance(facts.reports, Reports) else version
    if not isinstance(user.trust, RecordedTrust):
        return RecordTrust(user, RecordedTrust(max(seconds, raised), digest))
    if user.trust.digest != digest:
        return RecordTrust(user, RecordedTrust(max(version + 1, raised, seconds), digest))
    if raised > version:
        return RecordTrust(user, RecordedTrust(raised, digest))
    nodes = Nodes(facts.now, version, facts.reports)
    user_progress, host_progress = progress(user, nodes), progress(host, nodes)
    for held, found in ((host, host_progress), (user, user_progress)):
        if isinstance(found, Next):
            return Rotate(held, found.change, found.skips)
    assert isinstance(user.authority, UserAuthority)
    assert isinstance(host.authority, HostAuthority)
    authorities = AvailableAuthorities(
        user.authority,
        host.authority,
        Trust((*users, *break_glass), hosts, version),
        user.created_at,
        host.created_at,
        version if asks_nodes(user) or asks_nodes(host) else 0,
    )
    return Offer(authorities, user, host, user_progress, host_progress)


def break_glass_replaced(before: Offer, after: Offer) -> bool:
    """Whether no break-glass key is in both, and there were some in each. They rotate by generation: a node trusts old
    and new for a while. It is not known after a restart of the controller.
    """
    former, present = _break_glass_of(before), _break_glass_of(after)
    return bool(former) and bool(present) and not former & present


def _break_glass_of(offer: Offer) -> set[PublicKey]:
    return set(offer.authorities.trust.user_authorities) - set(_public_keys(offer.user))


def _public_keys(held: HeldAuthority) -> tuple[HostKey, ...]:
    return tuple(one.public_key for one in held.trusted)


def trust_digest(users: tuple[PublicKey, ...], hosts: tuple[PublicKey, ...], break_glass: tuple[PublicKey, ...]) -> str:
    """SHA-256 over what nodes and clients should trust. Of the host authorities, the first one signs: nodes have their
    certificates renewed when that changes. Other orders mean nothing.
    """
    parts = (sorted(map(key_line, users)), list(map(key_line, hosts)), sorted(map(key_line, break_glass)))
    return hashlib.sha256(joined(*(joined(*lines) for lines in parts)).encode("utf-8")).hexdigest()


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
