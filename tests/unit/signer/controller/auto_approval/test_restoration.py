"""Restoration for clusters whose policy is gone; not for moving, paused or deleted clusters."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from signer.admission.installation import install
from signer.controller.auto_approval import restoration as restoration_module
from signer.controller.auto_approval.refusal_policies import NODES, TOKENS
from signer.controller.auto_approval.restoration import _NotNow
from signer.kube.client import Client
from signer.kube.resources import (
    CONFIG_MAPS,
)
from signer.model.auto_approval import ClusterIdentity
from signer.model.cluster import DELETE_FOR_MOVE_ANNOTATION, ClusterKey, WatchFilter
from signer.model.floors import Floor, Floors, NamespaceFloor
from signer.model.policy import Mode
from signer.model.shard import SomeShards
from signer.store.removed_bindings import RemovedBindings
from signer.testing.fixtures import embedded_api
from signer.testing.world import CONTROLLER_NAMESPACE
from tests.support.admission_definitions import serve_admission_policies
from tests.support.processes import wait_until
from tests.unit.signer.controller.auto_approval.restoration_fixtures import (
    BINDINGS,
    CLUSTER,
    FAILED,
    FIRST,
    KEY,
    POLICY,
    RENEWAL,
    RESYNC_FAILED,
    RestorationHarness,
    harness,
)
from tests.unit.signer.store.over_limit import exceed, relist

pytestmark = pytest.mark.slow

__all__ = ["harness"]


async def install_refusal(harness: RestorationHarness) -> None:
    """What Enforce installs in the workload cluster."""
    serve_admission_policies(harness.api)
    async with Client(harness.api.connection()) as workload:
        for one in (TOKENS, NODES):
            await install(one.policy, workload)


# What is restored


async def test_a_policy_that_was_deleted_while_no_controller_ran(harness: RestorationHarness) -> None:
    before = harness.bindings()
    await harness.remove()
    async with harness.running():
        await harness.is_restored()
    assert harness.bindings() == before


async def test_the_admission_policies_go_too_even_if_nothing_was_removed(harness: RestorationHarness) -> None:
    """A cluster whose bindings were gone before Enforce, and whose policy was deleted while no controller ran."""
    manifest = await harness.management.get(CLUSTER)
    await harness.removed.remember(ClusterIdentity(KEY, manifest["metadata"]["uid"], harness.cluster.ca_cert_hash))
    await install_refusal(harness)
    assert len(harness.api.objects("validatingadmissionpolicies")) == 2
    async with harness.running():
        await asyncio.to_thread(wait_until, lambda: harness.config_maps() == [], "nothing is kept any more")
    assert harness.api.objects("validatingadmissionpolicies") == []
    assert harness.api.objects("validatingadmissionpolicybindings") == []


async def test_a_policy_that_is_deleted_while_it_runs(harness: RestorationHarness) -> None:
    before = harness.bindings()
    harness.authorize()
    async with harness.running():
        await harness.remove()
        harness.delete_policy()
        await harness.is_restored()
    assert harness.bindings() == before


async def test_policies_from_before_the_start_are_known(
    harness: RestorationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.authorize()
    later, listed = (
        RestorationHarness(harness.cluster, harness.management, harness.caches, harness.log),
        asyncio.Event(),
    )

    async def no_owners() -> frozenset[ClusterKey]:
        listed.set()
        return frozenset()

    monkeypatch.setattr(later.removed, "owners", no_owners)
    async with later.running():
        await listed.wait()
        assert len(later.restoration._queue) == 0
        harness.delete_policy()
        assert len(later.restoration._queue) == 1


async def test_a_policy_that_is_created_while_it_runs(harness: RestorationHarness) -> None:
    async with harness.running():
        harness.authorize()
        await harness.remove()
        harness.delete_policy()
        await harness.is_restored()


async def test_a_cluster_that_is_unpaused(harness: RestorationHarness) -> None:
    await harness.remove()
    harness.cluster.patch({"spec": {"paused": True}})
    async with harness.running():
        await harness.log.wait_for("saved bindings are not restored now")
        harness.is_not_restored()
        harness.caches.clusters.applied(harness.cluster.patch({"spec": {"paused": False}}))
        await harness.is_restored()


async def test_saved_bindings_are_resynced_periodically(
    harness: RestorationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another replica saved it, or only a change of a Machine was observed."""
    monkeypatch.setattr(restoration_module, "RESYNC_SECONDS", 0.01)
    async with harness.running():
        await harness.remove()
        await harness.is_restored()


# What is not


async def test_irrelevant_changes_cause_no_calls(harness: RestorationHarness) -> None:
    harness.authorize()
    cast("Any", harness.caches)._wake_machines(KEY, frozenset({"test:///machine"}))
    harness.restoration._on_change(KEY)  # it has a policy
    harness.restoration._on_change(ClusterKey("default", "another"))
    assert len(harness.restoration._queue) == 0
    harness.delete_policy()
    assert len(harness.restoration._queue) == 1
    harness.restoration._queue.discard(KEY)
    cast("Any", harness.caches)._wake_machines(KEY, frozenset({"test:///machine"}))
    assert len(harness.restoration._queue) == 0


async def test_a_cluster_with_a_policy_is_left_to_its_own_task(harness: RestorationHarness) -> None:
    """Even if the cache does not have it yet."""
    harness.cluster.authorize("insecure", mode="Enforce")
    await harness.remove()
    with pytest.raises(_NotNow, match="has a policy"):
        await harness.restoration._restore(KEY)
    harness.is_not_restored()


async def test_a_cluster_that_is_gone(harness: RestorationHarness) -> None:
    await harness.remove()
    harness.cluster.management.client.delete(CLUSTER)
    with pytest.raises(_NotNow, match="gone"):
        await harness.restoration._restore(KEY)
    harness.is_not_restored()


async def test_clusters_that_are_gone_are_forgotten(harness: RestorationHarness) -> None:
    """A test suite may create and delete thousands of clusters."""
    restoration = harness.restoration
    harness.cluster.management.client.delete(CLUSTER)
    for remembered in (restoration._concerned, restoration._extending):
        remembered.add(KEY)
    restoration._queue.add(KEY)
    working = asyncio.create_task(restoration._work())
    async with asyncio.timeout(10):
        while KEY in restoration._concerned:  # noqa: ASYNC110 - it has no event of its own
            await asyncio.sleep(0)
    working.cancel()
    assert KEY not in restoration._extending


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"paused": True}},
        {"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}},
        {"metadata": {"annotations": {DELETE_FOR_MOVE_ANNOTATION: ""}}},
    ],
)
async def test_a_cluster_that_is_paused_or_moving(harness: RestorationHarness, patch: dict[str, Any]) -> None:
    await harness.remove()
    harness.cluster.patch(patch)
    with pytest.raises(_NotNow, match="paused"):
        await harness.restoration._restore(KEY)
    harness.is_not_restored()


async def test_a_deleted_policy_does_not_lift_the_floor(harness: RestorationHarness) -> None:
    """A tenant who may not say Observe could otherwise delete the policy, and have auto-approval back."""
    await harness.remove()
    await install_refusal(harness)
    enforce = NamespaceFloor(frozenset({KEY.namespace}), False, Floor(Mode.ENFORCE))
    harness.caches.floors = Floors((enforce,))
    with pytest.raises(_NotNow, match="floor"):
        await harness.restoration._restore(KEY)
    assert not {FIRST, RENEWAL} & harness.bindings().keys()
    assert len(harness.api.objects("validatingadmissionpolicies")) == 2, "kubeadm upgrade brings the bindings back"
    harness.caches.floors = Floors((replace(enforce, namespaces=frozenset({"elsewhere"})),))
    await harness.restoration._restore(KEY)
    assert {FIRST, RENEWAL} <= harness.bindings().keys()
    assert harness.api.objects("validatingadmissionpolicies") == []


async def test_a_cluster_of_another_watch_filter(harness: RestorationHarness) -> None:
    await harness.remove()
    harness.caches.watch_filter = WatchFilter("ours")
    with pytest.raises(_NotNow, match="watch filter"):
        await harness.restoration._restore(KEY)
    harness.is_not_restored()


@pytest.mark.parametrize("policy", [True, False], ids=["living policy", "no policy"])
async def test_a_cluster_of_a_namespace_that_is_not_watched(
    harness: RestorationHarness, monkeypatch: pytest.MonkeyPatch, policy: bool
) -> None:
    """It is another controller's, whose policy is not cached here; both save bindings in one namespace."""
    listed = asyncio.Event()
    owners = harness.removed.owners

    async def list_owners() -> frozenset[ClusterKey]:
        listed.set()
        return await owners()

    monkeypatch.setattr(harness.removed, "owners", list_owners)
    monkeypatch.setattr(restoration_module, "RESYNC_SECONDS", 0.01)
    monkeypatch.setattr(harness.caches, "_watch_namespace", "other")
    if policy:
        harness.cluster.authorize("insecure", mode="Enforce")
    await harness.remove()
    requests = len(embedded_api(harness.cluster.management).requests.matching(f"GET {POLICY}"))
    async with harness.running():
        for _ in range(2):  # at the live recheck, whatever came of the first has been queued
            listed.clear()
            await listed.wait()
        harness.caches.set_shards(SomeShards(1, frozenset({0})))
        assert len(harness.restoration._queue) == 0
        assert harness.log.records == []
        harness.is_not_restored()
        assert len(embedded_api(harness.cluster.management).requests.matching(f"GET {POLICY}")) == requests
        monkeypatch.setattr(harness.caches, "_watch_namespace", KEY.namespace)
        await harness.log.wait_for("saved bindings are not restored now") if policy else await harness.is_restored()


async def test_a_cluster_in_another_replicas_shard(harness: RestorationHarness) -> None:
    await harness.remove()
    harness.caches.set_shards(SomeShards(1))
    with pytest.raises(_NotNow, match="another replica's shard"):
        await harness.restoration._restore(KEY)
    harness.is_not_restored()


async def test_a_policy_that_was_deleted_while_the_shard_was_another_replicas(harness: RestorationHarness) -> None:
    """That replica has ended since, without restoring."""
    harness.authorize()
    harness.caches.clusters.applied(harness.cluster.management.client.get(CLUSTER))
    harness.caches.set_shards(SomeShards(1))
    async with harness.running():
        await harness.remove()
        harness.delete_policy()
        assert len(harness.restoration._queue) == 0
        harness.caches.set_shards(SomeShards(1, frozenset({0})))
        await harness.is_restored()


async def test_a_policy_that_was_dropped_is_not_deleted(harness: RestorationHarness) -> None:
    """Its namespace is over a limit. A policy that is deleted meanwhile is missed by no one."""
    manifest = harness.authorize()
    cluster = harness.cluster.management.client.get(CLUSTER)
    harness.caches.clusters.applied(cluster)
    async with harness.running():
        await harness.remove()
        harness.cluster.management.client.delete(POLICY)
        exceed(harness.caches.policies, KEY.namespace)
        assert harness.caches.policies.get(KEY.namespace, KEY.name) is None
        assert len(harness.restoration._queue) == 0
        with pytest.raises(_NotNow, match="more objects than the operator's limit"):
            await harness.restoration._restore(KEY)
        harness.is_not_restored()
        relist(harness.caches.policies)
        await harness.is_restored()
    assert manifest["metadata"]["name"] == KEY.name


async def test_deleted_clusters_of_other_replicas_shards_are_forgotten(harness: RestorationHarness) -> None:
    """Regardless of whether the policy or the Cluster goes first."""
    manifest = harness.cluster.management.client.get(CLUSTER)
    harness.caches.set_shards(SomeShards(1))
    restoration = harness.restoration
    for policy_first in (True, False):
        harness.authorize()
        harness.caches.clusters.applied(manifest)
        restoration._extending.add(KEY)
        assert KEY in restoration._concerned
        for policy in (policy_first, not policy_first):
            assert KEY in restoration._concerned
            if policy:
                harness.delete_policy()
            else:
                harness.caches.clusters.removed(manifest)
        assert KEY not in restoration._concerned | restoration._extending


async def test_a_deleted_cluster_is_logged_once(
    harness: RestorationHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each resync finds it again while its ConfigMap exists."""
    caplog.set_level(logging.INFO, restoration_module.__name__)
    monkeypatch.setattr(restoration_module, "RESYNC_SECONDS", 0.01)
    await harness.remove()
    harness.cluster.management.client.delete(CLUSTER)
    requests = f"GET {CLUSTER}"
    async with harness.running(), asyncio.timeout(20):
        while len(embedded_api(harness.cluster.management).requests.matching(requests)) < 4:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
    details = [
        record.detail for record in harness.log.records if record.getMessage() == "saved bindings are not restored now"
    ]
    assert details == ["the Cluster is gone"]


async def test_a_cluster_that_is_being_deleted(harness: RestorationHarness) -> None:
    await harness.remove()
    harness.cluster.patch({"metadata": {"finalizers": ["cluster.cluster.x-k8s.io"]}})
    harness.cluster.management.client.delete(CLUSTER)
    with pytest.raises(_NotNow, match="being deleted"):
        await harness.restoration._restore(KEY)
    harness.is_not_restored()


@pytest.mark.parametrize("spec", [{}, {"certificates": {"clientDuration": "1m"}}], ids=["readable", "unreadable"])
async def test_a_policy_that_clusterctl_moves(harness: RestorationHarness, spec: dict[str, Any]) -> None:
    """Even if the Cluster is not paused: the policy has the annotation before it is deleted."""
    harness.authorize(**spec)
    await harness.remove()
    mark = {"metadata": {"annotations": {DELETE_FOR_MOVE_ANNOTATION: ""}}}
    harness.seen(harness.cluster.management.client.patch(POLICY, mark))
    harness.delete_policy()
    with pytest.raises(_NotNow, match="move"):
        await harness.restoration._restore(KEY)
    harness.is_not_restored()
    # It comes back, and is deleted for good.
    harness.authorize()
    harness.delete_policy()
    await harness.restoration._restore(KEY)
    assert harness.config_maps() == []


@pytest.mark.parametrize("mark", [{"ca_cert_hash": "cd" * 32}, {"uid": "another"}], ids=["another CA", "another UID"])
async def test_a_cluster_whose_ca_was_rotated_or_that_was_moved(
    harness: RestorationHarness, mark: dict[str, str]
) -> None:
    before = harness.bindings()
    await harness.remove(**mark)
    await harness.restoration._restore(KEY)
    assert harness.bindings() == before
    assert harness.config_maps() == []


async def test_another_cluster_under_the_same_name_gets_nothing(harness: RestorationHarness) -> None:
    """And a person is told: it may as well be the same one, which was moved and whose CA was replaced meanwhile."""
    await harness.remove("cd" * 32, "another")
    await harness.restoration._restore(KEY)
    assert not {FIRST, RENEWAL} & harness.bindings().keys()
    (config_map,) = harness.config_maps()
    (told,) = [record for record in harness.log.records if record.levelno == logging.WARNING]
    assert f"kubectl get configmap {config_map['metadata']['name']}" in told.detail


# Others


async def test_many_clusters_of_one_namespace_delay_no_other(harness: RestorationHarness) -> None:
    """Their API servers may hang until the timeout."""
    queue, theirs = harness.restoration._queue, [ClusterKey("tenant", f"hangs-{number}") for number in range(9)]
    for key in (*theirs, KEY):
        queue.add(key)
    assert [await queue.get() for _ in range(3)] == [theirs[0], KEY, theirs[1]]


# Faults


async def fails_then_works(harness: RestorationHarness, mend: Callable[[], object] = lambda: None) -> None:
    async with harness.running():
        await harness.log.wait_for(FAILED)
        await asyncio.to_thread(mend)
        await harness.is_restored()


async def test_a_workload_cluster_that_fails(harness: RestorationHarness) -> None:
    await harness.remove()
    fault = harness.api.faults.inject(f"POST {BINDINGS}", status=503, times=3)
    await fails_then_works(harness)
    assert fault.hits == 3


async def test_a_workload_cluster_that_cannot_be_reached(harness: RestorationHarness) -> None:
    await harness.remove()
    harness.api.stop_listening()
    await fails_then_works(harness, harness.api.start_listening)


@pytest.mark.parametrize("purpose", ["kubeconfig", "ca"])
async def test_a_secret_that_is_missing(harness: RestorationHarness, purpose: str) -> None:
    await harness.remove()
    harness.cluster.delete_secret(purpose)
    data = {"value": harness.api.kubeconfig().encode()}
    if purpose == "ca":
        data = {"tls.crt": harness.api.ca_certificate_pem, "tls.key": harness.api.ca_key_pem}
    await fails_then_works(harness, lambda: harness.cluster.put_secret(purpose, data))


async def test_a_management_cluster_that_fails(harness: RestorationHarness) -> None:
    await harness.remove()
    embedded_api(harness.cluster.management).faults.inject(f"GET {POLICY}", status=503, times=2)
    await fails_then_works(harness)


@pytest.mark.parametrize("path", [POLICY, CLUSTER])
async def test_a_starting_api_server_restores_no_auto_approval(harness: RestorationHarness, path: str) -> None:
    """A starting API server does not serve the paths of policies and Clusters yet."""
    await harness.remove()
    fault = embedded_api(harness.cluster.management).faults.inject(f"GET {path}", not_served=True, times=2)
    await fails_then_works(harness)
    assert fault.hits == 2
    assert harness.log.records[0].error.startswith("404")


async def test_a_workload_cluster_that_hangs(harness: RestorationHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    await harness.remove()
    usual = restoration_module.CLUSTER_TIMEOUT_SECONDS
    monkeypatch.setattr(restoration_module, "CLUSTER_TIMEOUT_SECONDS", 0.3)
    harness.api.faults.inject(f"POST {BINDINGS}", delay_seconds=3600)
    await fails_then_works(harness, lambda: monkeypatch.setattr(restoration_module, "CLUSTER_TIMEOUT_SECONDS", usual))


async def test_a_failed_list_of_saved_bindings_is_retried(
    harness: RestorationHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoration_module, "RESYNC_SECONDS", 0.01)
    await harness.remove()
    pattern = f"GET {CONFIG_MAPS.collection(CONTROLLER_NAMESPACE)}"
    embedded_api(harness.cluster.management).faults.inject(pattern, status=403, times=2)
    async with harness.running():
        await harness.log.wait_for(RESYNC_FAILED)
        await harness.is_restored()


async def test_a_refused_binding_stays_saved_and_is_reported(harness: RestorationHarness) -> None:
    await harness.remove()
    harness.api.patch(
        "clusterroles",
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]},
    )
    async with harness.running():
        await harness.log.wait_for(FAILED)
    assert FIRST not in harness.bindings()
    assert RENEWAL in harness.bindings()
    assert harness.config_maps()
    assert any("grants more" in getattr(record, "error", "") for record in harness.log.records)


async def test_a_defect_does_not_end_the_worker(harness: RestorationHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    await harness.remove()
    times = iter(range(2))
    restore = RemovedBindings.restore

    async def broken(self: RemovedBindings, *arguments: Any) -> Any:
        if next(times, None) is not None:
            raise RuntimeError("a fault of ours")
        return await restore(self, *arguments)

    monkeypatch.setattr(RemovedBindings, "restore", broken)
    await fails_then_works(harness)
    assert any(record.exc_info for record in harness.log.records)
