"""Looks for other ways into one workload cluster's nodes, now and then, while its policy turns SSH on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from signer.configuration import SSHPermission
from signer.kube.backoff import Backoff
from signer.model.cluster import ClusterKey
from signer.model.condition import PolicyCondition
from signer.model.decision import Deferred
from signer.model.policy import Policy
from signer.model.ssh_access import SSHSettings
from signer.ssh.status import condition_of_ways_in
from signer.ssh.ways_reading import ManagementCalls, read_ways_in
from signer.store.caches import Caches

LOOK_SECONDS: Final = Backoff(base_seconds=1800.0, maximum_seconds=1800.0, jitter=0.2)
"""Between looks: each lists the cluster's KubeadmConfigs and InfraMachines."""
OUT_OF_TOUCH_SECONDS: Final = 60.0


class WaysInWatch:
    """The condition of one workload cluster."""

    name: Final = "other ways in"

    def __init__(
        self,
        key: ClusterKey,
        *,
        management: ManagementCalls,
        caches: Caches,
        permission: SSHPermission,
        changed: Callable[[], None],
        random: Random,
    ) -> None:
        """``changed`` is called when the condition has changed."""
        self._key = key
        self._management = management
        self._caches = caches
        self._permission = permission
        self._changed = changed
        self._random = random
        self._wanted = asyncio.Event()
        self._last: tuple[PolicyCondition, ...] = ()

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """For the policy's status; empty unless the policy turns SSH on."""
        return self._last if self._is_on() else ()

    def wake(self) -> None:
        """The Cluster or its policy has changed."""
        if self._is_on() != bool(self._last):
            self._wanted.set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self._wanted.clear()
            pause = await self.look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wanted.wait()

    async def look(self) -> float:
        """One look; returns how many seconds to wait before the next one."""
        if not self._is_on():
            self._show(())
            return LOOK_SECONDS.delay(0, self._random)
        try:
            self._caches.require_in_touch()
        except Deferred:
            return OUT_OF_TOUCH_SECONDS
        ways = await read_ways_in(self._management, self._key, self._caches.machines_of(self._key))
        self._show((condition_of_ways_in(ways),))
        return LOOK_SECONDS.delay(0, self._random)

    def _show(self, conditions: tuple[PolicyCondition, ...]) -> None:
        if conditions != self._last:
            self._last = conditions
            self._changed()

    def _is_on(self) -> bool:
        policy = self._caches.policies.get(self._key.namespace, self._key.name)
        on = isinstance(policy, Policy) and isinstance(policy.ssh, SSHSettings)
        return on and self._permission.allows(self._key.namespace)


__all__ = ["LOOK_SECONDS", "OUT_OF_TOUCH_SECONDS", "WaysInWatch"]
