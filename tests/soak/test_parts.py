"""The soak test's own parts: it injects faults, moves clocks, and reports problems."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from signer.kube.client import Client
from signer.kube.errors import (
    ApiError,
    Conflict,
    Gone,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
    error_for_status,
)
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.testing.api import EmbeddedAPI, User
from signer.testing.clients import LoopThread
from signer.testing.world import Verdict
from tests.integration.fixtures import MASTERS
from tests.soak.launcher import ClockFile, moved_clock
from tests.soak.ledger import Ledger
from tests.soak.outcome import Outcome
from tests.soak.proxy import FaultyProxy
from tests.soak.replicas import Ran
from tests.soak.weather import STORM, Fault, Weather

pytestmark = pytest.mark.slow

REQUESTS = CERTIFICATE_SIGNING_REQUESTS.collection()
MISSING = CERTIFICATE_SIGNING_REQUESTS.object("missing")
TOKEN = "soak-token"


class Always(Weather):
    """The same fault for every request."""

    def __init__(self, always: Fault) -> None:
        super().__init__(Random(1))
        self._always = always

    def fault(self, method: str, *, watches: bool, lists: bool) -> Fault:
        return self._always

    def seconds(self, most: float) -> float:
        return 0.05


async def outcome_of(call: str, fault: Fault) -> type[ApiError] | None:
    """The error that a client gets through the proxy."""
    api = EmbeddedAPI()
    api.add_token(TOKEN, User("soak", MASTERS))
    with api:
        async with FaultyProxy("one", api, Always(fault), stall_seconds=0.1) as proxy:
            connection = proxy.connection(api.token_connection(TOKEN))
            async with Client(connection, timeout_seconds=5) as client:
                try:
                    await _called(client, call)
                except ApiError as error:
                    return type(error)
                finally:
                    proxy.calm_down()
    return None


async def _called(client: Client, call: str) -> None:
    if call == "list":
        await client.get(REQUESTS, {"limit": 1})
    elif call == "watch":
        async for event in client.watch(REQUESTS, {"resourceVersion": "1"}, timeout_seconds=1):
            if event["type"] == "ERROR":
                raise error_for_status(event["object"]["code"])
    else:
        await client.patch(MISSING, {})


@pytest.mark.parametrize(
    ("call", "fault", "seen"),
    [
        ("list", Fault.NONE, None),
        ("list", Fault.DELAY, None),
        ("list", Fault.EXPIRED, Gone),
        ("list", Fault.TOO_MANY_REQUESTS, TooManyRequests),
        ("list", Fault.INTERNAL_ERROR, ServerError),
        ("list", Fault.UNAVAILABLE, ServerError),
        ("list", Fault.GATEWAY_TIMEOUT, ServerError),
        ("list", Fault.STALL, Unreachable),
        ("list", Fault.CUT_BEFORE, Unreachable),
        ("list", Fault.CUT_AFTER, Unreachable),
        ("list", Fault.CUT_WITHIN, Unreachable),
        ("write", Fault.NONE, NotFound),
        ("write", Fault.CONFLICT, Conflict),
        ("watch", Fault.WATCH_CUT, Unreachable),
        ("watch", Fault.WATCH_EXPIRED, Gone),
        ("watch", Fault.WATCH_SILENT, Unreachable),
    ],
)
def test_a_client_meets_the_fault(call: str, fault: Fault, seen: type[ApiError] | None) -> None:
    with LoopThread() as thread:
        assert thread.run(outcome_of(call, fault)) is seen


def test_a_partition_blocks_requests_until_it_ends() -> None:
    with LoopThread() as thread:
        thread.run(partitioned())


async def partitioned() -> None:
    api = EmbeddedAPI()
    api.add_token(TOKEN, User("soak", MASTERS))
    with api:
        async with (
            FaultyProxy("one", api, Always(Fault.NONE), stall_seconds=0.1) as proxy,
            Client(proxy.connection(api.token_connection(TOKEN)), timeout_seconds=5) as client,
        ):
            proxy.part()
            waiting = asyncio.create_task(client.get(REQUESTS))
            done, _ = await asyncio.wait({waiting}, timeout=0.2)
            assert not done
            proxy.join()
            assert (await waiting)["items"] == []


def test_faults_depend_on_the_seed() -> None:
    def drawn(seed: int) -> list[Fault]:
        weather = Weather(Random(seed))
        weather.severity = STORM
        return [weather.fault("PUT", watches=False, lists=False) for _ in range(200)]

    assert drawn(1) == drawn(1) != drawn(2)
    assert {Fault.CONFLICT, Fault.NONE, Fault.CUT_AFTER} <= set(drawn(1))


def test_the_clock_of_a_running_process_can_be_moved(tmp_path: Path) -> None:
    clock = ClockFile(tmp_path / "clock")
    now = moved_clock(clock.path)
    for seconds in (0.0, 3600.0, -120.0):
        clock.set(seconds)
        assert abs(now() - datetime.now(UTC) - timedelta(seconds=seconds)) < timedelta(seconds=60)


def verdict(condition: str, certificate: bytes = b"") -> Verdict:
    return Verdict(condition, "", "", certificate, {})


def test_problems_are_reported() -> None:
    def outcome(decided: dict[str, Verdict], ledger: Ledger | None = None, broken: tuple[str, ...] = ()) -> Outcome:
        return Outcome.of(1, 1.0, 1.0, ledger or Ledger(), {"one": decided}, list(broken), {}, Ran(2, (), 0))

    denied, issued = verdict("Denied"), verdict("Approved", b"certificate")
    assert outcome({"client-a": issued, "impostor-1": denied}).is_clean
    assert outcome({"client-a": verdict("")}).problems == ["left waiting: one client-a"]
    assert outcome({"client-a": verdict("Approved")}).left_waiting == ("one client-a",)
    assert outcome({"client-a": verdict("Failed")}).left_waiting == ("one client-a",)
    assert outcome({"impostor-1": issued}).violations == ("one impostor-1: an impostor has a certificate",)
    assert not outcome({}, broken=("no journal",)).is_clean
    ledger = Ledger()
    ledger.found("wrong")
    assert outcome({}, ledger).problems == ["wrong"]
    waiting = Ledger()
    with pytest.raises(TimeoutError), waiting.waits("one client-b"):  # cut short
        raise TimeoutError
    assert outcome({}, waiting).left_waiting == ("one client-b",)
