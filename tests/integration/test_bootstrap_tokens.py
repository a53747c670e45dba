"""Bootstrap tokens are traced through a real list and watch of KubeadmConfigs, with and without the grant."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from signer.kube.backoff import Backoff
from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    KUBEADM_CONFIGS_V1BETA1,
    KUBEADM_CONFIGS_V1BETA2,
    MACHINES_V1BETA2,
)
from signer.kube.watch import list_and_watch
from signer.model.bootstrap_token import TokenOwner, TracedTo, TracingOff, Untraceable
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred, Refused
from signer.model.floors import NO_FLOOR, NO_FLOORS
from signer.model.policy import parse_policy
from signer.model.reasons import Reason
from signer.store import bootstrap_tokens, token_tracing
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.caches import Caches
from signer.store.cluster_api import discover_cluster_api
from signer.store.token_tracing import TracingOn
from signer.testing.clients import LoopThread
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, WorldCluster
from tests.integration.fixtures import CONTROLLER_USER, MASTERS, Harness, assert_readable, node_of, pending, provider_id
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow

RBAC = "/apis/rbac.authorization.k8s.io/v1"
KEY = ClusterKey("default", "workload")


class Tracing:
    """The controller's tracing, over a connection of its own, on an event loop in a thread."""

    def __init__(self, thread: LoopThread, connection: ClusterConnection, administrator: ClusterConnection) -> None:
        self._thread = thread
        self._connection = connection
        self._administrator = administrator
        self.caches: Caches
        self.tokens: BootstrapTokens

    async def run(self, started: asyncio.Event) -> None:
        async with Client(self._connection) as client, Client(self._administrator) as administrator:
            self.caches = Caches(
                await discover_cluster_api(administrator), own_namespace=CONTROLLER_NAMESPACE, floors=NO_FLOORS
            )
            self.tokens = BootstrapTokens(client, self.caches)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.caches.run(administrator))
                tasks.create_task(self.tokens.run())
                await self.caches.filled()
                await self.tokens.answered.wait()
                started.set()

    def trace(self, token: str) -> object:
        return self.tokens.trace(KEY, token.partition(".")[0])

    def knows(self, name: str) -> bool:
        return self.caches.machines.get("default", name) is not None

    def require(self, token: str, machine: str, **spec: Any) -> None:
        view = self.caches.machines.get("default", machine)
        assert view is not None
        manifest = {"metadata": {"namespace": "default", "name": "workload"}, "spec": spec}
        username = f"system:bootstrap:{token.partition('.')[0]}"
        self._thread.run(self.tokens.require_token_of_machine(username, view, parse_policy(manifest, NO_FLOOR)))


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    soon = Backoff(base_seconds=0.02, maximum_seconds=0.1, jitter=0.5)
    monkeypatch.setattr(bootstrap_tokens, "REFUSED_BACKOFF", soon)
    monkeypatch.setattr(bootstrap_tokens, "DISCOVERY_BACKOFF", soon)
    monkeypatch.setattr(bootstrap_tokens, "list_and_watch", partial(list_and_watch, backoff=soon))


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    return harness.cluster()


@contextlib.contextmanager
def tracing_as(harness: Harness, user: str, *groups: str) -> Iterator[Tracing]:
    """Tracing by that user; Machines are read by an administrator."""
    with LoopThread("tracing") as thread:
        made, started = Tracing(thread, harness.api.connection(user, groups), harness.api.connection()), asyncio.Event()
        running = thread.start(made.run(started))
        thread.run(started.wait())
        yield made
        running.cancel()


@pytest.fixture
def tracing(harness: Harness, cluster: WorldCluster) -> Iterator[Tracing]:
    with tracing_as(harness, CONTROLLER_USER, *MASTERS) as made:
        yield made


def test_a_machines_token_and_a_stolen_one(tracing: Tracing, cluster: WorldCluster) -> None:
    own, stolen = cluster.api.bootstrap_token(), cluster.api.bootstrap_token()
    for name, token in (("m1", own), ("m2", stolen)):
        cluster.add_kubeadm_config(name, token, cluster.add_machine(name, provider_id=f"test:///{name}"))
    wait_until(lambda: isinstance(tracing.trace(stolen), TracedTo), "the trace")
    wait_until(lambda: tracing.knows("m2"), "the Machines")
    tracing.require(own, "m1", bootstrapTokens={"untraceable": "Refuse"})
    with pytest.raises(Refused) as caught:
        tracing.require(stolen, "m1")
    assert caught.value.deny.reason == Reason.BOOTSTRAP_TOKEN_MISMATCH
    assert_readable(caught.value.deny.message, own, stolen, stolen.partition(".")[0])


def test_a_machine_that_is_re_created_keeps_nothing_of_the_old_one(tracing: Tracing, cluster: WorldCluster) -> None:
    """With its Machine, the garbage collector removes the KubeadmConfig, and with that the token's trace."""
    token = cluster.api.bootstrap_token()
    cluster.add_kubeadm_config("m1", token, cluster.add_machine("m1", provider_id="test:///m1"))
    wait_until(lambda: isinstance(tracing.trace(token), TracedTo), "the trace")
    cluster.management.client.delete(MACHINES_V1BETA2.object("m1", "default"))
    wait_until(lambda: tracing.trace(token) == Untraceable(), "the trace")
    cluster.add_machine("m1", provider_id="test:///m1")
    wait_until(lambda: tracing.knows("m1"), "the Machine")
    with pytest.raises(Deferred) as caught:
        tracing.require(token, "m1", bootstrapTokens={"untraceable": "Refuse"})
    assert caught.value.defer.reason == Reason.BOOTSTRAP_TOKEN_UNTRACEABLE


def test_a_pools_token(tracing: Tracing, cluster: WorldCluster) -> None:
    token = cluster.api.bootstrap_token()
    pool = cluster.add_machine_pool("p1", "test:///p1-0")
    cluster.add_kubeadm_config("p1", token, pool)
    cluster.add_machine("m1", provider_id="test:///m1")
    owners = frozenset({TokenOwner("default", "MachinePool", "p1", pool["metadata"]["uid"])})
    wait_until(lambda: tracing.trace(token) == TracedTo(owners), "the trace")
    wait_until(lambda: tracing.knows("m1"), "the Machine")
    with pytest.raises(Refused) as caught:
        tracing.require(token, "m1")
    assert "MachinePool default/p1" in caught.value.deny.message


def test_move_rewrites_the_owners(tracing: Tracing, cluster: WorldCluster) -> None:
    """``clusterctl move`` creates objects again: other UIDs, the same names."""
    token = cluster.api.bootstrap_token()
    machine = cluster.add_machine("m1", provider_id="test:///m1")
    cluster.add_kubeadm_config("m1", token, machine)
    wait_until(lambda: isinstance(tracing.trace(token), TracedTo), "the trace")
    client = cluster.management.client
    client.delete(KUBEADM_CONFIGS_V1BETA2.object("m1", "default"))
    client.delete(MACHINES_V1BETA2.object("m1", "default"))
    moved = cluster.add_machine("m1", provider_id="test:///m1")
    assert moved["metadata"]["uid"] != machine["metadata"]["uid"]
    cluster.add_kubeadm_config("m1", token, moved)
    wait_until(lambda: isinstance(tracing.trace(token), TracedTo), "the trace")
    wait_until(lambda: tracing.knows("m1"), "the Machine")
    tracing.require(token, "m1", bootstrapTokens={"untraceable": "Refuse"})


def test_without_the_grant_tracing_is_off_until_it_is_added(harness: Harness, cluster: WorldCluster) -> None:
    token = cluster.api.bootstrap_token()
    cluster.add_kubeadm_config("m1", token, cluster.add_machine("m1", provider_id="test:///m1"))
    with tracing_as(harness, "no-grants") as tracing:
        off = tracing.tokens.tracing()
        assert isinstance(off, TracingOff)
        assert_readable(off.cause, token)
        tracing.require(token, "m1")
        with pytest.raises(Deferred) as caught:
            tracing.require(token, "m1", bootstrapTokens={"untraceable": "Refuse"})
        assert off.cause in caught.value.defer.message
        grant(harness.management, "no-grants")
        wait_until(lambda: isinstance(tracing.trace(token), TracedTo), "the trace")
        tracing.require(token, "m1", bootstrapTokens={"untraceable": "Refuse"})


def grant(management: ManagementCluster, user: str) -> None:
    """The grants for tracing in deploy/rbac, and nothing else."""
    rule = {
        "apiGroups": ["bootstrap.cluster.x-k8s.io"],
        "resources": ["kubeadmconfigs"],
        "verbs": ["list", "watch"],
    }
    management.client.create(
        f"{RBAC}/clusterroles",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "tokens"},
            "rules": [rule],
        },
    )
    management.client.create(
        f"{RBAC}/clusterrolebindings",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "tokens"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tokens"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        },
    )


def test_a_denial_needs_no_more_than_that_grant(harness: Harness, cluster: WorldCluster) -> None:
    stolen = cluster.api.bootstrap_token()
    cluster.add_kubeadm_config("m2", stolen, cluster.add_machine("m2"))
    cluster.add_machine("m1")
    grant(harness.management, "tracer")
    with tracing_as(harness, "tracer") as tracing:
        wait_until(lambda: isinstance(tracing.trace(stolen), TracedTo), "the trace")
        with pytest.raises(Refused):
            tracing.require(stolen, "m1")


def test_kubeadm_configs_that_are_installed_later(
    harness: Harness, cluster: WorldCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_tracing, "REFUSED_SECONDS", 0.5)
    client = harness.management.client
    path = CUSTOM_RESOURCE_DEFINITIONS.object("kubeadmconfigs.bootstrap.cluster.x-k8s.io")
    client.delete(path)
    with tracing_as(harness, CONTROLLER_USER, *MASTERS) as tracing:
        off = tracing.tokens.tracing()
        assert off == TracingOff("the management cluster serves no KubeadmConfigs")
        harness.management.install_crds()
        wait_until(lambda: isinstance(tracing.tokens.tracing(), TracingOn), "the trace")
        client.delete(path)
        wait_until(lambda: tracing.tokens.tracing() == off, "the trace")


def test_cluster_api_that_serves_v1beta1_only(harness: Harness, cluster: WorldCluster) -> None:
    token = cluster.api.bootstrap_token()
    cluster.add_kubeadm_config("m1", token, cluster.add_machine("m1"))
    path = CUSTOM_RESOURCE_DEFINITIONS.object(f"{KUBEADM_CONFIGS_V1BETA2.plural}.{KUBEADM_CONFIGS_V1BETA2.group}")
    versions = harness.management.client.get(path)["spec"]["versions"]
    served = [{**one, "served": one["name"] == KUBEADM_CONFIGS_V1BETA1.version} for one in versions]
    harness.management.client.patch(path, {"spec": {"versions": served}})
    with tracing_as(harness, CONTROLLER_USER, *MASTERS) as tracing:
        wait_until(lambda: isinstance(tracing.trace(token), TracedTo), "the trace")
    listed = harness.api.requests.matching(f"GET {KUBEADM_CONFIGS_V1BETA1.collection()}")
    assert [entry.status for entry in listed if entry.user == CONTROLLER_USER][:1] == [200]


# Joins


def joins(cluster: WorldCluster, machine: str, token: str, csr: str = "") -> str:
    """Let the honest node of ``machine`` ask, with that token; returns the request's name."""
    name = csr or f"join-{machine}"
    cluster.submit_with_token(node_of(cluster, machine).client_request(name), token)
    return name


def test_a_node_with_its_own_machines_token_joins(harness: Harness, cluster: WorldCluster) -> None:
    token = cluster.api.bootstrap_token()
    cluster.add_kubeadm_config("m1", token, cluster.add_machine("m1", provider_id=provider_id("m1")))
    harness.run()
    verdict = cluster.wait_until_decided(joins(cluster, "m1", token))
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict


def test_a_node_with_a_stolen_token_is_denied(harness: Harness, cluster: WorldCluster) -> None:
    """Good evidence of one Machine, and another Machine's token: the evidence does not help."""
    stolen = cluster.api.bootstrap_token()
    cluster.add_kubeadm_config("victim", stolen, cluster.add_machine("victim", provider_id=provider_id("victim")))
    cluster.add_machine("thief", provider_id=provider_id("thief"))
    harness.run()
    verdict = cluster.wait_until_decided(joins(cluster, "thief", stolen))
    assert (verdict.condition, verdict.reason) == ("Denied", "BootstrapTokenMismatch"), verdict
    assert "Machine default/victim" in verdict.message
    assert_readable(verdict.message, stolen, stolen.partition(".")[0])
    assert harness.reservations() == []
    assert harness.records(cluster) == []


def test_an_instance_of_a_pool_joins_with_the_pools_token_and_no_other(harness: Harness) -> None:
    cluster = harness.cluster(policy={"nodeNames": {"sources": ["ProviderID"]}})
    pools, others = cluster.api.bootstrap_token(), cluster.api.bootstrap_token()
    pool = cluster.add_machine_pool("pool", provider_id("i1"), provider_id("i2"))
    cluster.add_kubeadm_config("pool", pools, pool)
    cluster.add_kubeadm_config("m1", others, cluster.add_machine("m1", provider_id=provider_id("m1")))
    harness.run()
    good, bad = joins(cluster, "i1", pools), joins(cluster, "i2", others)
    assert cluster.wait_until_decided(good).reason == "Attested"
    assert cluster.wait_until_decided(bad).reason == "BootstrapTokenMismatch"


def test_a_refused_untraceable_token_waits_for_its_kubeadm_config(harness: Harness) -> None:
    """It is the change of the KubeadmConfig that wakes it: by time alone it would wait for minutes."""
    cluster = harness.cluster(policy={"bootstrapTokens": {"untraceable": "Refuse"}})
    token = cluster.api.bootstrap_token()
    machine = cluster.add_machine("m1", provider_id=provider_id("m1"))
    harness.run()
    name = joins(cluster, "m1", token)
    harness.wait_for_event("BootstrapTokenUntraceable", "m1")
    pending(cluster, name)
    cluster.add_kubeadm_config("m1", token, machine)
    assert cluster.wait_until_decided(name).reason == "Attested"


@pytest.mark.parametrize("owned", [True, False], ids=["of another Machine", "without an owner"])
def test_a_token_that_others_hold_too_waits_until_they_do_not(harness: Harness, owned: bool) -> None:
    """A thief wrote the other KubeadmConfig. Its deletion wakes the request, which would wait for minutes otherwise."""
    cluster = harness.cluster(policy={"bootstrapTokens": {"untraceable": "Refuse"}})
    token = cluster.api.bootstrap_token()
    cluster.add_kubeadm_config("m1", token, cluster.add_machine("m1", provider_id=provider_id("m1")))
    thief = cluster.add_machine("thief", provider_id=provider_id("thief"))
    cluster.add_kubeadm_config("other", token, thief)
    other = KUBEADM_CONFIGS_V1BETA2.object("other", cluster.namespace)
    if not owned:
        cluster.management.client.patch(other, {"metadata": {"ownerReferences": None}})
    harness.run()
    name = joins(cluster, "m1", token)
    harness.wait_for_event("BootstrapTokenUntraceable", "m1")
    pending(cluster, name)
    cluster.management.client.delete(other)
    assert cluster.wait_until_decided(name).reason == "Attested"


def test_without_the_grant_nodes_join_and_the_policy_reports_it(harness: Harness, cluster: WorldCluster) -> None:
    stolen = cluster.api.bootstrap_token()
    cluster.add_kubeadm_config("other", stolen, cluster.add_machine("other", provider_id=provider_id("other")))
    cluster.add_machine("m1", provider_id=provider_id("m1"))
    harness.api.faults.inject(f"GET {KUBEADM_CONFIGS_V1BETA2.collection()}", status=403, times=None)
    harness.run()
    assert cluster.wait_until_decided(joins(cluster, "m1", stolen)).reason == "Attested"
    condition = harness.wait_for_condition(cluster, "BootstrapTokensTraceable", "False")
    assert "kubeadmconfigs" in condition["message"]
    harness.wait_for_condition(cluster, "Ready", "True")
