"""Measures the join time of honest machines with fake TPMs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from attestors.wire.names import CHALLENGE_ANNOTATION, ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION
from signer.kube.client import Client, JsonObject
from signer.kube.connection import ClusterConnection
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS, MACHINES_V1BETA2
from signer.testing.clients import LoopThread
from signer.testing.world import Verdict, WorldCluster
from tests.bench.figures import percentile
from tests.integration.fixtures import provider_id
from tests.integration.tpm.fake_tpm_node import FakeTPMNode

_WAIT_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Joins:
    """The duration of each join, from its first request to its certificate, in seconds."""

    seconds: tuple[float, ...]

    def percentile(self, percent: float) -> float:
        """See :func:`tests.bench.figures.percentile`."""
        return percentile(self.seconds, percent)


def add_machines(cluster: WorldCluster, nodes: Sequence[FakeTPMNode]) -> None:
    """Create a Machine for each node, with its TPM's fingerprint in an annotation."""
    client = cluster.management.client
    path = MACHINES_V1BETA2.collection(cluster.namespace)
    client.create_all(path, [_machine(cluster, node) for node in nodes])
    client.patch_all([(f"{path}/{node.machine}/status", {"status": _status(node)}) for node in nodes])


def _status(node: FakeTPMNode) -> JsonObject:
    addresses = [{"type": "Hostname", "address": node.machine}]
    return {"addresses": addresses, "initialization": {"bootstrapDataSecretCreated": True}}


def _machine(cluster: WorldCluster, node: FakeTPMNode) -> JsonObject:
    return {
        "apiVersion": MACHINES_V1BETA2.api_version,
        "kind": "Machine",
        "metadata": {
            "name": node.machine,
            "namespace": cluster.namespace,
            "annotations": {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: node.chip.fingerprint},
        },
        "spec": {
            "clusterName": cluster.name,
            "providerID": provider_id(node.machine),
            "bootstrap": {"dataSecretName": "bench"},
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Test", "name": node.machine},
        },
    }


def join_in_turn(
    connection: ClusterConnection,
    nodes: Iterable[FakeTPMNode],
    *,
    every_seconds: float,
    at_least: int,
    over: Callable[[], bool],
) -> Joins:
    """Start a join every ``every_seconds``, whether or not earlier ones are done, until ``over()``.

    Raises:
        AssertionError: a join was denied, or there were too few nodes.
        TimeoutError: a node got no certificate within two minutes.
    """
    with LoopThread("honest nodes") as thread:  # closes all connections
        return thread.run(_join_in_turn(connection, nodes, every_seconds, at_least, over))


async def _join_in_turn(
    connection: ClusterConnection,
    nodes: Iterable[FakeTPMNode],
    every_seconds: float,
    at_least: int,
    over: Callable[[], bool],
) -> Joins:
    running: list[asyncio.Task[float]] = []
    waiting = iter(nodes)
    async with Client(connection, connection_limit=64) as client, asyncio.TaskGroup() as tasks:
        begun = time.monotonic()
        while len(running) < at_least or not over():
            node = next(waiting, None)
            assert node is not None, "there are too few honest nodes"
            running.append(tasks.create_task(_join(client, node)))
            await asyncio.sleep(begun + len(running) * every_seconds - time.monotonic())
    return Joins(tuple(task.result() for task in running))


async def _join(client: Client, node: FakeTPMNode) -> float:
    requests = CERTIFICATE_SIGNING_REQUESTS.collection()
    first, answer = f"honest-{node.machine}-first", f"honest-{node.machine}"
    manifest = node.manifest(first, node.chip.first())
    began = time.monotonic()
    await client.create(requests, manifest)
    challenged = await _decided(client, first)
    assert challenged.reason == "ChallengeIssued", challenged
    fields = node.chip.answer(challenged.annotations[CHALLENGE_ANNOTATION], node.binding())
    await client.create(requests, node.manifest(answer, fields))
    joined = await _decided(client, answer)
    assert joined.condition == "Approved", joined
    return time.monotonic() - began


async def _decided(client: Client, name: str) -> Verdict:
    """Wait for the verdict as a node does: one list, then a watch of that object."""
    path, selector = CERTIFICATE_SIGNING_REQUESTS.collection(), {"fieldSelector": f"metadata.name={name}"}
    async with asyncio.timeout(_WAIT_SECONDS):
        while True:
            listed = await client.get(path, selector)
            for item in listed["items"]:
                verdict = Verdict.of(item)
                if verdict.certificate or verdict.condition == "Denied":
                    return verdict
            query = {**selector, "resourceVersion": listed["metadata"]["resourceVersion"]}
            async for event in client.watch(path, query, timeout_seconds=int(_WAIT_SECONDS)):
                verdict = Verdict.of(event["object"])
                if verdict.certificate or verdict.condition == "Denied":
                    return verdict
