"""At the start, the CA of every Cluster with a policy is read once, and none of the reads holds all others for long."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from signer.controller import authorities_at_start
from signer.controller.authorities_at_start import AuthoritiesAtStart
from signer.decision.authority_source import AuthoritySource
from signer.kube.errors import ApiError, Cause, Forbidden, NotFound, Unreachable
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.authority_suffixes import ONE_AUTHORITY
from signer.model.cluster import WATCH_FILTER_LABEL, ClusterKey, WatchFilter
from signer.model.floors import NO_FLOORS
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion

VERSION: Final = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2)


class World:
    """Clusters, and the answers to reads of their CAs' Secrets."""

    def __init__(self, *names: str) -> None:
        self.caches = Caches(VERSION, own_namespace="own", floors=NO_FLOORS, watch_filter=WatchFilter("mine"))
        self.answers: dict[str, list[ApiError | RuntimeError | None]] = {}
        """By Cluster: the failures of its reads in order, then "not found"; None hangs."""
        self.asked: list[str] = []
        self.held = asyncio.Event()
        """Reads of Cluster ``held`` wait for it."""
        self.at_start = AuthoritiesAtStart(self.caches, self._source, monotonic=time.monotonic)
        for name in names:
            self.put(name)

    def put(self, name: str, *, policy: bool = True, watched: str = "mine") -> None:
        labels = {WATCH_FILTER_LABEL: watched}
        self.caches.clusters.applied(
            {"metadata": {"namespace": "ns", "name": name, "uid": name, "labels": labels}, "spec": {}}
        )
        if policy:
            self.caches.policies.applied({"metadata": {"namespace": "ns", "name": name}, "spec": {}})

    def _source(self, key: ClusterKey) -> AuthoritySource:
        return AuthoritySource(
            self, key, choose=lambda: ONE_AUTHORITY, now=lambda: datetime.now(UTC), monotonic=time.monotonic
        )

    async def get(self, path: str) -> dict[str, Any]:
        name = path.rpartition("/")[2].removesuffix("-ca")
        self.asked.append(name)
        if name == "held":
            await self.held.wait()
        for answer in self.answers.get(name, [])[:1]:
            del self.answers[name][0]
            if answer is None:
                await asyncio.Event().wait()
            else:
                raise answer
        raise NotFound(path)

    async def run(self) -> None:
        self.at_start.begin()
        async with asyncio.timeout(5):
            await self.at_start.run()

    @property
    def unread(self) -> list[str]:
        return sorted(key.name for key in self.caches.authorities.unread)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorities_at_start, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(authorities_at_start, "ATTEMPT_SECONDS", 0.05)


def faults(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Warnings and errors: another test may have turned on what is below them."""
    return [one for one in caplog.records if one.levelno >= logging.WARNING]


def unreachable() -> ApiError:
    return Unreachable("away", cause=Cause.NETWORK)


async def test_each_cluster_with_a_policy_that_the_filter_selects_is_read_once() -> None:
    world = World("a", "b")
    world.put("without-policy", policy=False)
    world.put("of-another-controller", watched="its")
    await world.run()
    assert (sorted(world.asked), world.unread) == (["a", "b"], [])


async def test_an_outage_is_asked_about_again_and_a_refusal_is_an_answer() -> None:
    world = World("away", "forbidden")
    world.answers = {"away": [unreachable(), unreachable()], "forbidden": [Forbidden("no")] * 9}
    await world.run()
    assert sorted(world.asked) == ["away"] * 3 + ["forbidden"]


async def test_a_read_that_hangs_keeps_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorities_at_start, "READS_AT_ONCE", 1)
    world = World("a", "b")
    world.answers = {"a": [None]}
    await world.run()
    assert world.asked == ["a", "b", "a"]


async def test_a_defect_that_one_secret_causes_is_logged_and_holds_no_other(caplog: pytest.LogCaptureFixture) -> None:
    world = World("a", "b")
    world.answers = {"a": [RuntimeError("defect")]}
    await world.run()
    assert sorted(world.asked) == ["a", "b"]
    assert [(one.levelno, one.__dict__["cluster"]) for one in faults(caplog)] == [(logging.ERROR, "ns/a")]


async def test_after_the_time_nothing_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(authorities_at_start, "READ_SECONDS", 1.0)
    world = World("a", "b")
    world.answers = {"b": [unreachable() for _ in range(10_000)]}
    await world.run()
    assert world.unread == []
    [warned] = faults(caplog)
    assert (warned.__dict__["failed"], warned.__dict__["cluster"]) == (1, "ns/b")


async def test_each_answer_gives_the_others_more_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A large fleet on a slow machine takes longer in all."""
    monkeypatch.setattr(authorities_at_start, "READ_SECONDS", 2.0)
    monkeypatch.setattr(authorities_at_start, "ATTEMPT_SECONDS", 60.0)
    world = World("a", "held")
    world.at_start.begin()
    monkeypatch.setattr(authorities_at_start, "READ_SECONDS", 60.0)
    asyncio.get_running_loop().call_later(2.1, world.held.set)
    await world.at_start.run()
    assert (sorted(world.asked), faults(caplog)) == (["a", "held"], [])


async def test_the_clusters_task_uses_the_same_read() -> None:
    world = World("a")
    key = ClusterKey("ns", "a")
    world.at_start.begin()
    source, later = world.at_start.source(key), world.at_start.source(key)
    assert source is not later, "a task that starts again has a source of its own"
    await world.at_start.run()
    with pytest.raises(Exception, match="does not exist"):
        await source.authority()
    assert world.asked == ["a"]
