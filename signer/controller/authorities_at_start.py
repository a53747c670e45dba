"""The CAs of all Clusters are read when the controller starts, before anything is decided that they could change.

A Cluster that has another one's CA is found by comparison. Until the other's CA was read, the comparison says nothing,
and the first of the two to be decided would reserve the identities of the other's nodes. Policies publish the CAs that
an earlier run has read; at the first start nothing is published, and later a CA may have changed meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from signer.decision.authority_secrets import AuthorityUnavailable, AuthorityUnreachable
from signer.decision.authority_source import AuthoritySource
from signer.kube.supervision import isolated
from signer.model.cluster import ClusterKey
from signer.store.caches import Caches

_LOG = logging.getLogger(__name__)
READ_SECONDS: Final = 60.0
"""After this time without an answer, requests no longer wait for CAs that could not be read. As long as caches may be
out of touch: whatever keeps one read from an answer for longer must not stop all Clusters. A large fleet may take
longer in all."""
READS_AT_ONCE: Final = 16
"""A quarter of the connections to the management cluster: the Clusters' own tasks start at the same time."""
ATTEMPT_SECONDS: Final = 10.0
"""A read that takes longer is made again after the others, so that it keeps no place."""
PAUSE_SECONDS: Final = 2.0
"""Between two rounds over the Clusters whose CAs could not be read."""


class AuthoritiesAtStart:
    """Reads the CA of every Cluster with a policy once, whichever replica serves it."""

    def __init__(
        self, caches: Caches, make: Callable[[ClusterKey], AuthoritySource], *, monotonic: Callable[[], float]
    ) -> None:
        """``make`` makes a source that tells the index of CAs what it reads."""
        self._caches = caches
        self._index = caches.authorities
        self._make = make
        self._monotonic = monotonic
        self._sources: dict[ClusterKey, AuthoritySource] = {}
        self._offered: dict[ClusterKey, AuthoritySource] = {}
        """Of Clusters whose task has not started, so that one read serves both."""
        self._until = 0.0
        self._limit = asyncio.timeout_at(None)

    def begin(self) -> None:
        """From now on requests wait. Call this when the caches are filled, before the first Cluster is served."""
        selects, policies = self._caches.watch_filter.selects, self._caches.policies
        keys = [
            cluster.key
            for cluster in self._caches.clusters.values()
            if selects(cluster) and policies.get(cluster.key.namespace, cluster.key.name) is not None
        ]
        self._sources = {key: self._make(key) for key in keys}
        self._offered = dict(self._sources)
        self._until = asyncio.get_running_loop().time() + READ_SECONDS
        self._index.reading(keys)

    def source(self, key: ClusterKey) -> AuthoritySource:
        """The source for the task of that Cluster."""
        return self._offered.pop(key, None) or self._make(key)

    async def run(self) -> None:
        """Read all CAs. Returns when each read has an answer, or after ``READ_SECONDS`` without any."""
        count, began = len(self._index.unread), asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(self._until) as self._limit:
                await self._read_all()
            seconds = round(asyncio.get_running_loop().time() - began, 3)
            _LOG.info("the CAs of all Clusters are read", extra={"lookedAt": count, "seconds": seconds})
        except TimeoutError:
            unread = sorted(self._index.unread, key=str)
            _LOG.warning(
                "requests no longer wait for CAs that could not be read since the start: until they are read, a "
                "Cluster that shares one of them is not found",
                extra={"failed": len(unread), "cluster": str(unread[0]) if unread else ""},
            )
        self._sources.clear()
        self._offered.clear()
        self._index.reading_ended()

    async def _read_all(self) -> None:
        not_before = float("-inf")
        while self._index.unread:
            places = asyncio.Semaphore(READS_AT_ONCE)
            async with asyncio.TaskGroup() as tasks:
                for key in sorted(self._index.unread, key=str):
                    tasks.create_task(self._read(key, places, not_before), name=f"first CA of {key}")
            if self._index.unread:
                await asyncio.sleep(PAUSE_SECONDS)
            not_before = self._monotonic()

    async def _read(self, key: ClusterKey, places: asyncio.Semaphore, not_before: float) -> None:
        async with places:
            with isolated(partial(_read_failed, key)):
                try:
                    async with asyncio.timeout(ATTEMPT_SECONDS):
                        await self._sources[key].authority(not_before=not_before)
                except (AuthorityUnreachable, TimeoutError):
                    return  # the next round reads it again
                except AuthorityUnavailable:
                    pass  # an answer: this CA signs nothing
            # Also after a defect that one tenant's Secret causes: it must not hold the others.
            self._index.answered(key)
            self._until = asyncio.get_running_loop().time() + READ_SECONDS
            if not self._limit.expired():
                self._limit.reschedule(self._until)


def _read_failed(key: ClusterKey, error: BaseException) -> None:
    _LOG.error("the CA of a Cluster could not be read", exc_info=error, extra={"cluster": str(key)})
