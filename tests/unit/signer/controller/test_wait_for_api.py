"""The first question to the management cluster: one broken connection ends nothing, and what is wrong is said."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from random import Random

import pytest

from signer.controller.wait_for_api import ATTEMPTS, MAXIMUM_RETRY_AFTER_SECONDS, RETRY_BACKOFF, cluster_api
from signer.kube.backoff import Backoff
from signer.kube.client import Client, JsonObject
from signer.kube.errors import (
    ApiError,
    Cause,
    Forbidden,
    ResourceNotServed,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from signer.kube.resources import CLUSTERS_V1BETA2
from signer.testing.api.embedded import EmbeddedAPI

REDUCED = Path(__file__).parents[4] / "signer" / "testing" / "crds"
RESET = Unreachable("reset", cause=Cause.RESET)
GROUP: JsonObject = {"versions": [{"version": "v1beta2"}]}
SERVED: JsonObject = {"resources": [{"name": "clusters"}, {"name": "machines"}]}


class ManagementCluster:
    """Answers with these, one after the other, and after the last with what it serves."""

    def __init__(self, *errors: ApiError) -> None:
        self._errors = iter(errors)
        self.asked = 0

    async def get(self, path: str) -> JsonObject:
        self.asked += 1
        for error in self._errors:
            raise error
        return SERVED if path.count("/") == 3 else GROUP


SHORT = Backoff(base_seconds=0.001, maximum_seconds=0.001, jitter=0)
NEVER = Backoff(base_seconds=600, maximum_seconds=600, jitter=0)
PASSING = [
    RESET,
    ServerError("busy", status=503),
    TooManyRequests("slowly", status=429),
    ResourceNotServed("starting", status=404),
]
REFUSALS = [Forbidden("no", status=403), Unauthorized("who", status=401)]


def kind(error: ApiError) -> str:
    return type(error).__name__


def stopped() -> asyncio.Event:
    """Set: whoever would wait does not."""
    stop = asyncio.Event()
    stop.set()
    return stop


def pauses(caplog: pytest.LogCaptureFixture) -> list[float]:
    """What was said each time."""
    said = "cannot ask the management cluster which Cluster API it serves"
    assert all(record.getMessage() == said for record in caplog.records)
    return [vars(record)["retryInSeconds"] for record in caplog.records]


@pytest.fixture(autouse=True)
def warnings_are_seen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "signer")


@pytest.mark.parametrize("error", PASSING, ids=kind)
async def test_what_may_pass_is_waited_for(error: ApiError, caplog: pytest.LogCaptureFixture) -> None:
    management = ManagementCluster(*[error] * (ATTEMPTS - 1))
    version = await cluster_api(management, asyncio.Event(), SHORT)
    assert version is not None
    assert version.clusters == CLUSTERS_V1BETA2
    assert management.asked == ATTEMPTS + 1
    assert len(pauses(caplog)) == ATTEMPTS - 1


async def test_one_that_stays_away_is_given_up() -> None:
    management = ManagementCluster(*[RESET] * ATTEMPTS)
    with pytest.raises(Unreachable):
        await cluster_api(management, asyncio.Event(), SHORT)
    assert management.asked == ATTEMPTS


def test_whoever_named_a_wrong_address_hears_of_it_within_seconds() -> None:
    assert sum(RETRY_BACKOFF.delay(attempt, Random(attempt)) for attempt in range(ATTEMPTS - 1)) < 4


@pytest.mark.parametrize("error", REFUSALS, ids=kind)
async def test_a_refusal_is_said_at_once(error: ApiError, caplog: pytest.LogCaptureFixture) -> None:
    management = ManagementCluster(error)
    with pytest.raises(type(error)):
        await cluster_api(management, asyncio.Event(), NEVER)
    assert management.asked == 1
    assert not pauses(caplog)


async def test_a_cluster_without_cluster_api_is_said_within_seconds() -> None:
    management = ManagementCluster(*[ResourceNotServed("none", status=404)] * ATTEMPTS)
    with pytest.raises(ResourceNotServed, match="it serves neither"):
        await cluster_api(management, asyncio.Event(), SHORT)
    assert management.asked == ATTEMPTS


@pytest.mark.parametrize(("asked", "most"), [(5.0, 5.0), (300.0, MAXIMUM_RETRY_AFTER_SECONDS)])
async def test_the_server_says_how_long(asked: float, most: float, caplog: pytest.LogCaptureFixture) -> None:
    management = ManagementCluster(TooManyRequests("slowly", status=429, retry_after_seconds=asked))
    assert await cluster_api(management, stopped(), SHORT) is None
    assert pauses(caplog) == [most]


async def test_who_is_told_to_stop_waits_no_longer() -> None:
    management = ManagementCluster(*[RESET] * ATTEMPTS)
    async with asyncio.timeout(30):
        assert await cluster_api(management, stopped(), NEVER) is None
    assert management.asked == 1


async def test_nor_for_a_server_that_never_answers() -> None:
    """Else Ctrl-C, and who drains the Pod's node, would wait for a minute."""
    stop = asyncio.Event()

    class Silent:
        async def get(self, path: str) -> JsonObject:
            stop.set()
            await asyncio.Event().wait()
            raise AssertionError

    async with asyncio.timeout(30):
        assert await cluster_api(Silent(), stop) is None


async def test_a_connection_that_breaks_at_the_first_question() -> None:
    with EmbeddedAPI() as api:
        for file in sorted(REDUCED.glob("*.yaml")):
            api.apply_yaml(file.read_text())
        api.faults.inject(lambda request: True, drop="before")
        async with Client(api.connection()) as client:
            version = await cluster_api(client, asyncio.Event())
            assert version is not None
            assert version.clusters == CLUSTERS_V1BETA2
