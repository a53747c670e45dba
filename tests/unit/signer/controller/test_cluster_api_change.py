"""Cluster API is upgraded while the controller runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from signer.controller.cluster_api_change import (
    CHECK_SECONDS,
    CONFIRM_SECONDS,
    ClusterAPIChanged,
    ClusterAPIWatch,
)
from signer.kube.errors import ApiError, Cause, ResourceNotServed, Unreachable
from signer.store.cluster_api import ClusterAPIVersion
from tests.unit.signer.store.test_cluster_api import V1BETA1, V1BETA2

WITHOUT_POOLS = ClusterAPIVersion(V1BETA2.clusters, V1BETA2.machines)
STARTING = ResourceNotServed("404 page not found", status=404)
AWAY = Unreachable("refused", cause=Cause.REFUSED)


class Ended(Exception):
    """The watch continued after the last answer."""


class Discovery:
    """Serves one version per check; ``paused`` has the seconds before each."""

    def __init__(self, *answers: ClusterAPIVersion | ApiError) -> None:
        self._answers = list(answers)
        self._now: ClusterAPIVersion | ApiError = STARTING
        self.paused: list[float] = []

    async def sleep(self, seconds: float) -> None:
        if not self._answers:
            raise Ended
        self.paused.append(seconds)
        self._now = self._answers.pop(0)

    async def get(self, path: str) -> dict[str, Any]:
        if isinstance(self._now, ApiError):
            raise self._now
        if path == "/apis/cluster.x-k8s.io":
            return {"versions": [{"version": self._now.clusters.version}]}
        pools = [{"name": "machinepools"}] if self._now in (V1BETA1, V1BETA2) else []
        return {"resources": [{"name": "clusters"}, {"name": "machines"}, *pools]}


@pytest.mark.parametrize(
    ("read", "served"),
    [(V1BETA1, V1BETA2), (V1BETA2, V1BETA1), (WITHOUT_POOLS, V1BETA2), (V1BETA2, WITHOUT_POOLS)],
    ids=["upgraded", "taken back", "MachinePools installed", "MachinePools gone"],
)
async def test_a_change_must_be_confirmed(read: ClusterAPIVersion, served: ClusterAPIVersion) -> None:
    discovery, stop = Discovery(read, served, served), asyncio.Event()
    watch = ClusterAPIWatch(discovery, read, stop, discovery.sleep)
    await watch.run()
    assert stop.is_set()
    assert discovery.paused == [CHECK_SECONDS, CHECK_SECONDS, CONFIRM_SECONDS]
    with pytest.raises(ClusterAPIChanged) as caught:
        watch.require_unchanged()
    assert str(caught.value) == f"the management cluster now serves {served} instead of {read}"


@pytest.mark.parametrize(
    "answers",
    [
        [V1BETA2] * 3,
        [V1BETA1, V1BETA2, V1BETA1, V1BETA2],
        [V1BETA1, WITHOUT_POOLS, V1BETA1, V1BETA2],
        [STARTING] * 3,
        [AWAY] * 3,
        [V1BETA1, STARTING, V1BETA1, AWAY, V1BETA1],
    ],
    ids=["the same", "for a moment", "never twice the same", "nothing", "no answer", "interrupted"],
)
async def test_nothing_else_is_a_change(answers: Sequence[ClusterAPIVersion | ApiError]) -> None:
    discovery, stop = Discovery(*answers), asyncio.Event()
    watch = ClusterAPIWatch(discovery, V1BETA2, stop, discovery.sleep)
    with pytest.raises(Ended):
        await watch.run()
    assert len(discovery.paused) == len(answers)
    assert not stop.is_set()
    watch.require_unchanged()


async def test_stop_takes_precedence_over_a_change() -> None:
    """An upgrade that is noticed during the shutdown is not an error."""
    discovery, stop = Discovery(V1BETA1, V1BETA1, V1BETA1), asyncio.Event()
    stop.set()
    watch = ClusterAPIWatch(discovery, V1BETA2, stop, discovery.sleep)
    with pytest.raises(Ended):
        await watch.run()
    watch.require_unchanged()


async def test_it_pauses_between_checks() -> None:
    discovery = Discovery(V1BETA1)
    await discovery.sleep(0)  # which it says from now on
    waiting = asyncio.ensure_future(ClusterAPIWatch(discovery, V1BETA2, asyncio.Event()).run())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
