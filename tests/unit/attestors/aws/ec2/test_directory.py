"""Many questions become few calls, at a rate, and an answer is only about its own account and region."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import pytest

from attestors.aws.ec2.directory import (
    BURST,
    CALLS_PER_SECOND,
    GATHER_SECONDS,
    LIFETIME_SECONDS,
    MAXIMUM_LOOKUPS,
    Found,
    InstanceDirectory,
    NotListed,
)
from attestors.aws.ec2.instance import Described, Instance, read_description
from attestors.aws.partitions import Region, parse_region
from attestors.clouds.errors import CloudUnavailable
from attestors.net.rate_limiter import TokenBucket
from tests.unit.attestors.aws.ec2.descriptions import ACCOUNT, description

REGION: Final = parse_region("eu-west-1")
ELSEWHERE: Final = parse_region("eu-central-1")


class Clock:
    """Time that passes only while everybody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._alarms: list[tuple[float, asyncio.Event]] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        alarm = asyncio.Event()
        self._alarms.append((self.now + seconds, alarm))
        await alarm.wait()

    async def settle(self) -> None:
        """Let everything run that can."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def pass_to(self, moment: float) -> None:
        """Ring every alarm until then, in order."""
        await self.settle()
        while due := sorted((at for at, _ in self._alarms if at <= moment)):
            self.now = max(self.now, due[0])
            ringing = [alarm for at, alarm in self._alarms if at <= self.now]
            self._alarms = [(at, alarm) for at, alarm in self._alarms if at > self.now]
            for alarm in ringing:
                alarm.set()
            await self.settle()
        self.now = max(self.now, moment)


@dataclass
class DirectoryHarness:
    """A directory, and what EC2 was asked."""

    clock: Clock = field(default_factory=Clock)
    calls: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)
    odd: set[str] = field(default_factory=set)
    failure: BaseException | None = None
    at_once: int = 200

    def __post_init__(self) -> None:
        self.directory = InstanceDirectory(
            self.describe, at_once=self.at_once, clock=self.clock, sleep=self.clock.sleep
        )

    async def describe(self, account: str, region: Region, instance_ids: Sequence[str]) -> Sequence[Described]:
        self.calls.append((account, region.name, tuple(instance_ids)))
        if self.failure is not None:
            raise self.failure
        return [
            read_description(
                description(InstanceId=name, **({"State": {"Name": "dreaming"}} if name in self.odd else {})),
                account=account,
                region=region.name,
            )
            for name in instance_ids
            if name not in self.unknown
        ]

    def ask(self, instance_id: str, account: str = ACCOUNT, region: Region = REGION) -> asyncio.Task[Found]:
        return asyncio.ensure_future(self.directory.find(account, region, instance_id))

    async def answers(self, *asked: asyncio.Task[Found]) -> list[Found]:
        await self.clock.pass_to(self.clock.now + 60)
        return [task.result() for task in asked]


def name(number: int) -> str:
    return f"i-{number:017x}"


async def test_questions_of_a_moment_are_one_call() -> None:
    harness = DirectoryHarness()
    found = await harness.answers(*(harness.ask(name(number)) for number in range(50)))
    assert [instance.instance_id for instance in found if isinstance(instance, Instance)] == [
        name(number) for number in range(50)
    ]
    assert len(harness.calls) == 1


async def test_an_instance_that_is_described_oddly_spoils_no_other() -> None:
    """Whoever can give one instance what is not understood here must not keep the nodes of an account out."""
    harness = DirectoryHarness(odd={name(2)})
    asked = [harness.ask(name(number)) for number in range(4)]
    await harness.clock.pass_to(harness.clock.now + 60)
    assert len(harness.calls) == 1
    assert [isinstance(task.exception(), CloudUnavailable) for task in asked] == [False, False, True, False]
    assert str(asked[2].exception()) == "AWS EC2: EC2 describes the instance with an unknown value"
    assert all(isinstance(asked[number].result(), Instance) for number in (0, 1, 3))


async def test_the_same_question_is_asked_once() -> None:
    harness = DirectoryHarness()
    await harness.answers(*(harness.ask(name(1)) for _ in range(50)))
    assert harness.calls == [(ACCOUNT, "eu-west-1", (name(1),))]


async def test_a_single_question_waits_a_moment_only() -> None:
    harness = DirectoryHarness()
    asked = harness.ask(name(1))
    await harness.clock.pass_to(harness.clock.now + GATHER_SECONDS)
    assert asked.done()


async def test_five_hundred_joins_in_ten_seconds_are_few_calls() -> None:
    harness = DirectoryHarness()
    asked = []
    for number in range(500):
        asked.append(harness.ask(name(number)))
        await harness.clock.pass_to(harness.clock.now + 10 / 500)
    found = await harness.answers(*asked)
    assert all(isinstance(instance, Instance) for instance in found)
    assert len(harness.calls) <= 15
    assert sorted(instance for call in harness.calls for instance in call[2]) == [name(number) for number in range(500)]


async def test_no_call_asks_for_more_than_fits() -> None:
    harness = DirectoryHarness(at_once=7)
    await harness.answers(*(harness.ask(name(number)) for number in range(20)))
    assert [len(call[2]) for call in harness.calls] == [7, 7, 6]


async def test_accounts_and_regions_are_asked_apart() -> None:
    harness = DirectoryHarness()
    other = "210987654321"
    await harness.answers(
        harness.ask(name(1)), harness.ask(name(1), account=other), harness.ask(name(1), region=ELSEWHERE)
    )
    assert sorted(harness.calls) == [
        (ACCOUNT, "eu-central-1", (name(1),)),
        (ACCOUNT, "eu-west-1", (name(1),)),
        (other, "eu-west-1", (name(1),)),
    ]


async def test_an_answer_serves_for_seconds_and_for_its_own_account_only() -> None:
    harness = DirectoryHarness()
    await harness.clock.pass_to(harness.clock.now)
    asked = harness.ask(name(1))
    await harness.clock.pass_to(harness.clock.now + 1)
    again = harness.ask(name(1))
    await harness.clock.settle()
    assert asked.done()
    assert again.done()
    assert len(harness.calls) == 1
    other = harness.ask(name(1), account="210987654321")
    await harness.clock.pass_to(harness.clock.now + LIFETIME_SECONDS)
    assert other.done()
    later = harness.ask(name(1))
    await harness.clock.pass_to(harness.clock.now + 1)
    assert later.done()
    assert len(harness.calls) == 3


async def test_an_instance_that_ec2_does_not_know_spoils_no_other() -> None:
    harness = DirectoryHarness(unknown={name(2)})
    found = await harness.answers(*(harness.ask(name(number)) for number in (1, 2, 3)))
    assert [isinstance(instance, Instance) for instance in found] == [True, False, True]
    assert isinstance(found[1], NotListed)


async def test_a_failure_reaches_all_callers_and_the_next_lookup_calls_again() -> None:
    harness = DirectoryHarness(failure=CloudUnavailable("AWS EC2", "down"))
    asked = [harness.ask(name(number)) for number in range(3)]
    await harness.clock.pass_to(harness.clock.now + 1)
    for task in asked:
        with pytest.raises(CloudUnavailable):
            task.result()
    assert len(harness.calls) == 1
    harness.failure = None
    [found] = await harness.answers(harness.ask(name(4)))
    assert isinstance(found, Instance)


async def test_questions_while_a_call_is_under_way_make_the_next_call() -> None:
    harness = DirectoryHarness()
    first = harness.ask(name(1))
    await harness.clock.pass_to(harness.clock.now + GATHER_SECONDS / 2)
    second = harness.ask(name(2))
    await harness.clock.pass_to(harness.clock.now + GATHER_SECONDS)
    third = harness.ask(name(3))
    assert first.done()
    assert second.done()
    await harness.answers(third)
    assert [call[2] for call in harness.calls] == [(name(1), name(2)), (name(3),)]


async def test_too_many_questions_are_refused_and_not_kept() -> None:
    harness = DirectoryHarness()
    asked = [harness.ask(name(number)) for number in range(MAXIMUM_LOOKUPS + 1)]
    await harness.clock.settle()
    with pytest.raises(CloudUnavailable, match="too many"):
        asked[-1].result()
    await harness.answers(*asked[:-1])


async def test_a_cancelled_caller_does_not_affect_the_others() -> None:
    harness = DirectoryHarness()
    impatient, patient = harness.ask(name(1)), harness.ask(name(1))
    await harness.clock.settle()
    impatient.cancel()
    [found] = await harness.answers(patient)
    assert isinstance(found, Instance)


async def test_no_lookup_waits_after_the_loop_ends() -> None:
    harness = DirectoryHarness()
    asked = harness.ask(name(1))
    await harness.clock.settle()
    [clerk] = [task for task in asyncio.all_tasks() if task.get_name().startswith("ec2 ")]
    clerk.cancel()
    await harness.clock.settle()
    assert asked.cancelled()
    assert clerk.cancelled()


def test_the_bucket_lets_a_burst_through_and_then_a_rate() -> None:
    clock = Clock()
    bucket = TokenBucket(BURST, 1 / CALLS_PER_SECOND, clock)
    assert [bucket.take() for _ in range(BURST + 3)] == [0.0] * BURST + [1.0, 2.0, 3.0]
    clock.now += 3600
    assert [bucket.take() for _ in range(BURST + 1)] == [0.0] * BURST + [1.0]
