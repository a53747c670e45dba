"""Names without a record, machines that collect names, and changes while a request is reserved."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from signer.kube.resources import MACHINES_V1BETA2
from signer.model.reservation import Basis, Pair
from signer.store.caches import Caches
from signer.store.reservations import Reservations
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, node_of, pending, provider_id


def node_ref(cluster: WorldCluster, machine: str, node: str) -> None:
    """The Machine controller found that Node for it."""
    path = MACHINES_V1BETA2.object(machine, cluster.namespace, subresource="status")
    cluster.management.client.patch(path, {"status": {"nodeRef": {"name": node}}})


def ask(cluster: WorldCluster, machine: str, node: str, csr: str) -> None:
    cluster.submit_with_token(node_of(cluster, machine, node).client_request(csr))


def test_the_name_of_a_running_node_that_was_never_attested(harness: Harness) -> None:
    """The kubeadm-init machine: a worker that reports its host name must not become it."""
    cluster = harness.cluster()
    cluster.add_machine("cp-1", provider_id=provider_id("cp-1"), addresses=[("InternalIP", "192.0.2.1")])
    node_ref(cluster, "cp-1", "control-plane")
    cluster.add_machine("w-1", provider_id=provider_id("w-1"), addresses=[("Hostname", "control-plane")])
    harness.run()
    ask(cluster, "w-1", "control-plane", "theft")
    assert "cp-1" in harness.wait_for_event("NodeNameBlocked", "w-1")
    pending(cluster, "theft")
    # The true one is adopted, whatever the other one reports.
    path = MACHINES_V1BETA2.object("cp-1", cluster.namespace, subresource="status")
    addresses = [{"type": "Hostname", "address": "control-plane"}]
    cluster.management.client.patch(path, {"status": {"addresses": addresses}})
    cluster.submit_as_node(node_of(cluster, "cp-1", "control-plane").client_request("adopted"), "control-plane")
    assert cluster.wait_until_decided("adopted").reason == "Attested"
    # And now the name is taken for good.
    assert cluster.wait_until_decided("theft").reason == "IdentityConflict"


def test_the_end_of_another_instances_provider_id(harness: Harness) -> None:
    cluster = harness.cluster(policy={"nodeNames": {"sources": ["ProviderID"]}})
    cluster.add_machine_pool("pool", "test:///zone-1/name", "test:///zone-2/name")
    harness.run()
    node = node_of(cluster, "zone-2/name", "name")
    cluster.submit_with_token(node.client_request("second"))
    assert "zone-1/name" in harness.wait_for_event("NodeNameBlocked", "pool", "MachinePool")
    pending(cluster, "second")
    cluster.patch_machine_pool("pool", {"spec": {"providerIDList": ["test:///zone-2/name"]}})
    assert cluster.wait_until_decided("second").reason == "Attested"


@pytest.mark.parametrize(("reuse", "reason"), [("AfterExpiry", ""), ("Immediate", "Attested")])
def test_a_machine_that_collects_names(harness: Harness, reuse: str, reason: str) -> None:
    cluster = harness.cluster(policy={"nodeNameReuse": reuse})
    machine = cluster.add_machine("m", provider_id=provider_id("m"))
    harness.run()
    ask(cluster, "m", "m", "own")
    assert cluster.wait_until_decided("own").reason == "Attested"
    cluster.set_machine_status(machine, {"addresses": [{"type": "Hostname", "address": "database"}]})
    harness.join(cluster)  # its Machine comes later: all of this is known by then
    ask(cluster, "m", "database", "second")
    if reason:
        assert cluster.wait_until_decided("second").reason == reason
    else:
        assert "is node m" in harness.wait_for_event("NodeNameBlocked", "m")
        pending(cluster, "second")


def test_a_machine_whose_hardware_had_another_name_as_another_machine(harness: Harness) -> None:
    """Both certificates are valid: it would be two nodes, one of them of a Machine that was deleted."""
    cluster = harness.cluster()
    cluster.add_machine("former", provider_id=provider_id("m"), addresses=[("Hostname", "database")])
    harness.run()
    ask(cluster, "m", "database", "as-the-former")
    assert cluster.wait_until_decided("as-the-former").reason == "Attested"
    cluster.management.client.delete(MACHINES_V1BETA2.object("former", cluster.namespace))
    machine = cluster.add_machine("m", provider_id=provider_id("m"))
    ask(cluster, "m", "m", "own")
    assert cluster.wait_until_decided("own").reason == "Attested"
    cluster.set_machine_status(machine, {"addresses": [{"type": "Hostname", "address": "database"}]})
    harness.join(cluster)  # its Machine comes later: all of this is known by then
    ask(cluster, "m", "database", "both")
    assert "is node m" in harness.wait_for_event("NodeNameBlocked", "m")
    pending(cluster, "both")


def _pause(cluster: WorldCluster) -> None:
    cluster.patch({"spec": {"paused": True}})


def _take_address(cluster: WorldCluster) -> None:
    path = MACHINES_V1BETA2.object("m", cluster.namespace, subresource="status")
    cluster.management.client.patch(path, {"status": {"addresses": [{"type": "Hostname", "address": "other"}]}})


@pytest.mark.parametrize(
    ("change", "hook"), [(_pause, "_cluster_changed"), (_take_address, "_machine_changed")], ids=["paused", "renamed"]
)
def test_changes_during_the_reservation_are_checked(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, change: Callable[[WorldCluster], None], hook: str
) -> None:
    """`clusterctl move` may have copied the records already: nothing may be journaled here any more."""
    cluster = harness.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    reserve, cached = Reservations.reserve, getattr(Caches, hook)
    armed, seen = threading.Event(), threading.Event()

    async def reserve_then_change(self: Reservations, pair: Pair, record: Any, basis: Basis) -> None:
        await reserve(self, pair, record, basis)
        if not armed.is_set():
            armed.set()
            await asyncio.to_thread(change, cluster)
            while not seen.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # the cache has no Event to wait for

    def see(self: Caches, *arguments: Any) -> None:
        cached(self, *arguments)
        if armed.is_set():
            seen.set()

    monkeypatch.setattr(Caches, hook, see)
    monkeypatch.setattr(Reservations, "reserve", reserve_then_change)
    harness.run()
    ask(cluster, "m", "m", "join")
    if change is _pause:
        harness.wait_for_event("ClusterPaused", "m")
        pending(cluster, "join")
    else:
        assert cluster.wait_until_decided("join").reason == "NodeNameMismatch"
    assert harness.records(cluster) == []
