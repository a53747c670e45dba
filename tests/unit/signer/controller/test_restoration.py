"""Clusters whose policy is gone get back what Enforce removed; those that move, pause or are deleted do not."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from signer.controller import restoration as restoration_module
from signer.controller.restoration import Restoration, _NotNow
from signer.controller.workload_access import workload_connection
from signer.kube.backoff import Backoff
from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTERS_V1BETA2, CONFIG_MAPS, NODE_ATTESTATION_POLICIES
from signer.model.cluster import DELETE_FOR_MOVE_ANNOTATION, ClusterKey
from signer.model.side_door import ClusterIdentity, parse_cluster_role_binding
from signer.store.inventory import ALL_PROVIDER_IDS, Inventory, discover_cluster_api
from signer.store.removed_grants import RemovedGrants
from signer.testing.api import EmbeddedAPI
from signer.testing.fixtures import MakeWorkloadCluster, embedded_api
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, WorldCluster

FIRST, RENEWAL = "kubeadm:node-autoapprove-bootstrap", "kubeadm:node-autoapprove-certificate-rotation"
KEY: Final = ClusterKey("default", "workload")
POLICY: Final = NODE_ATTESTATION_POLICIES.object(KEY.name, KEY.namespace)
CLUSTER: Final = CLUSTERS_V1BETA2.object(KEY.name, KEY.namespace)
BINDINGS: Final = CLUSTER_ROLE_BINDINGS.collection()
FAILED: Final = "cannot give back what Enforce removed"
LOOK_FAILED: Final = "cannot look for kept grants"


class Told(logging.Handler):
    """What was logged, and an event for each message."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []
        self._events: dict[str, asyncio.Event] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self._event(record.getMessage()).set()

    async def wait_for(self, message: str) -> None:
        await asyncio.wait_for(self._event(message).wait(), 20)

    def _event(self, message: str) -> asyncio.Event:
        return self._events.setdefault(message, asyncio.Event())


class House:
    """A cluster, its management cluster, and a Restoration over an inventory that tests fill by hand."""

    def __init__(self, cluster: WorldCluster, management: Client, inventory: Inventory, told: Told) -> None:
        self.cluster = cluster
        self.inventory = inventory
        self.management = management
        self.told = told
        self.removed = RemovedGrants(management, CONTROLLER_NAMESPACE)
        self.connections: list[ClusterKey] = []

        async def connect(management: Any, key: ClusterKey) -> ClusterConnection:
            self.connections.append(key)
            return await workload_connection(management, key)

        self.restoration = Restoration(
            inventory,
            management,
            self.removed,
            now=lambda: datetime.now(UTC),
            monotonic=time.monotonic,
            connect=connect,
        )

    @property
    def api(self) -> EmbeddedAPI:
        return embedded_api(self.cluster)

    def bindings(self) -> dict[str, Any]:
        return {
            item["metadata"]["name"]: (item["roleRef"], item.get("subjects"), item["metadata"].get("labels"))
            for item in self.api.objects("clusterrolebindings")
        }

    async def remove(self, ca_cert_hash: str = "") -> None:
        """What Enforce does."""
        owner = ClusterIdentity(KEY, ca_cert_hash or self.cluster.ca_cert_hash)
        found = [self.api.get("clusterrolebindings", name) for name in (FIRST, RENEWAL)]
        await self.removed.keep(owner, [parse_cluster_role_binding(one) for one in found])
        for name in (FIRST, RENEWAL):
            self.api.delete("clusterrolebindings", name)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The Restoration, until the context ends."""
        task = asyncio.create_task(self.restoration.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def is_restored(self) -> None:
        for name in (FIRST, RENEWAL):
            await asyncio.to_thread(self.cluster.client().wait_for, BINDINGS, name, lambda item: True)
        await self.restoration._queue.idle()
        assert self.config_maps() == []

    def is_not_restored(self) -> None:
        assert not {FIRST, RENEWAL} & self.bindings().keys()
        assert len(self.config_maps()) == 1
        assert self.connections == []

    def config_maps(self) -> list[Any]:
        return self.cluster.management.client.items(CONFIG_MAPS.collection(CONTROLLER_NAMESPACE))

    def authorize(self, **spec: Any) -> dict[str, Any]:
        """A policy, and the inventory knows it."""
        return self.seen(self.cluster.authorize("insecure", mode="Enforce", **spec))

    def seen(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.inventory.policies.applied(manifest)
        return manifest

    def delete_policy(self) -> None:
        """Gone, and the inventory knows it."""
        manifest = self.cluster.management.client.get(POLICY)
        self.cluster.management.client.delete(POLICY)
        self.inventory.policies.removed(manifest)


@pytest.fixture
async def house(
    management_cluster: ManagementCluster,
    make_workload_cluster: MakeWorkloadCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> AsyncIterator[House]:
    monkeypatch.setattr(restoration_module, "RETRY", Backoff(base_seconds=0.01, maximum_seconds=0.01, jitter=0))
    told, logger = Told(), logging.getLogger("signer.controller.restoration")
    cluster = make_workload_cluster()
    logger.addHandler(told)
    caplog.set_level(logging.INFO, logger.name)
    async with Client(management_cluster.api.connection()) as management:
        inventory = Inventory(await discover_cluster_api(management), own_namespace=CONTROLLER_NAMESPACE)
        yield House(cluster, management, inventory, told)
    logger.removeHandler(told)
    # A TLS connection that was closed lingers until its peer says goodbye, and nobody will wait for that here.
    for transport in list(getattr(asyncio.get_running_loop(), "_transports", {}).values()):
        transport.abort()
    for _ in range(3):
        await asyncio.sleep(0)


# What is given back


async def test_a_policy_that_was_deleted_while_no_controller_ran(house: House) -> None:
    before = house.bindings()
    await house.remove()
    async with house.running():
        await house.is_restored()
    assert house.bindings() == before


async def test_a_policy_that_is_deleted_while_it_runs(house: House) -> None:
    before = house.bindings()
    house.authorize()
    async with house.running():
        await house.remove()
        house.delete_policy()
        await house.is_restored()
    assert house.bindings() == before


async def test_policies_that_were_there_before_it_are_known(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.authorize()
    later, looked = House(house.cluster, house.management, house.inventory, house.told), asyncio.Event()

    async def nobody() -> frozenset[ClusterIdentity]:
        looked.set()
        return frozenset()

    monkeypatch.setattr(later.removed, "owners", nobody)
    async with later.running():
        await looked.wait()
        assert len(later.restoration._queue) == 0
        house.delete_policy()
        assert len(later.restoration._queue) == 1


async def test_a_policy_that_came_while_it_runs(house: House) -> None:
    async with house.running():
        house.authorize()
        await house.remove()
        house.delete_policy()
        await house.is_restored()


async def test_a_cluster_that_is_unpaused(house: House) -> None:
    await house.remove()
    house.cluster.patch({"spec": {"paused": True}})
    async with house.running():
        await house.told.wait_for("kept grants are not given back now")
        house.is_not_restored()
        house.inventory.clusters.applied(house.cluster.patch({"spec": {"paused": False}}))
        await house.is_restored()


async def test_it_is_looked_again_from_time_to_time(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another replica kept it, or a Machine's change is all that was seen."""
    monkeypatch.setattr(restoration_module, "LOOK_SECONDS", 0.01)
    async with house.running():
        await house.remove()
        await house.is_restored()


# What is not


async def test_a_change_of_machines_or_of_other_clusters_asks_for_nothing(house: House) -> None:
    house.authorize()
    house.restoration._on_change(KEY, frozenset({"test:///machine"}))
    house.restoration._on_change(KEY, ALL_PROVIDER_IDS)  # it has a policy
    house.restoration._on_change(ClusterKey("default", "another"), ALL_PROVIDER_IDS)
    assert len(house.restoration._queue) == 0
    house.delete_policy()
    assert len(house.restoration._queue) == 1
    house.restoration._queue.discard(KEY)
    house.restoration._on_change(KEY, frozenset({"test:///machine"}))
    assert len(house.restoration._queue) == 0


async def test_a_cluster_with_a_policy_is_its_own_tasks_business(house: House) -> None:
    """Though the mirror may not know of it yet."""
    house.cluster.authorize("insecure", mode="Enforce")
    await house.remove()
    with pytest.raises(_NotNow, match="has a policy"):
        await house.restoration._restore(KEY)
    house.is_not_restored()


async def test_a_cluster_that_is_gone(house: House) -> None:
    await house.remove()
    house.cluster.management.client.delete(CLUSTER)
    with pytest.raises(_NotNow, match="gone"):
        await house.restoration._restore(KEY)
    house.is_not_restored()


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"paused": True}},
        {"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}},
        {"metadata": {"annotations": {DELETE_FOR_MOVE_ANNOTATION: ""}}},
    ],
)
async def test_a_cluster_that_is_paused_or_moving(house: House, patch: dict[str, Any]) -> None:
    await house.remove()
    house.cluster.patch(patch)
    with pytest.raises(_NotNow, match="paused"):
        await house.restoration._restore(KEY)
    house.is_not_restored()


async def test_a_cluster_that_is_being_deleted(house: House) -> None:
    await house.remove()
    house.cluster.patch({"metadata": {"finalizers": ["cluster.cluster.x-k8s.io"]}})
    house.cluster.management.client.delete(CLUSTER)
    with pytest.raises(_NotNow, match="being deleted"):
        await house.restoration._restore(KEY)
    house.is_not_restored()


@pytest.mark.parametrize("spec", [{}, {"certificates": {"clientDuration": "1m"}}], ids=["readable", "unreadable"])
async def test_a_policy_that_clusterctl_moves_away(house: House, spec: dict[str, Any]) -> None:
    """Even where the Cluster is not paused: the annotation stands on the policy before it is deleted."""
    house.authorize(**spec)
    await house.remove()
    mark = {"metadata": {"annotations": {DELETE_FOR_MOVE_ANNOTATION: ""}}}
    house.seen(house.cluster.management.client.patch(POLICY, mark))
    house.delete_policy()
    with pytest.raises(_NotNow, match="move"):
        await house.restoration._restore(KEY)
    house.is_not_restored()
    # It comes back, and is deleted for good.
    house.authorize()
    house.delete_policy()
    await house.restoration._restore(KEY)
    assert house.config_maps() == []


async def test_another_cluster_under_the_same_name_gets_nothing(house: House) -> None:
    await house.remove("cd" * 32)
    await house.restoration._restore(KEY)
    house.is_not_restored()


# Faults


async def fails_then_works(house: House, mend: Callable[[], object] = lambda: None) -> None:
    async with house.running():
        await house.told.wait_for(FAILED)
        await asyncio.to_thread(mend)
        await house.is_restored()


async def test_a_workload_cluster_that_fails(house: House) -> None:
    await house.remove()
    fault = house.api.faults.inject(f"POST {BINDINGS}", status=503, times=3)
    await fails_then_works(house)
    assert fault.hits == 3


async def test_a_workload_cluster_that_cannot_be_reached(house: House) -> None:
    await house.remove()
    house.api.stop_listening()
    await fails_then_works(house, house.api.start_listening)


@pytest.mark.parametrize("purpose", ["kubeconfig", "ca"])
async def test_a_secret_that_is_missing(house: House, purpose: str) -> None:
    await house.remove()
    house.cluster.delete_secret(purpose)
    data = {"value": house.api.kubeconfig().encode()}
    if purpose == "ca":
        data = {"tls.crt": house.api.ca_certificate_pem, "tls.key": house.api.ca_key_pem}
    await fails_then_works(house, lambda: house.cluster.put_secret(purpose, data))


async def test_a_management_cluster_that_fails(house: House) -> None:
    await house.remove()
    embedded_api(house.cluster.management).faults.inject(f"GET {POLICY}", status=503, times=2)
    await fails_then_works(house)


async def test_a_workload_cluster_that_hangs(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await house.remove()
    monkeypatch.setattr(restoration_module, "CLUSTER_TIMEOUT_SECONDS", 0.3)
    house.api.faults.inject(f"POST {BINDINGS}", delay_seconds=3600)
    await fails_then_works(house)


async def test_kept_grants_that_cannot_be_listed_are_listed_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoration_module, "LOOK_SECONDS", 0.01)
    await house.remove()
    pattern = f"GET {CONFIG_MAPS.collection(CONTROLLER_NAMESPACE)}"
    embedded_api(house.cluster.management).faults.inject(pattern, status=403, times=2)
    async with house.running():
        await house.told.wait_for(LOOK_FAILED)
        await house.is_restored()


async def test_a_binding_that_is_refused_stays_kept_and_is_told(house: House) -> None:
    await house.remove()
    house.api.patch(
        "clusterroles",
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]},
    )
    async with house.running():
        await house.told.wait_for(FAILED)
    assert FIRST not in house.bindings()
    assert RENEWAL in house.bindings()
    assert house.config_maps()
    assert any("grants more" in getattr(record, "error", "") for record in house.told.records)


async def test_a_fault_of_ours_does_not_end_it(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await house.remove()
    times = iter(range(2))
    restore = RemovedGrants.restore

    async def broken(self: RemovedGrants, *arguments: Any) -> Any:
        if next(times, None) is not None:
            raise RuntimeError("a fault of ours")
        return await restore(self, *arguments)

    monkeypatch.setattr(RemovedGrants, "restore", broken)
    await fails_then_works(house)
    assert any(record.exc_info for record in house.told.records)
