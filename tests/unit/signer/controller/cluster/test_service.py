"""Optional parts of a workload cluster: their service runs while it is connected; they observe requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from prometheus_client import generate_latest

from signer.configuration import AccessSwitchedOff, RotationOff, SSHSwitchedOff
from signer.controller.cluster import workload_cluster as workload_cluster_module
from signer.controller.cluster.service import OptionalPart, OptionalPartContext
from signer.controller.requests.request_budget import SharedRequestMemory
from signer.controller.requests.workers import SharedWorkerPool
from signer.controller.run import compose_workload_cluster
from signer.controller.telemetry.metrics import Metrics
from signer.controller.telemetry.metrics_collector import MetricFamily, ServiceGauge
from signer.kube.client import JsonObject
from signer.model.cluster import ClusterKey
from signer.model.condition import ConditionType, PolicyCondition, under_enforce
from signer.store.caches import ALL_PROVIDER_IDS

KEY = ClusterKey("team-a", "one")
WING_READY = ConditionType("WingReady", under_enforce)
WING_AGE = MetricFamily("wing_age_seconds", "gauge", "Age of the wing.", ("cluster",))


class Wing:
    """A service that records its calls."""

    name = "wing"

    def __init__(self, context: OptionalPartContext) -> None:
        self.context = context
        self.woken = 0
        self.seen: list[object] = []
        self.decisions: list[object] = []
        self.ran = asyncio.Event()

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        return (PolicyCondition(WING_READY, False, "Young", "not grown yet"),)

    def gauges(self) -> Sequence[ServiceGauge]:
        return (ServiceGauge(WING_AGE, 7.0),)

    def wake(self) -> None:
        self.woken += 1

    async def run(self, client: Any) -> None:
        self.ran.set()
        await asyncio.Event().wait()

    def listed(self, manifest: JsonObject) -> None:
        self.seen.append(manifest)

    def list_ended(self) -> None:
        self.seen.append("list ended")

    def observed(self, manifest: JsonObject) -> None:
        self.seen.append(manifest)

    def decided(self, machine: object, decision: object, hint: str) -> None:
        self.decisions.append(decision)


def wing_part(context: OptionalPartContext) -> OptionalPart:
    wing = Wing(context)
    return OptionalPart(wing, observers=(wing,), listeners=(wing,))


def composed(metrics: Metrics) -> tuple[Any, Wing]:
    shared = MagicMock(rotation=RotationOff(), ssh=SSHSwitchedOff(), access=AccessSwitchedOff())
    shared.request_memory = SharedRequestMemory()
    shared.worker_pool = SharedWorkerPool()
    options = MagicMock(optional_parts=(wing_part,), metrics=metrics, monotonic=lambda: 1000.0)
    cluster: Any = compose_workload_cluster(KEY, MagicMock(workers_per_cluster=2), options, shared)
    return cluster, cluster._services[-1]


async def test_a_service_runs_once_the_api_server_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def watch(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(workload_cluster_module, "list_and_watch", watch)
    cluster, wing = composed(Metrics())
    client = AsyncMock(get=AsyncMock(return_value={}), create=AsyncMock(return_value={}))
    serving = asyncio.create_task(cluster._serve_over(client))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not wing.ran.is_set(), "a server that does not even list is asked nothing more"
    cluster.synced()
    async with asyncio.timeout(10):
        await wing.ran.wait()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


def test_a_service_is_created_per_cluster_and_woken_with_it() -> None:
    cluster, wing = composed(Metrics())
    assert wing.context.key == KEY
    cluster.wake(ALL_PROVIDER_IDS)
    assert wing.woken == 1
    cluster.wake(frozenset({"p:///1"}))
    assert wing.woken == 1


def test_a_part_sees_the_requests_and_the_decisions_of_its_cluster() -> None:
    cluster, wing = composed(Metrics())
    cluster.replaced([])
    assert wing.seen == ["list ended"]
    assert wing in cluster._handler._reporter._listeners


def test_a_part_announces_changed_conditions() -> None:
    cluster, wing = composed(Metrics())
    assert not cluster._status_changed.is_set()
    wing.context.status_changed.set()
    assert cluster._status_changed.is_set()


def test_conditions_of_a_service_are_in_the_policy_status() -> None:
    cluster, wing = composed(Metrics())
    conditions = [one for source in cluster._status._sources for one in source.conditions]
    assert wing.conditions[0] in conditions


def test_gauges_of_a_service_are_collected() -> None:
    metrics = Metrics(families=(WING_AGE,))
    cluster, _ = composed(metrics)
    cluster._caches.policies.get.return_value = None
    cluster._caches.certificate_lives.of.return_value = MagicMock(
        count_expired=lambda now: 0, count_overdue=lambda now: 0, ends=(), outage_budget=lambda now: ()
    )
    cluster._authority_source.expiry = lambda: ()
    cluster._now = lambda: MagicMock(timestamp=lambda: 0.0)
    gauges = cluster.gauges()
    assert ServiceGauge(WING_AGE, 7.0) in gauges.services
    metrics.serve_cluster(str(KEY), lambda: gauges)
    assert 'node_attestation_wing_age_seconds{cluster="team-a/one"} 7.0' in generate_latest(metrics.registry).decode()
    assert "node_attestation_wing_age_seconds" in {one.name for one in metrics.described()}
