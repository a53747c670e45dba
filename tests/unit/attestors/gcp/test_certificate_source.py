"""When Google's certificates are fetched, and when not."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from attestors.clouds.errors import CloudUnavailable
from attestors.gcp.certificate_source import (
    FAILURE_INTERVAL,
    LONGEST_FRESH,
    SHORTEST_FRESH,
    STALE_LIMIT,
    UNKNOWN_KEY_INTERVAL,
    CertificatesAnswer,
    CertificateSource,
    KeyNotPublishedYet,
    UnknownKey,
)
from attestors.gcp.local_checks import CLOCK_SKEW
from tests.support.fake_google import SigningKey, signing_key
from tests.unit.attestors.gcp.support import NOW

OLD, CURRENT, NEXT = (signing_key(number) for number in range(3))
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
NOTHING = timedelta()


@dataclass
class Issuer:
    """What publishes certificates, on a clock of the test's own."""

    keys: tuple[SigningKey, ...] = (OLD, CURRENT)
    maximum_age: timedelta = HOUR
    age: timedelta = NOTHING
    body: bytes | None = None
    down: bool = False
    calls: int = 0
    elapsed: timedelta = NOTHING
    gate: asyncio.Event | None = None
    source: CertificateSource = field(init=False)

    def __post_init__(self) -> None:
        self.source = CertificateSource(self.fetch, lambda: 1000.0 + self.elapsed.total_seconds())

    @property
    def now(self) -> datetime:
        return NOW + self.elapsed

    def wait(self, time: timedelta) -> None:
        self.elapsed += time

    async def fetch(self) -> CertificatesAnswer:
        self.calls += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.down:
            raise CloudUnavailable("test", "is down")
        published = json.dumps({key.key_id: key.certificate_pem for key in self.keys}).encode()
        return CertificatesAnswer(self.body or published, self.maximum_age, self.age)

    async def has(self, key: SigningKey = CURRENT, age: timedelta = NOTHING) -> None:
        """The key is there for a token of that age."""
        found = await self.source.key(key.key_id, issued=self.now - age, now=self.now)
        assert found.key_id == key.key_id
        assert found.public_key.public_numbers() == key.key.public_key().public_numbers()

    async def unknown(self, key_id: str = "unknown", age: timedelta = 10 * HOUR) -> None:
        with pytest.raises(UnknownKey):
            await self.source.key(key_id, issued=self.now - age, now=self.now)

    async def not_yet(self, key_id: str = "unknown", age: timedelta = NOTHING) -> timedelta:
        with pytest.raises(KeyNotPublishedYet) as found:
            await self.source.key(key_id, issued=self.now - age, now=self.now)
        return found.value.retry_after

    async def unavailable(self) -> None:
        with pytest.raises(CloudUnavailable):
            await self.has()


async def test_one_call_while_they_are_fresh() -> None:
    issuer = Issuer()
    await issuer.has()
    issuer.wait(HOUR - SECOND)
    await issuer.has(OLD)
    assert issuer.calls == 1
    issuer.wait(SECOND)
    await issuer.has()
    assert issuer.calls == 2


@pytest.mark.parametrize(
    ("said", "age", "kept"),
    [
        (NOTHING, NOTHING, SHORTEST_FRESH),
        (SECOND, NOTHING, SHORTEST_FRESH),
        (timedelta(days=10_000), NOTHING, LONGEST_FRESH),
        (6 * HOUR, 2 * HOUR, 4 * HOUR),
        (HOUR, 900 * HOUR, SHORTEST_FRESH),
    ],
    ids=["nothing said", "a second", "years", "kept by a cache before", "kept by a cache for long"],
)
async def test_how_long_they_are_fresh(said: timedelta, age: timedelta, kept: timedelta) -> None:
    issuer = Issuer(maximum_age=said, age=age)
    await issuer.has()
    issuer.wait(kept - SECOND)
    await issuer.has()
    assert issuer.calls == 1
    issuer.wait(SECOND)
    await issuer.has()
    assert issuer.calls == 2


async def test_concurrent_callers_share_one_call() -> None:
    issuer = Issuer(gate=asyncio.Event())
    assert issuer.gate is not None
    waiting = [asyncio.ensure_future(issuer.has()) for _ in range(50)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # who asked first does not take the call away with it
    await asyncio.sleep(0)
    issuer.gate.set()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(ended[0], asyncio.CancelledError)
    assert ended[1:] == [None] * 49
    assert issuer.calls == 1


async def test_a_failure_without_waiting_callers() -> None:
    issuer = Issuer(gate=asyncio.Event(), down=True)
    assert issuer.gate is not None
    waiting = asyncio.ensure_future(issuer.has())
    await asyncio.sleep(0)
    waiting.cancel()
    issuer.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0)
    await issuer.unavailable()
    assert issuer.calls == 1


class TestUnknownKeys:
    async def test_a_key_that_was_published_since(self) -> None:
        issuer = Issuer()
        await issuer.has()
        issuer.wait(UNKNOWN_KEY_INTERVAL)
        issuer.keys = (CURRENT, NEXT)
        await issuer.has(NEXT)
        assert issuer.calls == 2

    async def test_a_key_that_was_published_a_moment_ago_waits(self) -> None:
        issuer = Issuer()
        await issuer.has()
        issuer.wait(10 * SECOND)
        issuer.keys = (CURRENT, NEXT)
        assert await issuer.not_yet(NEXT.key_id) == UNKNOWN_KEY_INTERVAL - 10 * SECOND
        issuer.wait(UNKNOWN_KEY_INTERVAL - 10 * SECOND)
        await issuer.has(NEXT)

    async def test_a_key_of_an_older_token_is_unknown_for_good(self) -> None:
        """Google publishes a key before it signs with it."""
        issuer = Issuer(keys=(CURRENT, NEXT))
        await issuer.unknown(OLD.key_id)
        issuer.wait(UNKNOWN_KEY_INTERVAL - SECOND)
        await issuer.unknown(OLD.key_id)
        assert issuer.calls == 1

    async def test_a_clock_that_is_ahead_makes_no_new_token_an_old_one(self) -> None:
        """By it the token was signed before the certificates were fetched, and its key was published since."""
        issuer = Issuer()
        await issuer.has()
        issuer.wait(10 * UNKNOWN_KEY_INTERVAL)
        issuer.keys = (CURRENT, NEXT)
        await issuer.has(NEXT, age=20 * UNKNOWN_KEY_INTERVAL)

    async def test_a_flood_of_old_tokens_makes_one_call_for_each_interval(self) -> None:
        issuer = Issuer(maximum_age=24 * HOUR)
        for step in range(120):
            await issuer.unknown(f"random-{step}")
            issuer.wait(SECOND)
        assert issuer.calls == 1 + 1

    @pytest.mark.parametrize(
        ("age", "known"), [(CLOCK_SKEW, False), (CLOCK_SKEW + SECOND, True)], ids=["as new", "older"]
    )
    async def test_whether_a_token_is_older(self, age: timedelta, known: bool) -> None:
        issuer = Issuer()
        await issuer.has()
        await (issuer.unknown(age=age) if known else issuer.not_yet(age=age))

    async def test_what_a_cache_kept_may_be_older_than_a_token(self) -> None:
        issuer = Issuer(age=HOUR)
        await issuer.not_yet(age=HOUR)
        await issuer.unknown(age=HOUR + CLOCK_SKEW + SECOND)

    async def test_a_flood_makes_one_call_for_each_interval(self) -> None:
        issuer = Issuer(maximum_age=24 * HOUR)
        for step in range(600):  # one a second, for ten minutes
            await issuer.not_yet(f"random-{step}")
            issuer.wait(SECOND)
        assert issuer.calls == 1 + 9

    async def test_a_flood_from_the_future_too(self) -> None:
        issuer = Issuer(maximum_age=24 * HOUR)
        for step in range(120):
            await issuer.not_yet(f"random-{step}", age=-900 * HOUR)
            issuer.wait(SECOND)
        assert issuer.calls == 1 + 1

    async def test_a_flood_at_once(self) -> None:
        issuer = Issuer()
        await issuer.has()
        issuer.wait(UNKNOWN_KEY_INTERVAL)
        issuer.gate = asyncio.Event()
        waiting = [asyncio.ensure_future(issuer.not_yet(f"random-{number}")) for number in range(100)]
        await asyncio.sleep(0)
        issuer.gate.set()
        await asyncio.gather(*waiting)
        assert issuer.calls == 2

    async def test_an_outage_is_no_proof(self) -> None:
        issuer = Issuer()
        await issuer.has()
        issuer.wait(UNKNOWN_KEY_INTERVAL)
        issuer.down = True
        with pytest.raises(CloudUnavailable):
            await issuer.source.key("unknown", issued=issuer.now, now=issuer.now)
        await issuer.has()


class TestOutage:
    async def test_from_the_beginning(self) -> None:
        issuer = Issuer(down=True)
        for _ in range(20):
            await issuer.unavailable()
        assert issuer.calls == 1
        issuer.wait(FAILURE_INTERVAL)
        await issuer.unavailable()
        assert issuer.calls == 2
        issuer.wait(FAILURE_INTERVAL)
        issuer.down = False
        await issuer.has()

    async def test_what_is_stale_is_used_within_its_limit(self) -> None:
        issuer = Issuer()
        await issuer.has()
        issuer.down = True
        issuer.wait(HOUR)
        for _ in range(20):
            await issuer.has()
        assert issuer.calls == 2
        issuer.wait(STALE_LIMIT - HOUR)
        await issuer.has()
        issuer.wait(SECOND)
        await issuer.unavailable()
        issuer.wait(FAILURE_INTERVAL)
        issuer.down = False
        await issuer.has()

    async def test_garbage_is_an_outage(self) -> None:
        issuer = Issuer()
        await issuer.has()
        issuer.wait(HOUR)
        issuer.body = b"<html>sign in</html>"
        await issuer.has()
        issuer.wait(STALE_LIMIT)
        with pytest.raises(CloudUnavailable, match="unreadable answer: not JSON"):
            await issuer.has()


@pytest.mark.parametrize("day", [-2, 17], ids=["before it is valid", "when it has run out"])
async def test_a_certificate_is_used_while_it_is_valid(day: int) -> None:
    """Also where somebody still publishes it, or an outage made us keep it."""
    issuer = Issuer()
    issuer.elapsed = timedelta(days=day)
    await issuer.unknown(CURRENT.key_id)
