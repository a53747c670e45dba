"""Workload clusters are added, changed and deleted while the controller runs; deleted ones leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import re
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from signer.configuration import Configuration
from signer.controller import run
from signer.controller.cluster.workload_cluster import WorkloadCluster
from signer.controller.run import ControllerOptions
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.model.cluster import ClusterKey
from signer.testing.fixtures import embedded_api
from signer.testing.running_controller import CONTROLLER_NAMESPACE, RunningController
from tests.integration.fixtures import CONTROLLER_USER, MASTERS, Harness, keyed_mac
from tests.support.many_clusters import ManyClusters
from tests.support.processes import wait_until

STAY, GO, COME = 4, 12, 8


@pytest.fixture
def clusters() -> Iterator[ManyClusters]:
    with ManyClusters() as clusters:
        yield clusters


async def _tasks() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks()]


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> weakref.WeakSet[WorkloadCluster]:
    """The clusters' halves in the controller that are in memory."""
    found: weakref.WeakSet[WorkloadCluster] = weakref.WeakSet()

    def make(key: ClusterKey, **parts: Any) -> WorkloadCluster:
        cluster = WorkloadCluster(key, **parts)
        found.add(cluster)
        return cluster

    monkeypatch.setattr(run, "WorkloadCluster", make)
    return found


def _left(controller: RunningController, alive: weakref.WeakSet[WorkloadCluster]) -> set[str]:
    """The clusters that have tasks, metrics or anything in memory."""
    gc.collect()
    tasks = controller._thread.run(_tasks())
    metrics = controller.options.metrics
    labels = {sample.labels["cluster"] for family in metrics.builtin_approvals.collect() for sample in family.samples}
    named = {match[0] for task in tasks if (match := re.search(r"default/cluster-\d+", task))}
    return named | labels | set(metrics.gauges.clusters) | {str(one.key) for one in alive}


def test_nothing_is_left_of_deleted_clusters(clusters: ManyClusters, alive: weakref.WeakSet[WorkloadCluster]) -> None:
    stay, go = clusters.add(STAY, "keyed-mac", "Observe"), clusters.add(GO, "keyed-mac", "Observe")
    configuration = Configuration(namespace=CONTROLLER_NAMESPACE, attestors=keyed_mac())
    options = ControllerOptions()
    with RunningController(clusters.management.connection(), configuration, options) as controller:
        wait_until(lambda: clusters.watched() == STAY + GO, "all are watched")
        assert _left(controller, alive) == {f"default/{name}" for name in stay + go}
        gone = [clusters.withdraw(name) for name in go]
        come = clusters.add(COME, "keyed-mac", "Observe")
        wait_until(lambda: clusters.watched() == STAY + COME, "those that came are watched")
        there = {f"default/{name}" for name in stay + come}
        wait_until(lambda: _left(controller, alive) == there, "nothing is left of those that went")
        wait_until(lambda: not any(api.open_connections for api in gone), "their connections are closed")


def test_a_rotated_kubeconfig_is_read_when_the_old_one_is_refused(harness: Harness) -> None:
    cluster = harness.cluster()
    api = embedded_api(cluster)
    harness.run()
    harness.join(cluster)
    connects = len(api.requests.matching(f"GET {CERTIFICATE_SIGNING_REQUESTS.collection()}"))
    rotated = api.kubeconfig("workload", "after-rotation", MASTERS)
    cluster.put_secret("kubeconfig", {"value": rotated.encode()})
    api.faults.inject(lambda request: request.user.name == CONTROLLER_USER, status=401, times=None)
    api.close_watches()  # as each watch ends after some forty seconds
    harness.join(cluster)
    later = api.requests.matching(f"GET {CERTIFICATE_SIGNING_REQUESTS.collection()}")[connects:]
    assert [request.status for request in later if request.user == CONTROLLER_USER] == [401]
