"""Writes condition ``NodeAttested`` on Machines that name it in ``spec.readinessGates``.

Cluster API's readiness gates are conditions that other controllers write (Machine, ``spec.readinessGates``); a Machine
is ready only while each is True. The condition is derived from records and Machines, so the next resync repairs a lost
update or a restart. Everything runs in the background: no decision waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from signer.kube.calls import GetPatch
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, Conflict, Forbidden, NotFound
from signer.kube.scheduling import CooperativeYield
from signer.kube.workqueue import WorkQueue
from signer.model.cluster import MACHINE_KIND, ClusterKey, MachineView
from signer.model.decision import Decision, Deferred
from signer.model.explain_command import with_hint, without_hint
from signer.model.fields import format_time, mapping_of, text_of
from signer.model.flow import Flow, PriorityLevel
from signer.model.node_attested import (
    NODE_ATTESTED,
    NOT_YET,
    NodeAttested,
    node_attested_after,
    node_attested_by,
    node_attested_despite,
)
from signer.model.record import AttestedNode
from signer.store.cache import ObjectKey
from signer.store.caches import Caches, ProviderIDs

_LOG = logging.getLogger(__name__)

SETTLE_SECONDS: Final = 1.0
"""Changes of one Machine within this time are written once."""
WRITE_SECONDS: Final = 30.0
"""A condition that is not True is written at most this often: the requester controls how often requests are denied."""
RESYNC_SECONDS: Final = 60.0
"""How often all Machines with the readiness gate are checked, without a call for those that are right."""
VERIFY_SECONDS: Final = 3600.0
"""A written condition is read again after this time."""
DISABLED_SECONDS: Final = 300.0
"""Pause before the next attempt if a grant is missing or the schema drops the condition."""
MAXIMUM_CONDITIONS: Final = 32
"""``maxItems`` of the conditions in Cluster API's schema."""
_ATTEMPTS: Final = 5
_EVERYWHERE: Final = ""
"""In place of a namespace, because definitions are cluster-scoped."""

# Where each Cluster API version has conditions of type metav1.Condition.
_HOLDERS: Final = {"v1beta1": ("status", "v1beta2"), "v1beta2": ("status",)}


RecordsOf = Callable[[MachineView], Iterable[AttestedNode]]
"""The authentic records of a Machine from the store's index; raises Deferred while they are unknown."""


@dataclass(frozen=True, slots=True)
class _Written:
    """The condition as last read or written."""

    uid: str
    content: NodeAttested
    at: float


@dataclass(frozen=True, slots=True)
class _Last:
    """The last decision about a Machine's node other than an approval."""

    uid: str
    content: NodeAttested


class MachineConditions:
    """Writes the condition of every Machine with the readiness gate; one instance serves the whole controller."""

    def __init__(
        self,
        client: GetPatch,
        caches: Caches,
        records_of: RecordsOf,
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._client = client
        self._caches = caches
        self._records_of = records_of
        self._now = now
        self._monotonic = monotonic
        self._queue: WorkQueue[ObjectKey] = WorkQueue(flow_of=_flow)
        self._last: dict[ObjectKey, _Last] = {}
        self._written: dict[ObjectKey, _Written] = {}
        self._disabled_until: dict[str, float] = {}
        """By namespace, because grants and admission webhooks that answer Forbidden apply per namespace."""
        self._logged: set[str] = set()
        self._resync_needed = asyncio.Event()
        caches.on_machine_change(self._changed)
        caches.on_shards_changed(self._resync_needed.set)

    def decided(self, machine: MachineView, decision: Decision, hint: str = "") -> None:
        """A request that claims this Machine was decided; never waits and never raises."""
        if not _has_gate(machine):
            return
        key = (machine.cluster.namespace, machine.name)
        if (content := node_attested_after(decision, hint)) not in (NOT_YET, self._last_of(key, machine)):
            self._last[key] = _Last(machine.uid, content)
        self._queue.add_after(key, SETTLE_SECONDS)

    async def run(self) -> None:
        """Write conditions until cancelled. Start it once the caches are filled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._resync_forever(), name="machine conditions, resync")
            tasks.create_task(self._work(), name="machine conditions")

    def _changed(self, cluster: ClusterKey, provider_ids: ProviderIDs) -> None:
        for machine in self._caches.machine_objects_with(cluster, provider_ids):
            if _has_gate(machine):
                self._queue.add_after((cluster.namespace, machine.name), SETTLE_SECONDS)

    async def _resync_forever(self) -> None:
        while True:
            self._resync_needed.clear()
            await self.resync()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RESYNC_SECONDS):
                    await self._resync_needed.wait()

    async def resync(self) -> None:
        """Check all Machines, and queue those whose condition is not known to be right."""
        cooperative_yield = CooperativeYield()
        for machine in list(self._caches.machines.values()):  # later changes arrive as events
            key = (machine.cluster.namespace, machine.name)
            if _has_gate(machine) and self._is_kept(key):
                with contextlib.suppress(Deferred):
                    if not self._is_right(key, machine):
                        self._queue.add_after(key, SETTLE_SECONDS)
            await cooperative_yield.leave_turn()
        now = self._monotonic()
        self._disabled_until = {where: end for where, end in self._disabled_until.items() if end > now}
        for memory in (self._last, self._written):
            for key in list(memory):
                if not self._is_kept(key):
                    memory.pop(key, None)
                await cooperative_yield.leave_turn()

    def _is_kept(self, key: ObjectKey) -> bool:
        """Whether the Machine has the readiness gate and is in one of this replica's shards."""
        machine = self._caches.machines.get(*key)
        return machine is not None and _has_gate(machine) and self._caches.shards.own(machine.cluster)

    def _is_right(self, key: ObjectKey, machine: MachineView) -> bool:
        written = self._written.get(key)
        return (
            written is not None
            and written.uid == machine.uid
            and written.content == self._content(key, machine)
            and self._monotonic() - written.at < VERIFY_SECONDS
        )

    def _content(self, key: ObjectKey, machine: MachineView) -> NodeAttested:
        records = self._records_of(machine)
        for record in records:
            if record.is_disproven_by(machine):
                return node_attested_despite(record, machine)
        cluster = self._caches.clusters.get(machine.cluster.namespace, machine.cluster.name)
        if cluster is not None:  # without a Cluster nothing is written
            records = [record for record in records if record.is_of(machine, cluster.created)]
        content = node_attested_by(records, self._last_of(key, machine), self._now())
        if content.status == "True":
            self._last.pop(key, None)  # earlier denials are irrelevant once the record expires
        return content

    def _last_of(self, key: ObjectKey, machine: MachineView) -> NodeAttested:
        last = self._last.get(key)
        return last.content if last is not None and last.uid == machine.uid else NOT_YET

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                await self._reconcile(key)
            except Deferred:
                pass  # the controller key is missing; a later resync tries again
            except ApiError as error:
                _LOG.info("cannot write a Machine's condition", extra={"machine": "/".join(key), "error": str(error)})
                self._queue.retry(key)
            except Exception as error:  # noqa: BLE001 - a defect with one Machine must not end the worker
                _LOG.error(
                    "unexpected fault with a Machine's condition", exc_info=error, extra={"machine": "/".join(key)}
                )
                self._queue.retry(key)
            else:
                self._queue.forget(key)
            finally:
                self._queue.done(key)

    async def _reconcile(self, key: ObjectKey) -> None:
        """Reconcile the condition of one Machine.

        Raises:
            ApiError: retried.
            Deferred: the right condition is not known yet.
        """
        machine = self._caches.machines.get(*key)
        if machine is None or not _has_gate(machine) or not self._is_ours(machine) or self._is_right(key, machine):
            return
        if self._is_disabled(key[0]):
            return  # a later resync tries again
        content, written = self._content(key, machine), self._written.get(key)
        if written is not None and content.status != "True" and written.uid == machine.uid:
            delay = WRITE_SECONDS - (self._monotonic() - written.at)
            if delay > 0:
                self._queue.add_after(key, delay)
                return
        try:
            current = await self._write(machine, content)
        except NotFound:
            return
        except Forbidden as error:
            self._disable(f"a grant is missing: {error}", key[0])
            return
        self._written[key] = _Written(machine.uid, current, self._monotonic())

    def _is_ours(self, machine: MachineView) -> bool:
        """Whether this controller serves the Machine's Cluster, and has its records; during a move another controller
        writes.
        """
        cluster = self._caches.clusters.get(machine.cluster.namespace, machine.cluster.name)
        policy = self._caches.policies.get(machine.cluster.namespace, machine.cluster.name)
        if cluster is None or policy is None or cluster.paused or cluster.deleting_for_move:
            return False
        if not self._caches.serves(cluster) or self._caches.over_limits.of(machine.cluster.namespace):
            return False
        return not machine.paused

    async def _write(self, machine: MachineView, content: NodeAttested) -> NodeAttested:
        """Write the condition if it differs, and return the current one.

        Raises:
            ApiError: from the management cluster; Conflict if other clients keep writing to the Machine.
        """
        resource = self._caches.version.machines
        path = resource.object(machine.name, machine.cluster.namespace)
        holder = _HOLDERS[resource.version]
        for attempt in range(_ATTEMPTS):
            manifest = await self._client.get(path)
            if text_of(mapping_of(manifest, "metadata"), "uid") != machine.uid:
                raise NotFound("another Machine has this name now")
            conditions = _conditions(manifest, holder)
            before = _ours(conditions)
            if content == NOT_YET and before.get("status") in ("False", "Unknown"):
                return content  # the existing message, perhaps from before a restart, says more
            desired = self._condition(content, before, manifest)
            if desired == before:
                return content
            others = [condition for condition in conditions if condition.get("type") != NODE_ATTESTED]
            if len(others) >= MAXIMUM_CONDITIONS:
                self._log_once(f"Machine {machine.name} has {len(others)} other conditions already")
                return content
            patch: JsonObject = {"conditions": [*others, desired]}
            for part in reversed(holder):
                patch = {part: patch}
            patch["metadata"] = {"resourceVersion": text_of(mapping_of(manifest, "metadata"), "resourceVersion")}
            try:
                after = await self._client.patch(f"{path}/status", patch)
            except Conflict:
                if attempt + 1 == _ATTEMPTS:
                    raise
                continue
            if not _ours(_conditions(after, holder)):
                self._disable("the schema of Machines does not keep the condition", _EVERYWHERE)
            break
        return content

    def _condition(self, content: NodeAttested, before: JsonObject, manifest: JsonObject) -> JsonObject:
        unchanged = before.get("status") == content.status and isinstance(before.get("lastTransitionTime"), str)
        condition: JsonObject = {
            "type": NODE_ATTESTED,
            "status": content.status,
            "lastTransitionTime": before["lastTransitionTime"] if unchanged else format_time(self._now()),
            "reason": content.reason,
            "message": with_hint(content.message, content.hint),
        }
        # The condition follows records, not spec: a new generation alone is no reason to write.
        message = str(before.get("message"))
        same = unchanged and (before.get("reason"), without_hint(message)) == (content.reason, content.message)
        if same:
            condition["message"] = message  # the name of another request in the hint is no reason to write
        generation = before.get("observedGeneration") if same else (manifest.get("metadata") or {}).get("generation")
        return condition if generation is None else {**condition, "observedGeneration": generation}

    def _disable(self, cause: str, where: str) -> None:
        self._disabled_until[where] = self._monotonic() + DISABLED_SECONDS
        self._log_once(cause)

    def _is_disabled(self, namespace: str) -> bool:
        now = self._monotonic()
        return any(self._disabled_until.get(where, now) > now for where in (_EVERYWHERE, namespace))

    def _log_once(self, cause: str) -> None:
        """Log each cause once, up to a bound."""
        if cause not in self._logged and len(self._logged) < 100:
            self._logged.add(cause)
            _LOG.warning("condition NodeAttested is not written", extra={"detail": cause})


def _flow(machine: ObjectKey) -> Flow:
    """One flow per namespace, so that thousands of denied Machines of one tenant do not delay the others'."""
    return Flow(PriorityLevel.PLAUSIBLE, machine[0])


def _has_gate(machine: MachineView) -> bool:
    return machine.kind == MACHINE_KIND and NODE_ATTESTED in machine.readiness_gates


def _conditions(manifest: JsonObject, holder: tuple[str, ...]) -> list[JsonObject]:
    parent: Any = manifest
    for part in holder:
        parent = parent.get(part) if isinstance(parent, dict) else None
    conditions = parent.get("conditions") if isinstance(parent, dict) else None
    return [item for item in conditions if isinstance(item, dict)] if isinstance(conditions, list) else []


def _ours(conditions: Iterable[JsonObject]) -> JsonObject:
    return next((condition for condition in conditions if condition.get("type") == NODE_ATTESTED), {})
