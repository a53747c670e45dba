"""The first call to the management cluster: retries after a broken connection, and reported errors."""

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
    """Raises these errors one after the other, then responds normally."""

    def __init__(self, *errors: ApiError) -> None:
        self._errors = iter(errors)
        self.calls = 0

    async def get(self, path: str) -> JsonObject:
        self.calls += 1
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
    """An event that is already set."""
    stop = asyncio.Event()
    stop.set()
    return stop


def pauses(caplog: pytest.LogCaptureFixture) -> list[float]:
    """The pauses in the log lines."""
    message = "cannot ask the management cluster which Cluster API it serves"
    assert all(record.getMessage() == message for record in caplog.records)
    return [vars(record)["retryInSeconds"] for record in caplog.records]


@pytest.fixture(autouse=True)
def warnings_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "signer")


@pytest.mark.parametrize("error", PASSING, ids=kind)
async def test_transient_errors_are_retried(error: ApiError, caplog: pytest.LogCaptureFixture) -> None:
    management = ManagementCluster(*[error] * (ATTEMPTS - 1))
    version = await cluster_api(management, asyncio.Event(), SHORT)
    assert version is not None
    assert version.clusters == CLUSTERS_V1BETA2
    assert management.calls == ATTEMPTS + 1
    assert len(pauses(caplog)) == ATTEMPTS - 1


async def test_a_persistent_error_is_raised() -> None:
    management = ManagementCluster(*[RESET] * ATTEMPTS)
    with pytest.raises(Unreachable):
        await cluster_api(management, asyncio.Event(), SHORT)
    assert management.calls == ATTEMPTS


def test_a_wrong_address_is_reported_within_seconds() -> None:
    assert sum(RETRY_BACKOFF.delay(attempt, Random(attempt)) for attempt in range(ATTEMPTS - 1)) < 4


@pytest.mark.parametrize("error", REFUSALS, ids=kind)
async def test_a_refusal_is_raised_at_once(error: ApiError, caplog: pytest.LogCaptureFixture) -> None:
    management = ManagementCluster(error)
    with pytest.raises(type(error)):
        await cluster_api(management, asyncio.Event(), NEVER)
    assert management.calls == 1
    assert not pauses(caplog)


async def test_a_missing_cluster_api_is_reported_within_seconds() -> None:
    management = ManagementCluster(*[ResourceNotServed("none", status=404)] * ATTEMPTS)
    with pytest.raises(ResourceNotServed, match="it serves neither"):
        await cluster_api(management, asyncio.Event(), SHORT)
    assert management.calls == ATTEMPTS


@pytest.mark.parametrize(("requested", "most"), [(5.0, 5.0), (300.0, MAXIMUM_RETRY_AFTER_SECONDS)])
async def test_retry_after_is_respected(requested: float, most: float, caplog: pytest.LogCaptureFixture) -> None:
    management = ManagementCluster(TooManyRequests("slowly", status=429, retry_after_seconds=requested))
    assert await cluster_api(management, stopped(), SHORT) is None
    assert pauses(caplog) == [most]


async def test_stop_ends_the_wait() -> None:
    management = ManagementCluster(*[RESET] * ATTEMPTS)
    async with asyncio.timeout(30):
        assert await cluster_api(management, stopped(), NEVER) is None
    assert management.calls == 1


async def test_stop_ends_a_call_that_hangs() -> None:
    """Otherwise Ctrl-C and a drain of the Pod's node would take a minute."""
    stop = asyncio.Event()

    class Silent:
        async def get(self, path: str) -> JsonObject:
            stop.set()
            await asyncio.Event().wait()
            raise AssertionError

    async with asyncio.timeout(30):
        assert await cluster_api(Silent(), stop) is None


async def test_a_connection_that_breaks_at_the_first_call() -> None:
    with EmbeddedAPI() as api:
        for file in sorted(REDUCED.glob("*.yaml")):
            api.apply_yaml(file.read_text())
        api.faults.inject(lambda request: True, drop="before")
        async with Client(api.connection()) as client:
            version = await cluster_api(client, asyncio.Event())
            assert version is not None
            assert version.clusters == CLUSTERS_V1BETA2
