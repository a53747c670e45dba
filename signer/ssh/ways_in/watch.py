"""Has one cluster's objects read every few minutes, while its policy turns SSH on, and keeps the condition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from signer.configuration import SSHPermission
from signer.kube.calls import GetList
from signer.kube.errors import ApiError
from signer.kube.supervision import until_wanted
from signer.model.cluster import ClusterKey
from signer.model.condition import PolicyCondition
from signer.model.policy import Policy
from signer.model.ssh_access import SSHSettings
from signer.ssh.ways_in.reading import WaysInReader
from signer.ssh.ways_in.status import condition_of, not_known
from signer.store.caches import Caches

IDLE_SECONDS: Final = 600.0
"""Between looks at a policy that does not turn SSH on; a change of it is seen at once."""
LOOK_SECONDS: Final = 600.0
"""Between passes over the objects."""
LEAST_SECONDS: Final = 30.0
"""Between passes, however often Cluster and policy change: a tenant may change them, and a pass lists much."""
JITTER: Final = 0.2
"""Part of the pause that is random: replicas start with many clusters at once."""


class WaysInWatch:
    """Looks for other ways into the machines of one workload cluster."""

    name: Final = "other ways in"

    def __init__(
        self,
        key: ClusterKey,
        *,
        management: GetList,
        caches: Caches,
        permission: SSHPermission,
        changed: Callable[[], None],
        random: Random,
    ) -> None:
        """``changed`` is called when the condition has changed."""
        self._key = key
        self._caches = caches
        self._permission = permission
        self._changed = changed
        self._random = random
        self._reader = WaysInReader(management, caches.version, key)
        self._wanted = asyncio.Event()
        self._conditions: tuple[PolicyCondition, ...] = ()

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """For the policy's status; none while it does not turn SSH on."""
        return self._conditions if self._wants() else ()

    def wake(self) -> None:
        """The Cluster or its policy has changed."""
        self._wanted.set()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            self._wanted.clear()
            pause = await self.look()
            if self._conditions:
                await asyncio.sleep(LEAST_SECONDS)
            await until_wanted(self._wanted, pause * (1 - JITTER * self._random.random()))

    async def look(self) -> float:
        """One pass; returns how many seconds to wait before the next one."""
        before, self._conditions = self._conditions, await self._read() if self._wants() else ()
        if self._conditions != before:
            self._changed()
        return LOOK_SECONDS if self._conditions else IDLE_SECONDS

    async def _read(self) -> tuple[PolicyCondition, ...]:
        try:
            return (condition_of(await self._reader.read()),)
        except ApiError as error:
            return (not_known(f"the Cluster cannot be read: {error}"),)

    def _wants(self) -> bool:
        policy = self._caches.policies.get(self._key.namespace, self._key.name)
        cluster = self._caches.clusters.get(self._key.namespace, self._key.name)
        return (
            isinstance(policy, Policy)
            and isinstance(policy.ssh, SSHSettings)
            and self._permission.allows(self._key.namespace)
            and cluster is not None
            and not cluster.deleting
        )


__all__ = ["WaysInWatch"]
