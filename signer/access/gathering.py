"""Gathers the facts about one grant: from caches, and by reviews of rights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from attestors.wire.ssh.keys import host_key
from signer.access.approvals import SealedApproval, candidates
from signer.access.bastion_objects import AsDesired, bastion_change
from signer.access.creator import CreatorNotProven, Lock, require_lock
from signer.access.creator_lock import CreatorLock
from signer.access.facts import (
    ApprovalsUnknown,
    ClusterHere,
    ClusterOver,
    ClusterPaused,
    ClusterState,
    Facts,
    GrantRules,
    Keepalive,
    RulesAnswer,
)
from signer.access.lifetimes import Lifetime, first_created
from signer.access.parts import (
    AbsentBastion,
    BastionObjects,
    BastionState,
    PendingBastion,
    Publication,
    Publications,
    Targets,
    TargetsAnswer,
    TargetsFound,
    TargetsUnknown,
)
from signer.access.record import Closing, GrantRecord, Live, NoRecord, Stage, StoredRecord
from signer.access.right_answers import RightAnswer, RightUnknown, Verb
from signer.access.rights import Rights
from signer.access.rules import lifetime_of, rules_of
from signer.access.store import StoredBastion, StoredGrant, stored_bastion
from signer.configuration import AccessPermission
from signer.kube.calls import Get
from signer.kube.client import JsonObject
from signer.kube.clocks import ClockAnswers
from signer.kube.errors import NotFound
from signer.kube.resources import ACCESS_GRANTS, BASTIONS
from signer.model.access import AccessApproval, AccessGrant, AsPolicySays, BastionOf, Creator
from signer.model.addresses import is_subdomain
from signer.model.cluster import ClusterKey
from signer.model.fields import mapping_of
from signer.ssh.available import AvailableAuthorities, SSHAuthoritiesOf
from signer.store.cache import Cache
from signer.store.caches import Caches

PERIODIC_AGE: Final = 60.0
"""How old, in seconds, an answer about a right may be at an ordinary look; grants of one person share it."""
FRESH_AGE: Final = 2.0
"""And before certificates are made or a heartbeat counts."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where facts come from."""

    caches: Caches
    grants: Cache[StoredGrant]
    bastions: Cache[StoredBastion]
    approvals_of: Callable[[str, str], Iterable[AccessApproval] | ApprovalsUnknown]
    """By namespace and name of the grant."""
    management: Get
    permission: AccessPermission
    lock: CreatorLock
    rights: Rights
    targets: Targets
    bastion_objects: BastionObjects
    publications: Publications
    authorities_of: SSHAuthoritiesOf
    now: Callable[[], datetime]
    clocks: ClockAnswers


@dataclass(frozen=True, slots=True)
class Gathered:
    """The facts, and what carrying out a move needs besides."""

    facts: Facts
    stored: StoredGrant
    cluster: ClusterKey
    bastion: StoredBastion | AbsentBastion
    desired_bastion: JsonObject
    """Empty where none can be rendered now."""


async def gather(
    sources: Sources,
    stored: StoredGrant,
    record: StoredRecord,
    keepalive: Keepalive,
    *,
    key_wait_over: bool,
    age: float,
    lock_since: float = float("-inf"),
) -> Gathered:
    """Look at everything once. ``record`` is the grant's, with its seal verified. ``age`` bounds the age of answers
    about rights, in seconds. The trial of the creator lock begins at ``lock_since`` (monotonic) or later.

    Raises:
        Deferred: the caches are out of touch.
        ApiError: the API server could not be asked.
    """
    sources.caches.require_in_touch()
    clocks = await sources.clocks.fresh(ACCESS_GRANTS.object(stored.metadata.name, stored.metadata.namespace))
    now, grant = sources.now(), stored.grant
    cluster = cluster_of(stored, record)
    policy = sources.caches.policies.get(cluster.namespace, cluster.name)
    rules = rules_of(grant, cluster.namespace, policy, sources.permission)
    created = record.created if isinstance(record, GrantRecord) else first_created(stored.metadata.created, now)
    lifetime = lifetime_of(_duration(grant, record), created, policy, sources.permission)
    # Before the trial: it says nothing about an approval that comes later.
    sealed = record.approvals if isinstance(record, GrantRecord) else ()
    said = sources.approvals_of(*_key(stored))
    approvals = said if isinstance(said, ApprovalsUnknown) else _candidates(grant, said, sealed)
    found = () if isinstance(approvals, ApprovalsUnknown) else approvals
    lock = await sources.lock.fresh(cluster.namespace, lock_since)
    targets = _targets(sources, grant, record)
    bastion, state, is_deleting = await _bastion(sources, stored, record)
    available = sources.authorities_of(cluster)
    desired = _desired(sources, grant, record, rules, targets, available, lifetime)
    facts = Facts(
        now=now,
        metadata=stored.metadata,
        grant=grant,
        record=record,
        is_key_wait_over=key_wait_over,
        cluster=_cluster(sources.caches, cluster),
        rules=rules,
        lifetime=lifetime,
        lock=lock,
        right=await _right(sources, stored, record, lock, age),
        approvals=approvals,
        approvers=await _approvers(sources, grant, record, lock, found, age),
        targets=targets,
        bastion=state,
        is_bastion_current=not isinstance(bastion, AbsentBastion) and _is_current(bastion.manifest, desired, targets),
        is_bastion_deleting=is_deleting,
        authority=available.user.public_key.fingerprint if isinstance(available, AvailableAuthorities) else "",
        publication=_publication(sources, stored, record, cluster),
        keepalive=keepalive,
        clocks=clocks,
        asks_suspension=stored.asks_suspension,
        stated_cluster=stored.cluster.name if is_subdomain(stored.cluster.name) else "",
        stated_creator=stored.creator,
    )
    return Gathered(facts, stored, cluster, bastion, desired)


def cluster_of(stored: StoredGrant, record: StoredRecord) -> ClusterKey:
    """The sealed Cluster, else the stated one."""
    if isinstance(record, GrantRecord) and record.cluster:
        return ClusterKey(stored.metadata.namespace, record.cluster)
    return stored.cluster


def _duration(grant: object, record: StoredRecord) -> timedelta | AsPolicySays:
    """As sealed, else as stated."""
    if isinstance(record, GrantRecord):
        return record.duration
    return grant.duration if isinstance(grant, AccessGrant) else AsPolicySays()


def _key(stored: StoredGrant) -> tuple[str, str]:
    return stored.metadata.namespace, stored.metadata.name


def _cluster(caches: Caches, key: ClusterKey) -> ClusterState:
    view = caches.clusters.get(key.namespace, key.name)
    if view is None:
        return ClusterOver(f"there is no Cluster {key.name}")
    if view.deleting:
        return ClusterOver(f"Cluster {key.name} is being deleted")
    return ClusterPaused() if view.paused else ClusterHere()


async def _right(sources: Sources, stored: StoredGrant, record: StoredRecord, lock: Lock, age: float) -> RightAnswer:
    """Nobody is asked about a creator who is not proven: anybody could have the controller ask about anybody."""
    grant = stored.grant
    if isinstance(record, GrantRecord):
        person, logins = record.creator, record.logins
    elif not isinstance(grant, AccessGrant):
        return RightUnknown("the grant is invalid", 0.0)
    elif isinstance(grant.created_by, Creator) and _is_proven(lock):
        person, logins = grant.created_by, grant.rights
    else:
        return RightUnknown("the creator is not proven", 0.0)
    return await sources.rights.of(stored.metadata.namespace, person, Verb.USE, logins, maximum_age=age)


async def _approvers(
    sources: Sources,
    grant: object,
    record: StoredRecord,
    lock: Lock,
    found: tuple[AccessApproval, ...],
    age: float,
) -> Mapping[str, RightAnswer]:
    if not found or not isinstance(grant, AccessGrant):
        return {}
    sealed = {one.uid for one in record.approvals} if isinstance(record, GrantRecord) else set()
    answers: dict[str, RightAnswer] = {}
    for one in found:
        person, uid = one.created_by, one.metadata.uid
        if isinstance(person, Creator) and (uid in sealed or _is_proven(lock)):
            namespace = grant.metadata.namespace
            answers[uid] = await sources.rights.of(namespace, person, Verb.APPROVE, grant.rights, maximum_age=age)
    return answers


def _is_proven(lock: Lock) -> bool:
    try:
        require_lock(lock)
    except CreatorNotProven:
        return False
    return True


def _targets(sources: Sources, grant: object, record: StoredRecord) -> TargetsAnswer:
    if not isinstance(grant, AccessGrant):
        return TargetsUnknown("the grant is invalid")
    if isinstance(record, GrantRecord) and record.spec_digest != grant.digest:
        return TargetsUnknown("the spec is not what it was at first sight")
    was_found = isinstance(record, GrantRecord) and bool(record.journal)
    return sources.targets.of(grant, was_found)


def _candidates(
    grant: object, said: Iterable[AccessApproval], sealed: tuple[SealedApproval, ...]
) -> tuple[AccessApproval, ...]:
    return candidates(grant, said, sealed) if isinstance(grant, AccessGrant) else ()


async def _bastion(
    sources: Sources, stored: StoredGrant, record: StoredRecord
) -> tuple[StoredBastion | AbsentBastion, BastionState, bool]:
    found = sources.bastions.get(*_key(stored))
    if found is None and sources.bastions.drops(stored.metadata.namespace) and not isinstance(record, NoRecord):
        found = await _read_bastion(sources.management, *_key(stored))
    if found is None:
        return AbsentBastion(), AbsentBastion(), False
    if found.grant_uid != stored.metadata.uid:
        return AbsentBastion(), AbsentBastion(), True
    if found.is_deleting:
        return found, PendingBastion("the bastion is being removed"), True
    return found, sources.bastion_objects.bastion_state(found.manifest), False


async def _read_bastion(management: Get, namespace: str, name: str) -> StoredBastion | None:
    """Where the cache keeps no Bastions, that one is missing says nothing."""
    try:
        return stored_bastion(await management.get(BASTIONS.object(name, namespace)))
    except NotFound:
        return None


def _desired(
    sources: Sources,
    grant: object,
    record: StoredRecord,
    rules: RulesAnswer,
    targets: TargetsAnswer,
    available: object,
    lifetime: Lifetime,
) -> JsonObject:
    """The bastion of a living grant: with the networks that count, until the grant's duration is over."""
    if not (
        isinstance(grant, AccessGrant)
        and isinstance(record, GrantRecord)
        and _may_have_bastion(record)
        and isinstance(rules, GrantRules)
        and isinstance(rules.bastion, BastionOf)
        and isinstance(targets, TargetsFound)
        and targets.nodes
        and isinstance(available, AvailableAuthorities)
    ):
        return {}
    not_after = lifetime.created + lifetime.duration
    return sources.bastion_objects.desired_bastion(
        _with_ingress(grant, record),
        targets.nodes,
        tuple(map(host_key, available.trust.user_authorities)),
        not_after,
        rules.bastion.provider,
        rules.settings,
    )


def _may_have_bastion(record: GrantRecord) -> bool:
    state = record.state
    if isinstance(state, Closing):
        return state.stage is Stage.TERMINATED and not state.cause.is_final
    return isinstance(state, Live)


def _with_ingress(grant: AccessGrant, record: GrantRecord) -> AccessGrant:
    return grant if grant.ingress == record.ingress else replace(grant, ingress=record.ingress)


def _is_current(found: JsonObject, desired: JsonObject, targets: TargetsAnswer) -> bool:
    """Whether the Bastion is as it should be. That of a grant for every node stays although nodes come and go: another
    bastion would end the sessions.
    """
    if not desired:
        return True
    if isinstance(targets, TargetsFound) and targets.every_node:
        spec = {**mapping_of(desired, "spec"), "targets": mapping_of(found, "spec").get("targets")}
        desired = {**desired, "spec": spec}
    return isinstance(bastion_change(found, desired), AsDesired)


def _publication(sources: Sources, stored: StoredGrant, record: StoredRecord, cluster: ClusterKey) -> Publication:
    if not isinstance(record, GrantRecord) or not isinstance(record.state, Closing):
        return Publication.PENDING
    answers = {
        sources.publications.of(cluster, record.key_id(stored.metadata, epoch)) for epoch in record.revoked_epochs
    }
    return answers.pop() if len(answers) == 1 else Publication.PENDING


__all__ = ["FRESH_AGE", "PERIODIC_AGE", "Gathered", "Sources", "gather"]
