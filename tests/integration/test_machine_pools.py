"""Nodes of MachinePools: instances without Machines, and MachinePool Machines.

The work queue's own retries are switched off, so a request that is decided was woken by the change.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Final

import pytest

from signer.kube.resources import (
    CLUSTERS_V1BETA2,
    CUSTOM_RESOURCE_DEFINITIONS,
    MACHINE_POOLS_V1BETA2,
    MACHINES_V1BETA2,
    NODE_ATTESTATION_POLICIES,
)
from signer.kube.workqueue import WorkQueue
from signer.testing.api import EmbeddedAPI
from signer.testing.fixtures import open_controllers, open_workload_clusters
from signer.testing.world import ManagementCluster, Verdict, WorldCluster
from tests.integration.endorsement_key_sources import assert_one_owner_each
from tests.integration.fixtures import Harness, assert_one_certificate, assert_readable, node_of, pending, provider_id

pytestmark = pytest.mark.slow

_NUMBERS: Final = itertools.count(1)
LAST_SEGMENT: Final = {"nodeNames": {"sources": ["ProviderID"]}}


@pytest.fixture(scope="module")
def harness(shared_harness: Harness, short_waits: None) -> Iterator[Harness]:
    """One harness; its controller never tries again just because time has passed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkQueue, "retry", lambda self, key: 0.0)
        shared_harness.run()
        yield shared_harness


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    """A cluster whose nodes are called as their provider IDs end; the controller watches it."""
    cluster = harness.cluster(f"cluster-{next(_NUMBERS)}", policy=LAST_SEGMENT)
    harness.join(cluster)
    return cluster


@pytest.fixture
def instance() -> str:
    """What an instance of this test's own is called."""
    return f"instance-{next(_NUMBERS)}"


def ask(cluster: WorldCluster, instance: str, node_name: str | None = None) -> None:
    cluster.submit_with_token(node_of(cluster, instance, node_name).client_request(instance))


def attested(cluster: WorldCluster, csr: str) -> Verdict:
    verdict = cluster.wait_until_decided(csr)
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    return verdict


def renew(cluster: WorldCluster, instance: str, csr: str) -> None:
    cluster.submit_as_node(node_of(cluster, instance).client_request(csr), instance)
    attested(cluster, csr)


def test_an_instance_joins_and_renews(harness: Harness, cluster: WorldCluster, instance: str) -> None:
    cluster.add_machine_pool(f"pool-of-{instance}", provider_id("another"), provider_id(instance))
    ask(cluster, instance)
    attested(cluster, instance)
    renew(cluster, instance, f"{instance}-renewal")
    pool = f"pool-of-{instance}"
    assert_one_certificate(harness, cluster, pool, instance, f"{instance}-renewal")
    [record] = [record for record in harness.records(cluster) if record["spec"]["nodeName"] == instance]
    assert record["spec"]["machineRef"]["kind"] == "MachinePool"
    assert record["spec"]["providerID"] == provider_id(instance)
    assert_one_owner_each(harness, [cluster])


def test_an_instance_makes_a_request_before_the_pool_lists_it(
    harness: Harness, cluster: WorldCluster, instance: str
) -> None:
    cluster.add_machine_pool(instance, provider_id("another"))
    ask(cluster, instance)
    assert_readable(harness.wait_for_event("MachineNotFound", cluster.name, "Cluster"))
    pending(cluster, instance)
    listed = [provider_id("another"), provider_id(instance)]
    cluster.patch_machine_pool(instance, {"spec": {"providerIDList": listed}})
    attested(cluster, instance)


def test_two_instances_of_one_pool_are_two(harness: Harness, cluster: WorldCluster, instance: str) -> None:
    other = f"{instance}-other"
    cluster.add_machine_pool(instance, provider_id(instance), provider_id(other))
    for name in (instance, other):
        ask(cluster, name)
        attested(cluster, name)
    records = assert_one_owner_each(harness, [cluster])
    assert {instance, other} <= {record.node_name for record in records}


def test_an_instance_cannot_have_another_instances_name(cluster: WorldCluster, instance: str) -> None:
    victim = f"{instance}-victim"
    cluster.add_machine_pool(instance, provider_id(instance), provider_id(victim))
    ask(cluster, victim)
    attested(cluster, victim)
    ask(cluster, instance, victim)
    verdict = cluster.wait_until_decided(instance)
    assert (verdict.condition, verdict.reason) == ("Denied", "NodeNameMismatch")
    assert_readable(verdict.message)


def test_the_machine_of_an_instance_comes_later(harness: Harness, cluster: WorldCluster, instance: str) -> None:
    """What was recorded for the instance goes on, and one piece of hardware has one pair of reservations."""
    pool = cluster.add_machine_pool(f"pool-of-{instance}", provider_id(instance))
    ask(cluster, instance)
    attested(cluster, instance)
    machine = cluster.add_machine(f"{instance}-machine", provider_id=provider_id(instance), owner=pool)
    harness.join(cluster)  # whose Machine comes later: that one has been seen
    renew(cluster, instance, f"{instance}-as-machine")
    [record] = [record for record in harness.records(cluster) if record["spec"]["nodeName"] == instance]
    assert record["spec"]["machineRef"]["uid"] == machine["metadata"]["uid"]
    harness.management.client.delete(MACHINES_V1BETA2.object(f"{instance}-machine", cluster.namespace))
    harness.join(cluster)
    renew(cluster, instance, f"{instance}-as-instance")
    csrs = [instance, f"{instance}-as-machine", f"{instance}-as-instance"]
    assert_one_certificate(harness, cluster, f"pool-of-{instance}", *csrs)


def test_a_machine_that_is_not_the_pools(harness: Harness, cluster: WorldCluster, instance: str) -> None:
    cluster.add_machine_pool(instance, provider_id(instance))
    cluster.add_machine(f"{instance}-foreign", provider_id=provider_id(instance))
    later = f"{instance}-later"
    cluster.add_machine_pool(later, provider_id(later))
    ask(cluster, later)
    attested(cluster, later)
    harness.join(cluster)  # its Machine, and that pool, come later: those of the instance have been seen
    ask(cluster, instance)
    assert_readable(harness.wait_for_event("MachineAmbiguous", cluster.name, "Cluster"))
    pending(cluster, instance)
    harness.management.client.delete(MACHINES_V1BETA2.object(f"{instance}-foreign", cluster.namespace))
    attested(cluster, instance)


def test_an_instance_moves_to_another_pool(harness: Harness, cluster: WorldCluster, instance: str) -> None:
    """The former pool no longer lists it: the reservation is released and moves over."""
    cluster.add_machine_pool(f"{instance}-former", provider_id(instance))
    ask(cluster, instance)
    attested(cluster, instance)
    cluster.patch_machine_pool(f"{instance}-former", {"spec": {"providerIDList": None}})
    cluster.add_machine_pool(f"{instance}-new", provider_id(instance))
    harness.join(cluster)
    renew(cluster, instance, f"{instance}-renewal")
    assert_one_certificate(harness, cluster, f"{instance}-new", instance, f"{instance}-renewal")
    assert not [item for item in harness.reservations() if item["spec"]["machineRef"]["name"] == f"{instance}-former"]


def test_a_pool_that_is_not_ready(harness: Harness, cluster: WorldCluster, instance: str) -> None:
    cluster.add_machine_pool(instance, provider_id(instance), bootstrap_ready=False)
    ask(cluster, instance)
    assert_readable(harness.wait_for_event("MachineNotReady", instance, "MachinePool"))
    pending(cluster, instance)
    path = MACHINE_POOLS_V1BETA2.object(instance, cluster.namespace, subresource="status")
    harness.management.client.patch(path, {"status": {"initialization": {"bootstrapDataSecretCreated": True}}})
    attested(cluster, instance)


def test_a_paused_pool(harness: Harness, cluster: WorldCluster, instance: str) -> None:
    cluster.add_machine_pool(instance, provider_id(instance))
    cluster.patch_machine_pool(instance, {"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}})
    harness.join(cluster)
    ask(cluster, instance)
    harness.wait_for_event("MachinePaused", instance, "MachinePool")
    pending(cluster, instance)
    cluster.patch_machine_pool(instance, {"metadata": {"annotations": {"cluster.x-k8s.io/paused": None}}})
    attested(cluster, instance)


def test_a_pool_that_is_being_deleted(harness: Harness, cluster: WorldCluster, instance: str) -> None:
    cluster.add_machine_pool(instance, provider_id(instance))
    cluster.patch_machine_pool(instance, {"metadata": {"finalizers": ["test.example/kept"]}})
    harness.management.client.delete(MACHINE_POOLS_V1BETA2.object(instance, cluster.namespace))
    harness.join(cluster)
    ask(cluster, instance)
    verdict = cluster.wait_until_decided(instance)
    assert (verdict.condition, verdict.reason) == ("Denied", "MachineDeleting")
    cluster.patch_machine_pool(instance, {"metadata": {"finalizers": None}})


def test_a_pool_needs_a_source_of_node_names(harness: Harness, instance: str) -> None:
    cluster = harness.cluster(f"cluster-{next(_NUMBERS)}")
    cluster.add_machine_pool(instance, provider_id(instance))
    ask(cluster, instance)
    message = harness.wait_for_event("MachineAddressesUnknown", instance, "MachinePool")
    assert "add ProviderID to nodeNames.sources" in message
    pending(cluster, instance)
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    harness.management.client.patch(path, {"spec": LAST_SEGMENT})
    attested(cluster, instance)


def test_without_machine_pools_in_the_management_cluster(tmp_path: Path) -> None:
    """A Cluster API without that resource: everything else works."""
    for entry in files("signer.testing").joinpath("crds").iterdir():
        if "machinepools" not in entry.name:
            (tmp_path / entry.name).write_text(entry.read_text(encoding="utf-8"), encoding="utf-8")
    with (
        EmbeddedAPI() as api,
        ManagementCluster(api, capi_crds=tmp_path) as management,
        open_workload_clusters(management) as make_cluster,
        open_controllers(management) as start,
    ):
        served = [
            item["metadata"]["name"] for item in management.client.items(CUSTOM_RESOURCE_DEFINITIONS.collection())
        ]
        assert "machinepools.cluster.x-k8s.io" not in served
        assert management.client.items(CLUSTERS_V1BETA2.collection()) == []
        harness = Harness(management, make_cluster, start)
        harness.run()
        harness.join(harness.cluster())
