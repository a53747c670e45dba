"""Measures single joins in one cluster during a wave of requests in another.

Each cluster has its own real API server; one controller process serves both. All requests of the wave are valid, with a
Machine each, so that each costs the controller as much as a join.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from signer.kube.client import Client, JsonObject
from signer.kube.connection import ClusterConnection
from signer.testing.clients import LoopThread
from signer.testing.world import ManagementCluster
from tests.bench.drain import Watcher, controller_process
from tests.bench.honest_nodes import Joins
from tests.bench.load import Load
from tests.bench.thief import write_loot
from tests.soak.requests import decision, post
from tests.support.control_plane import ControlPlane
from tests.support.grants import as_service_account, restrict_in_workload_cluster

REQUESTS: Final = 5_000
MAXIMUM_SECONDS_SLOWER: Final = 2.0
"""Limit of the delay of single joins by the wave, at the 99th percentile."""
EVERY_SECONDS: Final = 0.5
"""Interval between the starts of single joins."""
JOINS_BEFORE: Final = 40
_WARM: Final = 5
_SINGLE_AT_MOST: Final = 1_200
_TIMEOUT_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Wave:
    """The result. Join times are from posting a request to its certificate."""

    requests: int
    joins_before: int
    joins_meanwhile: int
    p50_seconds_before: float
    p99_seconds_before: float
    p50_seconds_meanwhile: float
    p99_seconds_meanwhile: float
    wave_seconds: float
    """From the first request of the wave to its last certificate."""

    @property
    def slower_seconds(self) -> float:
        """Delay of single joins, at the 99th percentile."""
        return self.p99_seconds_meanwhile - self.p99_seconds_before

    def as_json(self) -> dict[str, float | int]:
        """For the machine-readable report."""
        return {**asdict(self), "slower_seconds": self.slower_seconds}


def measure_wave(control_plane: ControlPlane, requests: int = REQUESTS) -> Wave:
    """Run one wave. ``control_plane`` hosts the management cluster and the cluster of the wave, and no other Cluster.
    It needs kubeadm's grants. The single joins are in a cluster on another control plane, which this function starts.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        ControlPlane() as other_plane,
        ManagementCluster(control_plane) as management,
    ):
        other_plane.seed_kubeadm()
        flooded = Load(management.add_cluster("wave", control_plane, namespace="wave"), requests)
        elsewhere = management.add_cluster("single", other_plane, namespace="single")
        single = Load(elsewhere, _SINGLE_AT_MOST, master_key=flooded.master_key, called="single")
        for load, plane in ((flooded, control_plane), (single, other_plane)):
            load.add_machines()
            restrict_in_workload_cluster(load.cluster, plane)
            load.cluster.authorize("keyed-mac")
        try:
            return _measure(control_plane, flooded, single, Path(folder) / "loot")
        finally:
            for load in (flooded, single):
                load.cluster.remove()


def _measure(control_plane: ControlPlane, flooded: Load, single: Load, loot: Path) -> Wave:
    namespaces = (flooded.cluster.namespace, single.cluster.namespace)
    token = control_plane.token_connection(control_plane.bootstrap_token())
    manifests = flooded.requests("wave")
    write_loot(loot, token, manifests)
    joining = _Joining(single)
    management = as_service_account(control_plane, *namespaces)
    with controller_process(management, flooded.configuration.attestors) as controller:
        joining.join(_WARM, lambda: True)
        before = joining.join(JOINS_BEFORE, lambda: True)
        wave = Watcher(control_plane.connection(), {manifest["metadata"]["name"] for manifest in manifests}).watch()
        began = time.monotonic()
        with subprocess.Popen([sys.executable, "-m", "tests.bench.thief", str(loot)]) as poster:
            try:
                meanwhile = joining.join(JOINS_BEFORE, lambda: poster.poll() is not None and not wave.is_alive())
            finally:
                poster.terminate()
        assert poster.returncode == 0
        assert controller.poll() is None
        wave.wait(controller)
    return Wave(
        flooded.count,
        len(before.seconds),
        len(meanwhile.seconds),
        before.percentile(50),
        before.percentile(99),
        meanwhile.percentile(50),
        meanwhile.percentile(99),
        wave.last - began,
    )


class _Joining:
    """Starts a single join every half second, whether or not earlier ones are done."""

    def __init__(self, load: Load) -> None:
        self._left: Iterator[JsonObject] = iter(load.requests("single"))
        api = load.cluster.api
        self._connection: ClusterConnection = api.token_connection(api.bootstrap_token())

    def join(self, at_least: int, over: Callable[[], bool]) -> Joins:
        """Start ``at_least`` joins, and more until ``over()``.

        Raises:
            AssertionError: a join was denied, or there were too few requests.
            TimeoutError: a node got no certificate within two minutes.
        """
        with LoopThread("single joins") as thread:
            return thread.run(self._join(at_least, over))

    async def _join(self, at_least: int, over: Callable[[], bool]) -> Joins:
        running: list[asyncio.Task[float]] = []
        async with Client(self._connection, connection_limit=64) as client, asyncio.TaskGroup() as tasks:
            begun = time.monotonic()
            while len(running) < at_least or not over():
                manifest = next(self._left, None)
                assert manifest is not None, "there are too few single joins"
                running.append(tasks.create_task(_certified(client, manifest)))
                await asyncio.sleep(begun + len(running) * EVERY_SECONDS - time.monotonic())
        return Joins(tuple(task.result() for task in running))


async def _certified(client: Client, manifest: JsonObject) -> float:
    began = time.monotonic()
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        await post(client, manifest)
        verdict = await decision(client, manifest["metadata"]["name"])
    assert verdict.certificate, verdict
    return time.monotonic() - began
