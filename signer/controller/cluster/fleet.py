"""Runs one task for each workload cluster that this replica serves.

A Cluster is served if it has a NodeAttestationPolicy of its name, matches the watch filter, and is in this replica's
shards. The controller touches no other Cluster.
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
    """A workload cluster as the fleet sees it."""

    async def run(self) -> None:
        """Serve until cancelled or stopped."""
        ...

    def stop(self) -> None:
        """Finish the requests that are being handled."""
        ...

    def wake(self, provider_ids: ProviderIDs) -> None:
        """Something that requests may wait for has changed."""
        ...

    def machines_changed(self) -> None:
        """Machines of the cluster have changed."""
        ...

    def close(self) -> None:
        """Release everything: the cluster is no longer served."""
        ...

    def busy_seconds(self) -> float:
        """The longest time that a worker has spent on its current request; 0 if no worker is busy."""
        ...


def _ignore(task: str) -> None:
    """Default for ``failed``."""


class Fleet:
    """Starts, wakes, stops and restarts the tasks of workload clusters as the caches change."""

    def __init__(
        self,
        caches: Caches,
        start: Callable[[ClusterKey], ServedCluster],
        failed: Callable[[str], None] = _ignore,
    ) -> None:
        """``failed`` is called when a defect has ended the task of a cluster."""
        self._failed = failed
        self._caches = caches
        self._start = start
        self._served: dict[ClusterKey, ServedCluster] = {}
        self._tasks: dict[ClusterKey, asyncio.Task[None]] = {}
        self._handing_over: set[ClusterKey] = set()
        """Clusters that finish their current requests because another replica takes over their shard."""
        self._changed = asyncio.Event()
        self._draining = asyncio.Event()
        caches.on_change(self.wake)
        caches.on_machine_change(self._machines_changed)
        caches.on_shards_changed(self._changed.set)

    @property
    def served(self) -> frozenset[ClusterKey]:
        """The clusters that have a task now."""
        return frozenset(self._tasks)

    def busy_seconds(self) -> tuple[float, ...]:
        """For each cluster with a busy worker, the longest time that a worker has spent on its current request."""
        busy = (cluster.busy_seconds() for cluster in self._served.values())
        return tuple(seconds for seconds in busy if seconds > 0)

    async def run(self) -> None:
        """Reconcile the tasks with the caches until cancelled; then cancel every cluster's task."""
        try:
            while True:
                self._changed.clear()
                self._reconcile()
                await self._changed.wait()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def drain(self, timeout_seconds: float) -> None:
        """Let every cluster finish its current requests within ``timeout_seconds``. No cluster starts afterwards."""
        self._draining.set()
        for cluster in self._served.values():
            cluster.stop()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=timeout_seconds)

    async def hand_over(self, concerned: Callable[[ClusterKey], bool], timeout_seconds: float) -> None:
        """Stop the tasks of the ``concerned`` clusters, whose shards are handed over, and wait for them.

        They finish their current requests within ``timeout_seconds``; the rest is cancelled.
        """
        self._reconcile()
        handed_over = {key: self._tasks[key] for key in self._handing_over if concerned(key)}
        try:
            if handed_over:
                await asyncio.wait(handed_over.values(), timeout=timeout_seconds)
        finally:
            for key, task in handed_over.items():
                task.cancel()
                self._forget(key, task)
            self._changed.set()  # a shard may have become ours again
        await asyncio.gather(*handed_over.values(), return_exceptions=True)

    def wake(self, cluster: ClusterKey, provider_ids: ProviderIDs) -> None:
        """Something that the requests of the cluster may wait for has changed."""
        if provider_ids == ALL_PROVIDER_IDS:  # a Cluster or a policy
            self._changed.set()
        served = self._served.get(cluster)
        if served is not None:
            served.wake(provider_ids)

    def _machines_changed(self, cluster: ClusterKey, provider_ids: ProviderIDs) -> None:
        served = self._served.get(cluster)
        if served is not None:
            served.machines_changed()

    def _reconcile(self) -> None:
        if self._draining.is_set():
            return
        policies = self._caches.policies
        desired = {
            cluster.key
            for cluster in self._caches.clusters.values()
            # A Cluster that is deleted for good has nodes until it is gone.
            if not (cluster.deleting and cluster.deleting_for_move)
            and self._caches.serves(cluster)
            and policies.get(cluster.key.namespace, cluster.key.name) is not None
        }
        for key in desired - self._tasks.keys():
            _LOG.info("serving cluster", extra={"cluster": str(key)})
            self._tasks[key] = asyncio.create_task(self._supervise(key), name=f"cluster {key}")
        for key in self._tasks.keys() - desired - self._handing_over:
            if self._caches.shards.leave(key) and key in self._served:
                _LOG.info("handing over cluster", extra={"cluster": str(key)})
                self._handing_over.add(key)
                self._served[key].stop()
            else:
                _LOG.info("no longer serving cluster", extra={"cluster": str(key)})
                self._tasks[key].cancel()
                self._forget(key, self._tasks[key])

    def _forget(self, key: ClusterKey, task: asyncio.Task[None]) -> None:
        """Forget the task of a cluster unless a newer one has replaced it."""
        if self._tasks.get(key) is task:
            del self._tasks[key]
            self._served.pop(key, None)
        self._handing_over.discard(key)

    async def _supervise(self, key: ClusterKey) -> None:
        """Run one cluster; restart its task with backoff after a defect. Other clusters are unaffected."""
        attempt = 0
        while not self._draining.is_set() and key not in self._handing_over:
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
            # A successor may have the key if the Cluster was deleted and re-created.
            if self._served.get(key) is cluster:
                del self._served[key]
            cluster.close()
