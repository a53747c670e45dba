"""What the world must hold at each step. Pure: a table by step, and the writes that are missing.

Writes name roles instead of bytes, so that no key passes through here. The writer takes the bytes from the rotation's
own Secrets, whose digests the record seals.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias

from signer.rotation.authorities import AuthorityKind, NotMade, Role, RotatedAuthority
from signer.rotation.facts import (
    Absent,
    AuthenticationFacts,
    Bundle,
    Facts,
    HeldPair,
    KubeconfigFacts,
    Link,
    SignedByKnown,
    SigningFacts,
    TrustFacts,
)
from signer.rotation.phases import SigningPairs, Step, TakesBack
from signer.rotation.record import RotationRecord

Roles: TypeAlias = tuple[Role, ...]

OLD_ONLY: Final[Roles] = (Role.OLD,)
NEW_ONLY: Final[Roles] = (Role.NEW,)
OLD_FIRST: Final[Roles] = (Role.OLD, Role.NEW)
NEW_FIRST: Final[Roles] = (Role.NEW, Role.OLD)


@dataclass(frozen=True, slots=True)
class SecretContents:
    """What the Secret of an authority holds."""

    certificates: Roles
    key: Role


@dataclass(frozen=True, slots=True)
class Published:
    """What everything that carries trust holds at one step."""

    client: Roles
    """CAs of clients, for API servers and kubelets."""
    server: Roles
    """CAs of servers, for every client; kubelets take the first for the cluster's."""
    kubeconfig: Roles
    kubeconfig_client: Role
    link: Link


_BEFORE: Final = Published(OLD_ONLY, OLD_ONLY, OLD_ONLY, Role.OLD, Link.NONE)
_BOTH: Final = Published(OLD_FIRST, NEW_FIRST, OLD_FIRST, Role.OLD, Link.OLD_WITH_NEW)
_SWITCHED: Final = Published(OLD_FIRST, NEW_FIRST, NEW_FIRST, Role.NEW, Link.NONE)
_SWITCHED_LINKED: Final = Published(OLD_FIRST, NEW_FIRST, NEW_FIRST, Role.NEW, Link.NEW_WITH_OLD)
_BACK: Final = Published(OLD_FIRST, OLD_FIRST, OLD_FIRST, Role.OLD, Link.OLD_WITH_NEW)
_AFTER: Final = Published(NEW_ONLY, NEW_ONLY, NEW_ONLY, Role.NEW, Link.NONE)


def published(record: RotationRecord) -> Published:
    """What is published at the record's step."""
    step = record.step
    if record.goes_back:
        if isinstance(record.held_at, Step):  # clients only: the API servers keep what they have
            return _switched(record)
        return _BEFORE if step in (Step.WITHDRAW_TRUST, Step.DISCARD_NEW) else _BACK
    if not step.is_at_least(Step.PUBLISH_TRUST):
        return _BEFORE
    if not step.is_at_least(Step.SWITCH):
        return _BOTH
    return _AFTER if step.is_at_least(Step.DROP_OLD) else _switched(record)


def _switched(record: RotationRecord) -> Published:
    return _SWITCHED_LINKED if record.takes_back is TakesBack.LINKED else _SWITCHED


@dataclass(frozen=True, slots=True)
class Signing:
    """Which CA signs what, and which evidence may name."""

    client: Role
    serving: Role
    accepted: frozenset[Role]
    """CAs that evidence may name; it waits if it names the other."""


BOTH: Final = frozenset(Role)


@dataclass(frozen=True, slots=True)
class AsBefore:
    """Secret ``<cluster>-ca`` alone decides, as without a rotation."""


def signing(record: RotationRecord) -> Signing | AsBefore:
    """Who signs at the record's step."""
    step = record.step
    if record.phase.is_over or any(isinstance(authority.new, NotMade) for authority in record.authorities):
        return AsBefore()
    if record.goes_back:
        serving = Role.NEW if isinstance(record.held_at, Step) and _signs_serving(record.held_at) else Role.OLD
        return Signing(Role.OLD, serving, BOTH)
    if step is Step.NEW_AUTHORITY:
        return AsBefore()
    client = Role.NEW if step.is_at_least(Step.SIGN_CLIENTS) else Role.OLD
    serving = Role.NEW if _signs_serving(step) else Role.OLD
    accepted = frozenset({Role.NEW}) if step.is_at_least(Step.RETIRE_OLD) else BOTH
    return Signing(client, serving, accepted)


def _signs_serving(step: Step) -> bool:
    return step.is_at_least(Step.SIGN_SERVING)


def contents(record: RotationRecord, kind: AuthorityKind) -> SecretContents:
    """What Secret ``<cluster>-<suffix>`` holds. That of the cluster's CA is never a bundle.

    kube-controller-manager exits when it reads two certificates, and kubeadm writes the first alone into kubeconfigs.
    """
    step, single = record.step, kind is AuthorityKind.CLUSTER
    if record.goes_back:
        if isinstance(record.held_at, Step):  # clients only: the Secrets keep what they have
            return SecretContents(NEW_ONLY if single else NEW_FIRST, Role.NEW)
        if step in (Step.WITHDRAW_TRUST, Step.DISCARD_NEW):
            return SecretContents(OLD_ONLY, Role.OLD)
        return SecretContents(OLD_ONLY if single else OLD_FIRST, Role.OLD)
    if not step.is_at_least(Step.PUBLISH_TRUST):
        return SecretContents(OLD_ONLY, Role.OLD)
    if not step.is_at_least(Step.SWITCH):
        return SecretContents(OLD_ONLY if single else OLD_FIRST, Role.OLD)
    drops = step.is_at_least(Step.DROP_OLD) and kind is not AuthorityKind.SERVICE_ACCOUNT
    return SecretContents(NEW_ONLY if single or drops else NEW_FIRST, Role.NEW)


@dataclass(frozen=True, slots=True)
class SplitPairs:
    """What Secret ``<cluster>-signing`` holds: a pair for each of the two purposes."""

    client: Role
    serving: Role


def split_pairs(record: RotationRecord) -> SplitPairs:
    """What kube-controller-managers sign with that start now, where the rotation has split pairs.

    Serving certificates are by the new CA from the rollout of ``ServersPresent`` on, as with one pair: that of
    ``DropOld`` would come too late for those that trust the new CA alone by then.
    """
    if record.goes_back:
        role = Role.NEW if isinstance(record.held_at, Step) else Role.OLD  # clients only: they keep what they have
        return SplitPairs(role, role)
    client = Role.NEW if record.step.is_at_least(Step.CONTROLLER_MANAGERS_SIGN) else Role.OLD
    return SplitPairs(client, Role.NEW if record.step.is_at_least(Step.SWITCH) else Role.OLD)


# The writes


@dataclass(frozen=True, slots=True)
class KeepPair:
    """Create the rotation's own Secret for one pair: a new authority, or a copy of the old one."""

    kind: AuthorityKind
    role: Role


@dataclass(frozen=True, slots=True)
class SealPair:
    """Seal the rotation's own Secret for one pair with the controller's current key."""

    kind: AuthorityKind
    role: Role


@dataclass(frozen=True, slots=True)
class WriteAuthority:
    """Write the Secret of an authority."""

    kind: AuthorityKind
    contents: SecretContents


@dataclass(frozen=True, slots=True)
class WriteTrust:
    """Write Secret ``<cluster>-trust``."""

    client: Roles
    server: Roles
    link: Link


@dataclass(frozen=True, slots=True)
class WriteSigning:
    """Write Secret ``<cluster>-signing``."""

    pairs: SplitPairs


@dataclass(frozen=True, slots=True)
class WriteKubeconfig:
    """Write Secret ``<cluster>-kubeconfig``: CAs, and a client certificate by one of them."""

    authorities: Roles
    client: Role


@dataclass(frozen=True, slots=True)
class WriteClusterInfo:
    """Write the CAs in ConfigMap ``kube-public/cluster-info`` of the workload cluster."""

    authorities: Roles


@dataclass(frozen=True, slots=True)
class WritePins:
    """Write the pins in the KubeadmConfig of a MachinePool."""

    name: str
    authorities: Roles


@dataclass(frozen=True, slots=True)
class PruneAuthentication:
    """Remove the old CAs from ``extension-apiserver-authentication``."""


@dataclass(frozen=True, slots=True)
class DeleteKey:
    """Delete the key in one of the rotation's own Secrets; the certificate stays."""

    kind: AuthorityKind
    role: Role


Write: TypeAlias = (
    KeepPair
    | SealPair
    | WriteAuthority
    | WriteTrust
    | WriteSigning
    | WriteKubeconfig
    | WriteClusterInfo
    | WritePins
    | PruneAuthentication
    | DeleteKey
)


def missing_writes(record: RotationRecord, facts: Facts) -> Iterator[Write]:
    """The writes that are missing at the record's step, in the order in which they are safe.

    What cannot be observed is not written: the step's proof names it.
    """
    for authority in record.authorities:
        for role in sorted(facts.authorities[authority.kind].sealed_before, key=lambda one: one.value):
            yield SealPair(authority.kind, role)
    if not record.goes_back:
        for authority in record.authorities:
            yield from _pairs(authority, facts)
    if any(isinstance(authority.new, NotMade) for authority in record.authorities):
        yield from _keys(record, facts)
        return
    yield from _signing(record, facts)
    # Authorities before trust: a Machine that is made in between then has a link that does not fit its certificate, and
    # presents that alone. The other order would give it an old certificate without the link.
    for authority in record.authorities:
        yield from _authority(record, authority, facts)
    yield from _published(record, facts)
    yield from _kubeconfig(record, facts)
    if not record.goes_back and record.step.is_at_least(Step.PRUNE):
        yield from _prune(record, facts)
    yield from _keys(record, facts)


def _pairs(authority: RotatedAuthority, facts: Facts) -> Iterator[Write]:
    held = facts.authorities[authority.kind].pairs
    for role in (Role.OLD, Role.NEW):
        if isinstance(held[role], Absent):
            yield KeepPair(authority.kind, role)


def _published(record: RotationRecord, facts: Facts) -> Iterator[Write]:
    wanted = published(record)
    if not record.goes_back and not record.step.is_at_least(Step.PUBLISH_TRUST):
        return
    trust = TrustFacts(digests(record, wanted.client), digests(record, wanted.server), wanted.link)
    if facts.trust != trust:
        yield WriteTrust(wanted.client, wanted.server, wanted.link)
    if isinstance(facts.cluster_info, tuple) and facts.cluster_info != trust.server:
        yield WriteClusterInfo(wanted.server)
    pins = frozenset(hashes(record, wanted.server))
    for name, pinned in sorted(facts.pins.items()):
        if pinned != pins:
            yield WritePins(name, wanted.server)


def _signing(record: RotationRecord, facts: Facts) -> Iterator[Write]:
    if record.signing_pairs is not SigningPairs.SPLIT:
        return
    if not record.goes_back and not record.step.is_at_least(Step.PUBLISH_TRUST):
        return
    wanted = split_pairs(record)
    if facts.signing != SigningFacts(*digests(record, (wanted.client, wanted.serving))):
        yield WriteSigning(wanted)


def _authority(record: RotationRecord, authority: RotatedAuthority, facts: Facts) -> Iterator[Write]:
    wanted = contents(record, authority.kind)
    held = facts.authorities[authority.kind].secret
    if not isinstance(held, HeldPair):
        return
    bundle = tuple(authority.of(role).digest for role in wanted.certificates)
    if held.bundle != bundle or held.signs.digest != authority.of(wanted.key).digest:
        yield WriteAuthority(authority.kind, wanted)


def _kubeconfig(record: RotationRecord, facts: Facts) -> Iterator[Write]:
    if not record.goes_back and not record.step.is_at_least(Step.PUBLISH_TRUST):
        return
    wanted = published(record)
    if not isinstance(facts.kubeconfig, KubeconfigFacts):
        return
    # A token, or a certificate of another CA, is not ours to issue again.
    (digest,) = digests(record, (wanted.kubeconfig_client,))
    client = SignedByKnown(digest) if isinstance(facts.kubeconfig.client, SignedByKnown) else facts.kubeconfig.client
    if facts.kubeconfig != KubeconfigFacts(digests(record, wanted.kubeconfig), client):
        yield WriteKubeconfig(wanted.kubeconfig, wanted.kubeconfig_client)


def _prune(record: RotationRecord, facts: Facts) -> Iterator[Write]:
    if isinstance(facts.authentication, AuthenticationFacts) and holds_old(record, facts.authentication):
        yield PruneAuthentication()


def holds_old(record: RotationRecord, found: AuthenticationFacts) -> bool:
    """Whether ``extension-apiserver-authentication`` still names an old CA of the rotation."""
    old = {authority.old.digest for authority in record.authorities}
    return bool(old & {*found.client, *found.request_header})


def _keys(record: RotationRecord, facts: Facts) -> Iterator[Write]:
    if record.step is Step.FORGET:
        role = Role.OLD
    elif record.step is Step.DISCARD_NEW:
        role = Role.NEW
    else:
        return
    for authority in record.authorities:
        if role is Role.OLD and authority.kind is AuthorityKind.SERVICE_ACCOUNT:
            continue  # its tokens are still verified, and its own operation ends it
        if isinstance(facts.authorities[authority.kind].pairs[role], HeldPair):
            yield DeleteKey(authority.kind, role)


def digests(record: RotationRecord, roles: Roles) -> Bundle:
    """The digests of the cluster's CAs in those roles."""
    cluster = record.authority(AuthorityKind.CLUSTER)
    return tuple(cluster.of(role).digest for role in roles)


def hashes(record: RotationRecord, roles: Roles) -> tuple[str, ...]:
    """Their discovery hashes."""
    cluster = record.authority(AuthorityKind.CLUSTER)
    return tuple(cluster.of(role).public_key_hash for role in roles)


LINK_LIFETIME: Final = timedelta(days=45)
"""Of the link certificates. It spans the human decision between the phases."""
