"""Looks up instances by account and Region, with many lookups batched into few calls of DescribeInstances.

AWS limits calls per account and Region, and exhausting the limit affects every other client of that account. Lookups
are therefore collected for a moment and sent in one call, calls are rate limited, and an answer is cached for seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from attestors.aws.ec2.instance import Described, Instance, NotUnderstood
from attestors.aws.partitions import Region
from attestors.clouds.cache import SingleFlightCache
from attestors.clouds.errors import CloudUnavailable
from attestors.net.rate_limiter import TokenBucket

GATHER_SECONDS: Final = 0.2
"""How long the first lookup of a call waits for others."""
CALLS_PER_SECOND: Final = 1.0
"""Long-term rate per account and Region; AWS allows some 20."""
BURST: Final = 2
LIFETIME_SECONDS: Final = 5.0
"""Maximum age of an answer."""
FAILURE_SECONDS: Final = 2.0
MAXIMUM_LOOKUPS: Final = 2000
"""Waiting lookups per account and Region."""

_SERVICE: Final = "AWS EC2"


@dataclass(frozen=True, slots=True)
class NotListed:
    """EC2 does not know the instance: not yet, no longer, or it belongs to another account."""


Found: TypeAlias = Instance | NotListed
Describe: TypeAlias = Callable[[str, Region, Sequence[str]], Awaitable[Sequence[Described]]]
"""Takes account, Region and instance IDs."""


@dataclass(slots=True)
class _Batch:
    """The lookups for one account and Region that are not part of a call yet."""

    bucket: TokenBucket
    waiting: dict[str, asyncio.Future[Found]] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None


class InstanceDirectory:
    """Looks up instances. For one event loop.

    Args:
        describe: calls EC2 about at most ``at_once`` instances of one account and Region.
        at_once: maximum number of instances per call.
        clock: monotonic seconds.
        sleep: sleeps that many seconds.
    """

    def __init__(
        self,
        describe: Describe,
        *,
        at_once: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._describe = describe
        self._at_once = at_once
        self._clock = clock
        self._sleep = sleep
        self._batches: dict[tuple[str, str], _Batch] = {}
        self._cache: SingleFlightCache[tuple[str, str, str], Found] = SingleFlightCache(
            lifetime_seconds=LIFETIME_SECONDS, failure_seconds=FAILURE_SECONDS, clock=clock
        )

    async def find(self, account: str, region: Region, instance_id: str) -> Found:
        """EC2's description of an instance, a few seconds old at most.

        Raises:
            CloudUnavailable, CloudRefused: there is no answer.
        """
        key = (account, region.name, instance_id)
        return await self._cache.get(key, lambda: self._ask(account, region, instance_id))

    async def _ask(self, account: str, region: Region, instance_id: str) -> Found:
        batch = self._batch(account, region)
        if len(batch.waiting) >= MAXIMUM_LOOKUPS:
            raise CloudUnavailable(
                _SERVICE, "not called: too many instances of the account are being looked up already"
            )
        lookup = batch.waiting.setdefault(instance_id, asyncio.get_running_loop().create_future())
        if batch.task is None or batch.task.done():
            batch.task = asyncio.create_task(self._serve(batch, account, region), name=f"ec2 {account} {region.name}")
        return await lookup

    def _batch(self, account: str, region: Region) -> _Batch:
        key = (account, region.name)
        if key not in self._batches:
            bucket = TokenBucket(BURST, 1 / CALLS_PER_SECOND, self._clock)
            self._batches[key] = _Batch(bucket)
        return self._batches[key]

    async def _serve(self, batch: _Batch, account: str, region: Region) -> None:
        """Make one call after the other while lookups wait."""
        try:
            while batch.waiting:
                await self._sleep(max(GATHER_SECONDS, batch.bucket.take()))
                lookups = {
                    instance_id: batch.waiting.pop(instance_id) for instance_id in list(batch.waiting)[: self._at_once]
                }
                await self._answer(lookups, account, region)
        finally:
            # Nothing is waiting unless the event loop ends: then no lookup may wait for this task.
            for lookup in batch.waiting.values():
                lookup.cancel()
            batch.waiting.clear()

    async def _answer(self, lookups: dict[str, asyncio.Future[Found]], account: str, region: Region) -> None:
        waiting = [(instance_id, lookup) for instance_id, lookup in lookups.items() if not lookup.done()]
        try:
            found = {
                instance.instance_id: instance for instance in await self._describe(account, region, list(lookups))
            }
        except BaseException as error:  # each waiting lookup must get the error, whatever it is
            for _, lookup in waiting:
                if isinstance(error, Exception):
                    lookup.set_exception(error)
                else:
                    lookup.cancel()
            if not isinstance(error, Exception):
                raise
        else:
            for instance_id, lookup in waiting:
                answer = found.get(instance_id, NotListed())
                if isinstance(answer, NotUnderstood):
                    lookup.set_exception(CloudUnavailable(_SERVICE, answer.cause))
                else:
                    lookup.set_result(answer)
