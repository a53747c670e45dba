"""Instances by account and region: many questions at once become few calls of DescribeInstances.

AWS limits calls per account and region, and who uses the limit up hurts everybody else in that account. So questions
gather for a moment, one call asks for all of them, calls have a rate, and an answer serves for seconds.
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
"""For how long the first question of a call waits for others."""
CALLS_PER_SECOND: Final = 1.0
"""For each account and region, in the long run; AWS allows some 20."""
BURST: Final = 2
LIFETIME_SECONDS: Final = 5.0
"""How old an answer may be."""
FAILURE_SECONDS: Final = 2.0
MAXIMUM_QUESTIONS: Final = 2000
"""That wait at once, for each account and region."""

_SERVICE: Final = "AWS EC2"


@dataclass(frozen=True, slots=True)
class NotListed:
    """EC2 does not know the instance: not yet, or no longer, or it is another account's."""


Found: TypeAlias = Instance | NotListed
Describe: TypeAlias = Callable[[str, Region, Sequence[str]], Awaitable[Sequence[Described]]]
"""Account, region, instance IDs."""


@dataclass(slots=True)
class _Desk:
    """The questions about one account and region that no call has asked yet."""

    bucket: TokenBucket
    waiting: dict[str, asyncio.Future[Found]] = field(default_factory=dict)
    clerk: asyncio.Task[None] | None = None


class InstanceDirectory:
    """Answers questions about instances. For one event loop.

    Args:
        describe: asks EC2 about at most ``at_once`` instances of one account and region.
        at_once: how many.
        clock: monotonic seconds.
        sleep: passes them.
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
        self._desks: dict[tuple[str, str], _Desk] = {}
        self._cache: SingleFlightCache[tuple[str, str, str], Found] = SingleFlightCache(
            lifetime_seconds=LIFETIME_SECONDS, failure_seconds=FAILURE_SECONDS, clock=clock
        )

    async def find(self, account: str, region: Region, instance_id: str) -> Found:
        """What EC2 says of an instance, seconds ago at most.

        Raises:
            CloudUnavailable, CloudRefused: there is no answer.
        """
        key = (account, region.name, instance_id)
        return await self._cache.get(key, lambda: self._ask(account, region, instance_id))

    async def _ask(self, account: str, region: Region, instance_id: str) -> Found:
        desk = self._desk(account, region)
        if len(desk.waiting) >= MAXIMUM_QUESTIONS:
            raise CloudUnavailable(_SERVICE, "not asked: too many instances of the account are asked for already")
        question = desk.waiting.setdefault(instance_id, asyncio.get_running_loop().create_future())
        if desk.clerk is None or desk.clerk.done():
            desk.clerk = asyncio.create_task(self._serve(desk, account, region), name=f"ec2 {account} {region.name}")
        return await question

    def _desk(self, account: str, region: Region) -> _Desk:
        key = (account, region.name)
        if key not in self._desks:
            bucket = TokenBucket(BURST, 1 / CALLS_PER_SECOND, self._clock)
            self._desks[key] = _Desk(bucket)
        return self._desks[key]

    async def _serve(self, desk: _Desk, account: str, region: Region) -> None:
        """One call after the other, as long as anybody waits."""
        try:
            while desk.waiting:
                await self._sleep(max(GATHER_SECONDS, desk.bucket.take()))
                asked = {
                    instance_id: desk.waiting.pop(instance_id) for instance_id in list(desk.waiting)[: self._at_once]
                }
                await self._answer(asked, account, region)
        finally:
            # Only where the loop ends: nobody may wait for a clerk who has gone.
            for question in desk.waiting.values():
                question.cancel()
            desk.waiting.clear()

    async def _answer(self, asked: dict[str, asyncio.Future[Found]], account: str, region: Region) -> None:
        waiting = [(instance_id, question) for instance_id, question in asked.items() if not question.done()]
        try:
            found = {instance.instance_id: instance for instance in await self._describe(account, region, list(asked))}
        except BaseException as error:  # whoever asked must hear of it, whatever it is
            for _, question in waiting:
                if isinstance(error, Exception):
                    question.set_exception(error)
                else:
                    question.cancel()
            if not isinstance(error, Exception):
                raise
        else:
            for instance_id, question in waiting:
                answer = found.get(instance_id, NotListed())
                if isinstance(answer, NotUnderstood):
                    question.set_exception(CloudUnavailable(_SERVICE, answer.cause))
                else:
                    question.set_result(answer)
