from __future__ import annotations

import asyncio
from ipaddress import ip_network
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from signer.controller.cluster import service_networks
from signer.controller.cluster.service_networks import ServiceNetworks
from signer.kube.backoff import Backoff
from signer.kube.errors import Cause, Unreachable
from signer.model.cluster import ClusterView
from signer.model.service_networks import NOT_REPORTED, ReportedServices
from tests.unit.signer.builders import CLUSTER, cluster_view

REPORTED = ReportedServices((ip_network("10.43.0.0/16"),), frozenset({4, 6}))


class World:
    """A Cluster that states no networks, and what its workload cluster reports next."""

    def __init__(self, cluster: ClusterView | None = None) -> None:
        self.cluster: ClusterView | None = cluster or cluster_view(service_networks=())
        caches = SimpleNamespace(clusters=SimpleNamespace(get=lambda namespace, name: self.cluster))
        self.changed = asyncio.Event()
        self.service = ServiceNetworks(CLUSTER, cast("Any", caches), status_changed=self.changed, random=Random(1))
        self.wakes = 0
        self.service.on_change(self._wake)

    def _wake(self) -> None:
        self.wakes += 1

    def condition(self) -> tuple[bool | None, str, str]:
        (shown,) = self.service.conditions
        assert shown.type == "ServiceNetworksKnown"
        return shown.met, shown.reason, shown.message


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The reports, in order; the run ends when there are no more."""
    reports: list[Any] = []

    async def read(client: object) -> ReportedServices:
        if not reports:
            raise asyncio.CancelledError
        if isinstance(report := reports.pop(0), Exception):
            raise report
        return cast("ReportedServices", report)

    monkeypatch.setattr(service_networks, "read_reported_services", read)
    monkeypatch.setattr(service_networks, "READ_SECONDS", 0)
    monkeypatch.setattr(service_networks, "UNKNOWN_SECONDS", 0)
    monkeypatch.setattr(service_networks, "RETRY", Backoff(base_seconds=0.001, maximum_seconds=0.001, jitter=0))
    return reports


async def ran(world: World) -> None:
    with pytest.raises(asyncio.CancelledError):
        await world.service.run(cast("Any", None))


async def test_a_report_wakes_once(answers: list[Any]) -> None:
    world = World()
    assert world.condition()[:2] == (None, "Unknown")
    answers += [NOT_REPORTED]
    await ran(world)
    assert (world.condition()[:2], world.wakes, world.changed.is_set()) == ((False, "Unknown"), 0, True)
    assert "state them in spec.clusterNetwork.services.cidrBlocks of the Cluster" in world.condition()[2]
    world.changed.clear()
    answers += [REPORTED, REPORTED]
    await ran(world)
    assert (world.service.report.reported, world.wakes, world.changed.is_set()) == (REPORTED, 1, True)
    assert world.condition()[:2] == (True, "Reported")
    assert "reports 10.43.0.0/16" in world.condition()[2]


async def test_a_failure_changes_nothing(answers: list[Any]) -> None:
    world = World()
    answers += [REPORTED, Unreachable("gone", cause=Cause.REFUSED)]
    await ran(world)
    assert world.service.report.reported == REPORTED


async def test_after_failures_it_is_read_again(answers: list[Any]) -> None:
    """A fault of the workload cluster ends no task: that would be logged as a defect."""
    world = World()
    answers += [Unreachable("gone", cause=Cause.REFUSED)] * 3 + [REPORTED]
    await ran(world)
    assert (world.service.report.reported, world.wakes) == (REPORTED, 1)


def test_no_condition_where_the_cluster_states_them() -> None:
    assert World(cluster_view()).service.conditions == ()
    world = World()
    world.cluster = None
    assert world.service.conditions == ()
    assert list(world.service.gauges()) == []
