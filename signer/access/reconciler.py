"""Looks after every AccessGrant of the served Clusters: one queue of grants, one move at a time for each.

What concerns a grant wakes it: its object, approvals, its Bastion, its Cluster with policy and Machines, a publication
of the trust bundle, and the time of its next change. Whatever else happens, each living grant is looked at every three
minutes, because rights are withdrawn without any event.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random
from typing import Final, Protocol

from signer.access.carrying_out import Tools, carry_out
from signer.access.certificates import NotCertified
from signer.access.conditions import GrantCondition, unmet
from signer.access.creator import Lock
from signer.access.creator_lock import TRIED_SECONDS
from signer.access.facts import Facts, Keepalive, KnownRecord
from signer.access.gathering import FRESH_AGE, PERIODIC_AGE, Gathered, Sources, cluster_of, gather
from signer.access.lifetimes import expiration
from signer.access.parts import Certificates, HopRequest, IssuanceFacts
from signer.access.plan import Issue, NotIssued, Rest, Step, WriteRecord, plan
from signer.access.record import (
    BrokenRecord,
    Cause,
    Closing,
    GrantRecord,
    GrantSeals,
    Live,
    NoRecord,
    Stage,
    StoredRecord,
)
from signer.access.revocation_list import RevocationListFull
from signer.access.signing import SignedHop
from signer.access.store import StoredBastion, StoredGrant
from signer.access.unwritable import UnwritableNamespaces
from signer.audit.log import AuditLogUnavailable
from signer.kube.backoff import Backoff
from signer.kube.errors import ApiError, Conflict, Forbidden
from signer.kube.resources import ACCESS_GRANTS
from signer.kube.supervision import isolated
from signer.kube.workqueue import QueueClosed, WorkQueue
from signer.model.access import GrantReference
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred, printable
from signer.model.fields import mapping_of, text_of
from signer.model.flow import Flow, PriorityLevel
from signer.model.seal import ControllerKeys
from signer.ssh.revocations import RevocationsUnknown
from signer.store.cache import ObjectKey

_LOG = logging.getLogger(__name__)
WORKERS: Final = 8
LOOK_SECONDS: Final = 180.0
"""Between looks at a living grant. With the age of answers about rights that it accepts, a right that is withdrawn
counts within four minutes."""

KEY_WAIT_SECONDS: Final = 300.0
"""How long a record whose key is unknown waits for a newer controller key."""
BACKOFF: Final = Backoff(base_seconds=0.5, maximum_seconds=60.0, jitter=0.5)
_TIME_CAUSES: Final = frozenset({Cause.HEARTBEAT_MISSING, Cause.DURATION_OVER})
ENDED: Final = "Ended"
REVOCATIONS_UNKNOWN: Final = "RevocationsUnknown"
REVOCATION_LIST_FULL: Final = "RevocationListFull"


class Observer(Protocol):
    """Counts what happens, for metrics."""

    def issued(self, cluster: ClusterKey, hop: str) -> None:
        """A certificate was issued."""
        ...

    def ended(self, cluster: ClusterKey, cause: str) -> None:
        """The end, or a pause, of a grant was sealed."""
        ...

    def held(self, cluster: ClusterKey, reason: str) -> None:
        """A grant that asks for certificates is newly refused them for that reason."""
        ...

    def late(self, seconds: float) -> None:
        """A grant's end by time was sealed that long after its time."""
        ...


class Tell(Protocol):
    """Records an Event about a grant."""

    def __call__(self, grant: StoredGrant, kind: str, reason: str, message: str) -> None:
        """``kind`` is ``Normal`` or ``Warning``."""
        ...


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a grant's last look has shown."""

    state: str
    reason: str


class GrantReconciler:
    """Implements the wing's work. Made and run in one event loop."""

    name: Final = "access grants"

    def __init__(
        self,
        *,
        sources: Sources,
        tools: Tools,
        certificates: Certificates,
        observer: Observer,
        tell: Tell,
        monotonic: Callable[[], float],
        random: Random,
        filled: Callable[[], Awaitable[None]],
    ) -> None:
        """``filled`` returns when grants, approvals and Bastions were listed."""
        self._sources = sources
        self._tools = tools
        self._certificates = certificates
        self._observer = observer
        self._tell = tell
        self._monotonic = monotonic
        self._random = random
        self._filled = filled
        self._queue: WorkQueue[ObjectKey] = WorkQueue(backoff=BACKOFF, random=random, flow_of=self._flow)
        self._of_cluster: dict[ClusterKey, set[ObjectKey]] = {}
        self._keepalives: set[str] = set()
        """UIDs of grants whose keepalive was taken, and does not count yet."""
        self._unknown_keys: dict[str, float] = {}
        self._vanished: dict[ObjectKey, StoredGrant] = {}
        self._known: dict[str, KnownRecord] = {}
        """By UID of the grant."""
        self._dropped: dict[str, set[str]] = {}
        """By namespace over its limit: UIDs of grants that may be gone, or are there and not kept."""
        self._shown: dict[ObjectKey, _Shown] = {}
        self._unwritable = UnwritableNamespaces(monotonic, random)
        self._locks: dict[str, type[Lock]] = {}
        """What the last trial showed, by namespace."""
        self._is_running = False

    # Wakes

    def grant_changed(self, key: ObjectKey, before: StoredGrant | None, after: StoredGrant | None) -> None:
        """Told by the cache."""
        if before is not None and (after is None or after.cluster != before.cluster):
            keys = self._of_cluster.get(before.cluster, set())
            keys.discard(key)
            if not keys:
                self._of_cluster.pop(before.cluster, None)
        if after is not None:
            self._of_cluster.setdefault(after.cluster, set()).add(key)
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            self._vanished[key] = before
        self._add(key)

    def approval_changed(self, reference: GrantReference, namespace: str) -> None:
        """An approval came or went."""
        self._add((namespace, reference.name))

    def bastion_changed(self, key: ObjectKey, before: StoredBastion | None, after: StoredBastion | None) -> None:
        """Told by the cache."""
        del before, after
        self._add(key)

    def cluster_changed(self, cluster: ClusterKey) -> None:
        """The Cluster, its policy, its Machines, its authorities or its trust bundle have changed."""
        for key in self._of_cluster.get(cluster, ()):
            self._add(key)

    def has_known_record(self, uid: str) -> bool:
        """See Woken."""
        return uid in self._known

    @property
    def vanished(self) -> tuple[ObjectKey, ...]:
        """Grants whose objects are gone, and of which it is not known yet whether they had ended."""
        return tuple(self._vanished)

    def _add(self, key: ObjectKey) -> None:
        if self._is_running:
            self._queue.add(key)

    def _flow(self, key: ObjectKey) -> Flow:
        """Clusters take turns: the many grants of one are in no other's way. Grants that have ended come last: others
        are to end on time.
        """
        stored, shown = self._sources.grants.get(*key), self._shown.get(key)
        level = PriorityLevel.REFUSED if shown is not None and shown.state == ENDED else PriorityLevel.PLAUSIBLE
        return Flow(level, str(stored.cluster) if stored is not None else "")

    # Work

    async def run(self) -> None:
        """Work until cancelled."""
        await self._filled()
        self._is_running = True
        for key in [one for keys in self._of_cluster.values() for one in keys]:
            self._queue.add(key)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._try_locks(), name="creator locks")
                for number in range(WORKERS):
                    tasks.create_task(self._work(), name=f"access grants {number}")
        finally:
            self._is_running = False

    async def _work(self) -> None:
        while True:
            try:
                key = await self._queue.get()
            except QueueClosed:
                return
            try:
                with isolated(lambda error, key=key: self._faulted(key, error)):  # type: ignore[misc]
                    await self._look_once(key)
            finally:
                self._queue.done(key)

    def _faulted(self, key: ObjectKey, error: BaseException) -> None:
        _LOG.error("a look at an access grant failed", exc_info=error, extra={"namespace": key[0], "object": key[1]})
        self._queue.retry(key)

    async def _look_once(self, key: ObjectKey) -> None:
        try:
            seconds = await self.look(key)
        except Conflict:
            self._queue.add_after(key, 0.2)
            return
        except (ApiError, Deferred, AuditLogUnavailable) as error:
            retry = self._queue.retry(key)
            said = printable(str(error))
            _LOG.warning(
                "an access grant waits",
                extra={"namespace": key[0], "object": key[1], "error": said, "retryInSeconds": round(retry, 1)},
            )
            return
        self._queue.forget(key)
        if seconds is not None:
            self._queue.add_after(key, max(seconds, 0.001))

    async def _try_locks(self) -> None:
        """Each minute, in each namespace with grants; grants of a namespace are woken when the answer changes."""
        while True:
            present = {
                cluster.namespace for cluster in self._of_cluster if self._sources.permission.allows(cluster.namespace)
            }
            self._forget_dropped()
            for namespace in set(self._locks) - present:
                del self._locks[namespace]
                self._sources.lock.forget(namespace)
            for namespace in sorted(present):
                with isolated(lambda error, namespace=namespace: _lock_faulted(namespace, error)):  # type: ignore[misc]
                    await self._try_lock(namespace)
            await asyncio.sleep(TRIED_SECONDS)

    def _forget_dropped(self) -> None:
        """What is known of the records of dropped grants keeps an older record from being put back. Where all grants
        are kept again, those that are not there are gone.
        """
        grants = self._sources.grants
        for namespace in [one for one in self._dropped if not grants.drops(one)]:
            present = {one.metadata.uid for one in grants.values() if one.metadata.namespace == namespace}
            for uid in self._dropped.pop(namespace) - present:
                self._known.pop(uid, None)

    async def _try_lock(self, namespace: str) -> None:
        answer = type(await self._sources.lock.fresh(namespace))
        if self._locks.get(namespace, answer) is not answer:
            self._wake_namespace(namespace)
        self._locks[namespace] = answer

    def _wake_namespace(self, namespace: str) -> None:
        for cluster in tuple(self._of_cluster):
            if cluster.namespace == namespace:
                self.cluster_changed(cluster)

    async def look(self, key: ObjectKey) -> float | None:
        """Look at one grant, and make one move. Returns the seconds until the next look; None: none is needed.

        Raises:
            ApiError: the move may not have happened.
            Deferred: nothing can be decided now.
        AuditLogUnavailable: the move waits for the audit log.
        """
        await self._revoke_vanished(key)
        stored = self._sources.grants.get(*key)
        if stored is None:
            self._shown.pop(key, None)
            return None
        keys = self._sources.caches.authentic.keys()
        record = stored.unsealed(GrantSeals(keys))
        if not self._sources.caches.shards.own(cluster_of(stored, record)):
            return None
        view = self._sources.caches.clusters.get(*_names(cluster_of(stored, record)))
        if view is not None and not self._sources.caches.watch_filter.selects(view):
            return None
        if isinstance(record, NoRecord) and (left := self._unwritable.seconds_left(key[0])):
            return left
        gathered = await self._gather(stored, record, PERIODIC_AGE)
        step = plan(gathered.facts, self._certify)
        if _needs_fresh_rights(step, gathered.facts):
            gathered = await self._gather(stored, record, FRESH_AGE)
            step = plan(gathered.facts, self._certify)
        if _believes(step, gathered.facts):
            gathered = await self._gather(stored, record, FRESH_AGE, self._monotonic())
            step = plan(gathered.facts, self._certify)
        try:
            step = await self._carry_out(step, gathered, keys)
        except Forbidden as error:
            if not isinstance(record, NoRecord) or self._sources.permission.allows(key[0]):
                raise
            return self._unwritable.refused(key[0], error)
        self._note(key, step, gathered)
        return self._pause(step, gathered.facts)

    async def _gather(
        self, stored: StoredGrant, record: StoredRecord, age: float, lock_since: float = float("-inf")
    ) -> Gathered:
        uid = stored.metadata.uid
        keepalive = Keepalive.ASKED if stored.asks_keepalive else Keepalive.NONE
        if uid in self._keepalives:
            keepalive = Keepalive.TAKEN
        over = False
        if isinstance(record, BrokenRecord) and record.is_key_unknown:
            self._sources.caches.authentic.key_wanted.set()
            first = self._unknown_keys.setdefault(uid, self._monotonic())
            over = self._monotonic() - first >= KEY_WAIT_SECONDS
        else:
            self._unknown_keys.pop(uid, None)
        self._reserve(stored, record)
        gathered = await gather(
            self._sources, stored, record, keepalive, key_wait_over=over, age=age, lock_since=lock_since
        )
        return await self._without_replay(gathered)

    def _reserve(self, stored: StoredGrant, record: StoredRecord) -> None:
        """The list of revocations keeps a place for each grant that has certificates, also after a restart."""
        if not isinstance(record, GrantRecord) or not isinstance(record.last_end, datetime):
            return
        if isinstance(record.state, Live) and self._may_be_accepted(record):
            key_id = record.key_id(stored.metadata, record.epoch)
            with contextlib.suppress(RevocationsUnknown, RevocationListFull):
                self._tools.revocation_list.reserve(cluster_of(stored, record), key_id, record.last_end)

    def _may_be_accepted(self, record: GrantRecord) -> bool:
        return record.may_be_accepted(self._sources.now(), self._sources.clocks.answer())

    async def _without_replay(self, gathered: Gathered) -> Gathered:
        """A record that is older than one that this process knows was put back by somebody, and one that is gone was
        taken away.

        Raises:
            Conflict: the watch is behind what this process has written.
        """
        record, uid = gathered.facts.record, gathered.facts.metadata.uid
        known = self._known.get(uid, KnownRecord())
        if isinstance(record, GrantRecord) and record.sequence >= known.sequence:
            if record.sequence > known.sequence:
                self._known[uid] = KnownRecord.of(record)
            return gathered
        if isinstance(record, NoRecord) and not known.sequence:
            return gathered
        if isinstance(record, BrokenRecord):
            broken = record
        elif isinstance(record, NoRecord):
            broken = BrokenRecord("the record was taken away")
        else:
            broken = BrokenRecord("an older record was put back")
        if not broken.is_key_unknown:
            await self._require_current(gathered.stored)
        return replace(gathered, facts=replace(gathered.facts, record=broken, known=known))

    async def _require_current(self, stored: StoredGrant) -> None:
        """Nothing that cannot be taken back follows from an object that the API server does not have any more: a watch
        may tell of former versions after this process has written the next ones.

        Raises:
            Conflict: there is another version.
        """
        metadata = stored.metadata
        found = await self._tools.management.get(ACCESS_GRANTS.object(metadata.name, metadata.namespace))
        if text_of(mapping_of(found, "metadata"), "resourceVersion") != metadata.resource_version:
            self._tools.grants.written(found)
            raise Conflict("the watch is behind", status=409)

    def _certify(self, facts: IssuanceFacts) -> tuple[HopRequest, ...]:
        """Implements :data:`~signer.access.plan.Certify`."""
        try:
            return self._certificates.certificates_of(facts)
        except NotCertified as error:
            raise NotIssued(str(error.why), error.message) from error
        except RevocationsUnknown as error:
            raise NotIssued(REVOCATIONS_UNKNOWN, str(error)) from error
        except RevocationListFull as error:
            raise NotIssued(REVOCATION_LIST_FULL, str(error)) from error

    async def _carry_out(self, step: Step, gathered: Gathered, keys: ControllerKeys) -> Step:
        """Returns the step that was carried out: one without certificates if none could be signed."""
        try:
            await carry_out(step, gathered, self._tools, keys, self)
        except NotIssued as error:
            conditions = (unmet(GrantCondition.READY, error.reason, error.message), *step.conditions[1:])
            instead = WriteRecord() if step.record != gathered.facts.record else Rest()
            step = replace(step, move=instead, conditions=conditions)
            await carry_out(step, gathered, self._tools, keys, self)
        if _counts_heartbeat(step, gathered.facts):
            self._keepalives.discard(gathered.facts.metadata.uid)
        return step

    async def _revoke_vanished(self, key: ObjectKey) -> None:
        """Somebody took the finalizer from a grant that had not ended: its certificates are revoked all the same."""
        gone = self._vanished.get(key)
        if gone is None:
            return
        record = gone.unsealed(GrantSeals(self._sources.caches.authentic.keys()))
        is_ours = self._sources.caches.shards.own(cluster_of(gone, record))
        if is_ours and isinstance(record, GrantRecord) and self._may_be_accepted(record):
            is_revoked = isinstance(record.state, Closing) and record.state.stage is not Stage.CLOSING
            if not is_revoked and isinstance(record.last_end, datetime):
                cluster = ClusterKey(gone.metadata.namespace, record.cluster)
                key_id = record.key_id(gone.metadata, record.epoch)
                await self._tools.revocation_list.add(cluster, key_id, record.last_end)
                _LOG.warning(
                    "an access grant vanished with living certificates; they are revoked",
                    extra={"namespace": key[0], "object": key[1]},
                )
        if self._sources.grants.drops(key[0]):
            self._dropped.setdefault(key[0], set()).add(gone.metadata.uid)
        else:
            self._known.pop(gone.metadata.uid, None)
        self._keepalives.discard(gone.metadata.uid)
        self._unknown_keys.pop(gone.metadata.uid, None)
        if self._vanished.get(key) is gone:
            del self._vanished[key]

    def _pause(self, step: Step, facts: Facts) -> float | None:
        if isinstance(step.record, GrantRecord) and isinstance(step.record.state, Closing) and step.again is None:
            return None
        periodic = LOOK_SECONDS * (1 - 0.2 * self._random.random())
        if step.again is None:
            return periodic
        return min((step.again - facts.now).total_seconds(), periodic)

    # What happened

    def keepalive_taken(self, gathered: Gathered) -> None:
        """See Effects."""
        self._keepalives.add(gathered.facts.metadata.uid)

    def issued(self, gathered: Gathered, hops: tuple[SignedHop, ...]) -> None:
        """See Effects."""
        facts = gathered.facts
        for hop in hops:
            self._observer.issued(gathered.cluster, hop.entry.hop.value)
        is_first = not isinstance(facts.record, GrantRecord) or not facts.record.journal
        entry = hops[0].entry
        _LOG.info(
            "certificates of an access grant are issued",
            extra={
                "namespace": facts.metadata.namespace,
                "object": facts.metadata.name,
                "cluster": str(gathered.cluster),
                "keyID": entry.key_id,
                "serialNumber": ", ".join(f"{one.entry.serial:x}" for one in hops),
                "notAfter": entry.ends.isoformat(),
            },
        )
        if is_first:
            self._tell(gathered.stored, "Normal", "CertificatesIssued", "certificates are in the status")

    def closed(self, gathered: Gathered, record: GrantRecord) -> None:
        """See Effects."""
        facts, state = gathered.facts, record.state
        was = facts.record
        if not isinstance(state, Closing):
            return
        if isinstance(was, GrantRecord) and isinstance(was.state, Closing) and was.state.cause is state.cause:
            return
        self._observer.ended(gathered.cluster, state.cause.value)
        if state.cause in _TIME_CAUSES and isinstance(was, GrantRecord):
            due = expiration(facts.lifetime, was.heartbeat, facts.now)
            self._observer.late(max(0.0, (self._sources.now() - due).total_seconds()))
        _LOG.info(
            "an access grant ends",
            extra={
                "namespace": facts.metadata.namespace,
                "object": facts.metadata.name,
                "cluster": str(gathered.cluster),
                "reason": state.cause.value,
            },
        )
        kind = "Normal" if state.cause in _TIME_CAUSES or state.cause is Cause.DELETED else "Warning"
        living = facts.may_be_accepted(record)
        message = "its certificates are being revoked" if living else "nothing more is issued"
        self._tell(gathered.stored, kind, state.cause.value, message)

    def _note(self, key: ObjectKey, step: Step, gathered: Gathered) -> None:
        reason = step.conditions[0].reason if step.conditions else ""
        record = step.record
        state = "Pending"
        if isinstance(record, GrantRecord):
            if isinstance(record.state, Live):
                state = "Live" if isinstance(step.move, Issue) or record.journal else "Pending"
            else:
                state = ENDED if record.state.stage is Stage.TERMINATED else "Ending"
        shown = _Shown(state, reason)
        before = self._shown.get(key)
        self._shown[key] = shown
        is_held = bool(step.conditions) and step.conditions[0].status != "True"
        ends = isinstance(record, GrantRecord) and isinstance(record.state, Closing)
        if is_held and not ends and (before is None or before.reason != reason):
            self._observer.held(gathered.cluster, reason)

    def counts(self, cluster: ClusterKey) -> Counter[str]:
        """The Cluster's grants by state, for the metric."""
        keys = self._of_cluster.get(cluster, ())
        return Counter(self._shown[key].state for key in keys if key in self._shown)


def _lock_faulted(namespace: str, error: BaseException) -> None:
    """The others are tried all the same, and looks at the namespace's grants try for themselves."""
    _LOG.error("a trial of the creator lock failed", exc_info=error, extra={"namespace": namespace})


def _names(cluster: ClusterKey) -> tuple[str, str]:
    return cluster.namespace, cluster.name


def _needs_fresh_rights(step: Step, facts: Facts) -> bool:
    return isinstance(step.move, Issue) or _counts_heartbeat(step, facts)


def _believes(step: Step, facts: Facts) -> bool:
    """Whether the step takes into the record what admission alone proves. Admission may be off since the last trial, so
    another one is made, which is younger than what is believed. Heartbeats, which come all the time, prolong at most.
    """
    record, before = step.record, facts.record
    if not isinstance(record, GrantRecord):
        return False
    if not isinstance(before, GrantRecord):
        return isinstance(before, NoRecord)
    return (
        record.ingress != before.ingress
        or (before.is_suspended and not record.is_suspended)
        or not {one.uid for one in record.approvals} <= {one.uid for one in before.approvals}
    )


def _counts_heartbeat(step: Step, facts: Facts) -> bool:
    record, before = step.record, facts.record
    return isinstance(record, GrantRecord) and isinstance(before, GrantRecord) and record.heartbeat != before.heartbeat


__all__ = ["GrantReconciler", "Observer", "Tell"]
