"""Looks after one workload cluster while it is connected: the gateway's objects there, and its credential."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Final, Protocol, TypeAlias

from signer.access.containers.conditions import (
    CONNECTED,
    CONTAINER_ACCESS_READY,
    FAILED,
    FORBIDDEN,
    FOREIGN_OBJECT,
    NOT_REMOVED,
    Connected,
    NoProblem,
    Problem,
)
from signer.access.containers.connections import ConnectionSecrets
from signer.access.containers.creators import Creators
from signer.access.containers.credential import Credential, render_kubeconfig, request_credential
from signer.access.containers.wishes import Wish
from signer.access.containers.workload import ForeignObject, WorkloadCalls, ensure_objects, remove_objects
from signer.kube.backoff import Backoff
from signer.kube.connection import ClusterConnection
from signer.kube.errors import ApiError, Conflict, Forbidden
from signer.kube.scheduling import TimedSemaphore
from signer.model.cluster import ClusterKey
from signer.model.condition import PolicyCondition
from signer.model.decision import Deferred, printable
from signer.model.tools_image import NamedToolsImage

_LOG = logging.getLogger(__name__)
IDLE_SECONDS: Final = 600.0
"""While there is nothing to do; a change of Cluster or policy is seen at once."""
VERIFIED_SECONDS: Final = 300.0
"""Between looks at the objects in the workload cluster."""
WAITING: Final = Backoff(base_seconds=5.0, maximum_seconds=VERIFIED_SECONDS, jitter=0.2)
REMOVE_BY_HAND: Final = "or remove the gateway's ServiceAccount and roles there yourself"
LOOKS_AT_ONCE: Final = 16
LOOK_SECONDS: Final = 2.0
"""Of all workload clusters together; a look that takes longer goes on without its slot."""


class WorkloadClient(WorkloadCalls, Protocol):
    """A client that knows where it is connected."""

    @property
    def server(self) -> ClusterConnection:
        """The API server's address and CAs."""
        ...


@dataclass(frozen=True, slots=True)
class NoCredential:
    """None was asked for yet."""


_Shown: TypeAlias = Problem | NoProblem | Connected


class ContainerAccessReconciler:
    """Looks after one workload cluster."""

    name: Final = "container access"

    def __init__(
        self,
        key: ClusterKey,
        *,
        connections: ConnectionSecrets,
        creators: Creators,
        tools: NamedToolsImage,
        slots: TimedSemaphore,
        changed: Callable[[], None],
        now: Callable[[], datetime],
        random: Random,
    ) -> None:
        """``changed`` is called when conditions have changed. ``slots`` limits the looks at all workload clusters."""
        self._key = key
        self._connections = connections
        self._creators = creators
        self._tools = tools
        self._slots = slots
        self._changed = changed
        self._now = now
        self._random = random
        self._wanted = asyncio.Event()
        self._waits = 0
        self._credential: Credential | NoCredential = NoCredential()
        self._is_removed = False
        """Nothing of it is in the workload cluster, as this process knows."""
        self._shown: _Shown = NoProblem()

    @property
    def state(self) -> _Shown:
        """What the last looks have shown: at the workload cluster, then at the Secret."""
        return self._connections.state_of(self._key) if isinstance(self._shown, Connected) else self._shown

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """For the policy's status."""
        match self.state:
            case NoProblem():
                return ()
            case Problem(reason, message):
                return (PolicyCondition(CONTAINER_ACCESS_READY, False, reason, printable(message)),)
            case Connected():
                message = "the gateway has a credential for the workload cluster"
                return (PolicyCondition(CONTAINER_ACCESS_READY, True, CONNECTED, message),)

    def wake(self) -> None:
        """The Cluster, its policy or the creators of its grants have changed."""
        self._wanted.set()

    async def run(self, client: WorkloadClient) -> None:
        """Work until cancelled."""
        self._connections.follow(self._key, self._changed)
        self._creators.follow(self._key, self.wake)
        while True:
            self._wanted.clear()
            before = tuple(self.conditions)
            async with self._slots.turn():
                pause = await self.look(client)
            if tuple(self.conditions) != before:
                self._changed()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wanted.wait()

    async def look(self, client: WorkloadClient) -> float:
        """One pass; returns how many seconds to wait before the next one."""
        try:
            wish = self._connections.wish(self._key)
        except Deferred:
            return self._waiting()
        match wish:
            case Wish.UNDECIDED:
                return IDLE_SECONDS
            case Wish.WITHDRAWN:
                return await self._remove(client)
            case Wish.WANTED:
                return await self._ensure(client)

    async def _ensure(self, client: WorkloadClient) -> float:
        self._is_removed = False
        try:
            creators = self._creators.wanted(self._key)
            uid = await ensure_objects(client, creators, self._tools)
            self._creators.written(self._key, creators)
            credential = await self._current(client, uid)
        except Deferred:
            return self._waiting()
        except ForeignObject as error:
            return self._failed(FOREIGN_OBJECT, str(error))
        except Conflict:
            return self._failed(FAILED, "another client changes the gateway's objects in the workload cluster")
        except Forbidden as error:
            return self._failed(
                FORBIDDEN, f"workload cluster: {error}; grant what deploy/rbac/workload-containers.yaml has"
            )
        except ApiError as error:
            return self._failed(FAILED, f"workload cluster: {error}")
        self._connections.offer(self._key, render_kubeconfig(client.server, credential))
        self._shown, self._waits = Connected(), 0
        until_renewal = (credential.renewed - self._now()).total_seconds()
        until_change = self._creators.seconds_left(self._key)
        return max(min(VERIFIED_SECONDS, until_renewal, until_change), 1.0)

    async def _current(self, client: WorkloadClient, uid: str) -> Credential:
        """The credential, a new one if half of its time is over, or the ServiceAccount is another one."""
        known, now = self._credential, self._now()
        if isinstance(known, Credential) and known.account_uid == uid and now < known.renewed:
            return known
        self._credential = made = await request_credential(client, uid, now, self._random)
        return made

    async def _remove(self, client: WorkloadClient) -> float:
        """The token ends with its ServiceAccount."""
        self._connections.withdraw(self._key)
        self._creators.withdrawn(self._key)
        if self._is_removed:
            self._shown = NoProblem()
            return IDLE_SECONDS
        try:
            removed = await remove_objects(client)
        except ApiError as error:
            if not isinstance(self._shown, NoProblem):
                return self._failed(NOT_REMOVED, f"workload cluster: {error}; {REMOVE_BY_HAND}")
            if isinstance(error, Forbidden):  # this process made nothing there, and may not even look
                self._is_removed = True
                return IDLE_SECONDS
            return self._waiting()
        if removed:
            _LOG.info("container access is taken away", extra={"cluster": str(self._key)})
        self._is_removed, self._shown, self._waits = True, NoProblem(), 0
        return IDLE_SECONDS

    def _failed(self, reason: str, message: str) -> float:
        said = printable(message)
        _LOG.warning(
            "container access is not as it should be",
            extra={"cluster": str(self._key), "reason": reason, "error": said},
        )
        self._shown = Problem(reason, said)
        return self._waiting()

    def _waiting(self) -> float:
        self._waits += 1
        return WAITING.delay(self._waits - 1, self._random)


__all__ = ["LOOKS_AT_ONCE", "LOOK_SECONDS", "ContainerAccessReconciler", "WorkloadClient"]
