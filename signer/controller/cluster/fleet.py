"""Which workload clusters are served: Clusters with a NodeAttestationPolicy of their name that the filter lets in, and
that are in this replica's shards.

No other is touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from random import SystemRandom
from typing import Final, Protocol

from signer.kube.backoff import Backoff
from signer.kube.supervision import isolated
from signer.model.cluster import ClusterKey
from signer.store.caches import ALL_PROVIDER_IDS, Caches, ProviderIDs

_LOG = logging.getLogger(__name__)
_RESTART: Final = Backoff(base_seconds=1.0, maximum_seconds=60.0, jitter=0.5)


class ServedCluster(Protocol):
    """What the fleet needs of a workload cluster."""

    async def run(self) -> None:
        """Serve until cancelled or stopped."""
        ...

    def stop(self) -> None:
        """Finish what is under way."""
        ...

    def wake(self, provider_ids: ProviderIDs) -> None:
        """Something changed."""
        ...

    def close(self) -> None:
        """It is no longer served."""
        ...

    def busy_seconds(self) -> float:
        """How long a worker has had the same request at most; 0 where none works."""
        ...


def _nobody(task: str) -> None:
    """Nobody counts."""


class Fleet:
    """Starts, wakes, stops and restarts the tasks of workload clusters as the inventory changes."""

    def __init__(
        self,
        caches: Caches,
        start: Callable[[ClusterKey], ServedCluster],
        failed: Callable[[str], None] = _nobody,
    ) -> None:
        """``failed`` is told when a defect has ended the task of a cluster."""
        self._failed = failed
        self._caches = caches
        self._start = start
        self._served: dict[ClusterKey, ServedCluster] = {}
        self._tasks: dict[ClusterKey, asyncio.Task[None]] = {}
        self._leaving: set[ClusterKey] = set()
        """Of them, those that finish what they have in hand, for another replica shall serve their clusters."""
        self._changed = asyncio.Event()
        self._draining = asyncio.Event()
        caches.on_change(self.wake)
        caches.on_shards(self._changed.set)

    @property
    def served(self) -> frozenset[ClusterKey]:
        """The clusters that have a task now."""
        return frozenset(self._tasks)

    def busy_seconds(self) -> tuple[float, ...]:
        """How long the workers of each cluster have had the same request at most, where they have one."""
        busy = (cluster.busy_seconds() for cluster in self._served.values())
        return tuple(seconds for seconds in busy if seconds > 0)

    async def run(self) -> None:
        """Follow the inventory until cancelled; then every cluster's task is cancelled too."""
        try:
            while True:
                self._changed.clear()
                self._follow()
                await self._changed.wait()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def drain(self, timeout_seconds: float) -> None:
        """Let every cluster finish what it has in hand, within ``timeout_seconds``; none is started any more."""
        self._draining.set()
        for cluster in self._served.values():
            cluster.stop()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=timeout_seconds)

    async def hand_over(self, concerned: Callable[[ClusterKey], bool], timeout_seconds: float) -> None:
        """Return when nothing is done any more for those clusters; their shards are being left.

        They finish what they have in hand, within ``timeout_seconds``; what is left then is cancelled.
        """
        self._follow()
        leaving = {key: self._tasks[key] for key in self._leaving if concerned(key)}
        try:
            if leaving:
                await asyncio.wait(leaving.values(), timeout=timeout_seconds)
        finally:
            for key, task in leaving.items():
                task.cancel()
                self._forget(key, task)
            self._changed.set()  # one may have become ours again
        await asyncio.gather(*leaving.values(), return_exceptions=True)

    def wake(self, cluster: ClusterKey, provider_ids: ProviderIDs) -> None:
        """Something changed that the requests of that cluster may wait for."""
        if provider_ids == ALL_PROVIDER_IDS:  # a Cluster or a policy
            self._changed.set()
        served = self._served.get(cluster)
        if served is not None:
            served.wake(provider_ids)

    def _follow(self) -> None:
        if self._draining.is_set():
            return
        policies = self._caches.policies
        wanted = {
            cluster.key
            for cluster in self._caches.clusters.values()
            if not cluster.deleting
            and self._caches.serves(cluster)
            and policies.get(cluster.key.namespace, cluster.key.name) is not None
        }
        for key in wanted - self._tasks.keys():
            _LOG.info("serving cluster", extra={"cluster": str(key)})
            self._tasks[key] = asyncio.create_task(self._supervise(key), name=f"cluster {key}")
        for key in self._tasks.keys() - wanted - self._leaving:
            if self._caches.shards.leave(key) and key in self._served:
                _LOG.info("handing over cluster", extra={"cluster": str(key)})
                self._leaving.add(key)
                self._served[key].stop()
            else:
                _LOG.info("no longer serving cluster", extra={"cluster": str(key)})
                self._tasks[key].cancel()
                self._forget(key, self._tasks[key])

    def _forget(self, key: ClusterKey, task: asyncio.Task[None]) -> None:
        """That task's end is no longer waited for."""
        if self._tasks.get(key) is task:
            del self._tasks[key]
            self._served.pop(key, None)
        self._leaving.discard(key)

    async def _supervise(self, key: ClusterKey) -> None:
        """Run one cluster; a fault of its task is logged and the task started anew, the others unaffected."""
        attempt = 0
        while not self._draining.is_set() and key not in self._leaving:
            with isolated(partial(self._task_failed, key)):
                await self._serve(key)
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RESTART.delay(attempt, SystemRandom())):
                    await self._draining.wait()
            attempt += 1

    def _task_failed(self, key: ClusterKey, error: BaseException) -> None:
        self._failed("cluster")
        _LOG.error("a cluster's task failed", exc_info=error, extra={"cluster": str(key)})

    async def _serve(self, key: ClusterKey) -> None:
        cluster = self._served[key] = self._start(key)
        try:
            await cluster.run()
        finally:
            # Under its key there may be its successor, where the Cluster went and came back.
            if self._served.get(key) is cluster:
                del self._served[key]
            cluster.close()
