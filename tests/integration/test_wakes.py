"""A change wakes exactly the requests that waited for it.

The work queue's own retries are switched off: whatever is judged again was woken, and every judgement is counted.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from signer.controller.requests.informer import RequestInformer
from signer.decision.decider import DecidedRequest, Decider
from signer.kube.resources import EVENTS, MACHINE_POOLS_V1BETA2, MACHINES_V1BETA2
from signer.kube.workqueue import WorkQueue
from signer.store.caches import ProviderIDs
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, node_of, pending, provider_id
from tests.support.remembered_audit import RememberedAudit

_NUMBERS: Final = itertools.count(1)


@pytest.fixture(scope="module")
def judged() -> Iterator[Counter[str]]:
    """The number of decisions of each CSR."""
    counted: Counter[str] = Counter()
    decide = Decider.decide

    async def counting(self: Decider, manifest: Mapping[str, Any]) -> DecidedRequest:
        counted[manifest["metadata"]["name"]] += 1
        return await decide(self, manifest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Decider, "decide", counting)
        yield counted


@pytest.fixture(scope="module")
def harness(shared_harness: Harness, judged: Counter[str]) -> Iterator[Harness]:
    """One harness; its controller never tries again just because time has passed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkQueue, "retry", lambda self, key: 0.0)
        patch.setattr(WorkQueue, "add_after", lambda self, key, seconds: None)
        shared_harness.run()
        yield shared_harness


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    """A cluster of this test's own, whose requests are watched."""
    cluster = harness.cluster(f"cluster-{next(_NUMBERS)}", policy={"nodeNameReuse": "Immediate"})
    harness.join(cluster)
    return cluster


def names(count: int) -> list[str]:
    """Names of this test's own."""
    return [f"machine-{next(_NUMBERS)}" for _ in range(count)]


def ask(
    harness: Harness, cluster: WorldCluster, machine: str, reason: str, about: str = "", kind: str = "Machine"
) -> None:
    """Post the request of ``machine``, and wait until it waits."""
    cluster.submit_with_token(node_of(cluster, machine).client_request(machine))
    harness.wait_for_event(reason, about or machine, kind)


def wait_for_message(harness: Harness, text: str) -> None:
    """Wait for an Event that says so."""
    harness.management.client.wait_for_any(EVENTS.collection("default"), lambda event: text in event["message"])


def is_attested(cluster: WorldCluster, csr: str) -> None:
    verdict = cluster.wait_until_decided(csr)
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict


def test_a_machine_wakes_its_own_request_only(harness: Harness, cluster: WorldCluster, judged: Counter[str]) -> None:
    woken, sleeping = names(2)
    for machine in (woken, sleeping):
        cluster.add_machine(machine, provider_id=provider_id(machine), bootstrap_ready=False)
    harness.join(cluster)  # its Machine comes later: all of this is known by then
    for machine in (woken, sleeping):
        ask(harness, cluster, machine, "MachineNotReady")
    status = {"initialization": {"bootstrapDataSecretCreated": True}}
    harness.management.client.patch(
        MACHINES_V1BETA2.object(woken, cluster.namespace, subresource="status"), {"status": status}
    )
    is_attested(cluster, woken)
    harness.join(cluster)  # its Machine comes later
    assert (judged[woken], judged[sleeping]) == (2, 1)
    pending(cluster, sleeping)


def test_a_machine_that_changes_while_the_decision_is_logged_wakes_its_request(
    harness: Harness, cluster: WorldCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is on disk before anything else is done; a disk may be slow."""
    [machine] = names(1)
    append, wake = RememberedAudit.append, RequestInformer.wake
    woken = threading.Event()

    def heard(self: RequestInformer, provider_ids: ProviderIDs) -> None:
        wake(self, provider_ids)
        if provider_id(machine) in provider_ids:
            woken.set()

    async def slow(self: RememberedAudit, content: bytes) -> None:
        if b"MachineNotReady" in content and machine.encode() in content:
            woken.clear()
            await asyncio.to_thread(make_ready)
            await asyncio.to_thread(woken.wait, 30)
        await append(self, content)

    def make_ready() -> None:
        status = {"initialization": {"bootstrapDataSecretCreated": True}}
        path = MACHINES_V1BETA2.object(machine, cluster.namespace, subresource="status")
        harness.management.client.patch(path, {"status": status})

    monkeypatch.setattr(RequestInformer, "wake", heard)
    monkeypatch.setattr(RememberedAudit, "append", slow)
    cluster.add_machine(machine, provider_id=provider_id(machine), bootstrap_ready=False)
    cluster.submit_with_token(node_of(cluster, machine).client_request(machine))
    is_attested(cluster, machine)


def test_a_change_irrelevant_to_decisions_wakes_no_request(
    harness: Harness, cluster: WorldCluster, judged: Counter[str]
) -> None:
    [machine] = names(1)
    cluster.add_machine(machine, provider_id=provider_id(machine), bootstrap_ready=False)
    harness.join(cluster)
    ask(harness, cluster, machine, "MachineNotReady")
    cluster.patch_machine(machine, {"metadata": {"labels": {"colour": "blue"}}})
    harness.join(cluster)
    assert judged[machine] == 1


def test_a_pool_wakes_requests_of_its_new_instances(harness: Harness, judged: Counter[str]) -> None:
    cluster = harness.cluster(f"cluster-{next(_NUMBERS)}", policy={"nodeNames": {"sources": ["ProviderID"]}})
    pool, woken, sleeping, last = names(4)
    harness.join(cluster)
    others = [provider_id(f"{pool}-{number}") for number in range(200)]
    cluster.add_machine_pool(pool, *others)
    for instance in (woken, sleeping, last):
        cluster.submit_with_token(node_of(cluster, instance).client_request(instance))
        wait_for_message(harness, f"no Machine has provider ID {provider_id(instance)} yet")
    listed = [*others, provider_id(woken)]
    cluster.patch_machine_pool(pool, {"spec": {"providerIDList": listed}})
    is_attested(cluster, woken)
    before = judged.copy()
    path = MACHINE_POOLS_V1BETA2.object(pool, cluster.namespace, subresource="status")
    harness.management.client.patch(path, {"status": {"replicas": 201}})
    cluster.patch_machine_pool(pool, {"spec": {"providerIDList": [*listed[1:], provider_id(last)]}})
    is_attested(cluster, last)
    assert (judged[woken], judged[sleeping]) == (before[woken], before[sleeping])
    pending(cluster, sleeping)


def test_a_node_name_becomes_free_when_the_machine_that_had_it_is_gone(
    harness: Harness, cluster: WorldCluster, judged: Counter[str]
) -> None:
    """The request claims its own Machine, and waits for another one: the recorded one."""
    former, replacement, bystander = names(3)
    cluster.add_machine(former, provider_id=provider_id(former))
    cluster.submit_with_token(node_of(cluster, former).client_request(former))
    is_attested(cluster, former)
    cluster.patch_machine(former, {"metadata": {"finalizers": ["test.example/kept"]}})
    harness.management.client.delete(MACHINES_V1BETA2.object(former, cluster.namespace))
    cluster.add_machine(replacement, provider_id=provider_id(replacement), addresses=[("Hostname", former)])
    cluster.add_machine(bystander, provider_id=provider_id(bystander), bootstrap_ready=False)
    harness.join(cluster)
    ask(harness, cluster, bystander, "MachineNotReady")
    cluster.submit_with_token(node_of(cluster, replacement, former).client_request(replacement))
    message = harness.wait_for_event("NodeNameBlocked", replacement)
    assert "being deleted" in message
    pending(cluster, replacement)
    cluster.patch_machine(former, {"metadata": {"finalizers": None}})
    is_attested(cluster, replacement)
    assert (judged[replacement], judged[bystander]) == (2, 1)
