"""``--watch-filter``: two controllers with different filters in one controller namespace, which share reservations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from signer.controller.auto_approval import reconciler as reconciler
from signer.controller.auto_approval import restoration
from signer.controller.run import ControllerOptions
from signer.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CONFIG_MAPS,
    IDENTITY_RESERVATIONS,
    MACHINES_V1BETA2,
    NODE_ATTESTATION_POLICIES,
)
from signer.model.cluster import WATCH_FILTER_LABEL, WatchFilter
from signer.store import garbage_collection as garbage_collector
from signer.testing.fixtures import embedded_api, open_controllers
from signer.testing.world import CONTROLLER_NAMESPACE, RunningController, WorldCluster
from tests.integration.endorsement_key_sources import assert_one_owner_each
from tests.integration.fixtures import CONTROLLER_USER, MASTERS, Harness, keyed_mac, node_of, pending, provider_id
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow

KUBEADM_BINDINGS = {"kubeadm:node-autoapprove-bootstrap", "kubeadm:node-autoapprove-certificate-rotation"}


def start(harness: Harness, value: str, options: ControllerOptions | None = None) -> RunningController:
    """A controller that serves Clusters with that label; the management API knows it by the same name."""
    return harness.start(
        options=options,
        connection=harness.api.connection(value or "unfiltered", MASTERS),
        attestors=keyed_mac(),
        watch_filter=WatchFilter(value),
    )


def label(cluster: WorldCluster, value: str | None) -> None:
    cluster.patch({"metadata": {"labels": {WATCH_FILTER_LABEL: value}}})


def labelled(harness: Harness, name: str, value: str | None, namespace: str = "default", **policy: Any) -> WorldCluster:
    """A Cluster with that label; its policy comes later than the label."""
    cluster = harness.cluster(name, (), namespace=namespace)
    label(cluster, value)
    cluster.authorize("keyed-mac", **policy)
    return cluster


def touched(harness: Harness, user: str) -> set[str]:
    """Namespaced objects that this user wrote, except Events and the controllers' own."""
    own = f"/namespaces/{CONTROLLER_NAMESPACE}/"
    entries = [entry for entry in harness.api.requests.writes() if entry.user == user and own not in entry.path]
    return {entry.path for entry in entries if not entry.path.endswith("/events")}


def asked(cluster: WorldCluster) -> int:
    """How often a controller has asked the workload API server."""
    return len([entry for entry in embedded_api(cluster).requests.matching() if entry.user == CONTROLLER_USER])


def test_each_controller_serves_its_own_clusters_only(harness: Harness) -> None:
    blue, green, plain = (
        labelled(harness, name, value) for name, value in (("b", "blue"), ("g", "green"), ("p", None))
    )
    start(harness, "blue")
    start(harness, "green")
    for cluster in (green, plain):
        cluster.add_machine(f"m-{cluster.name}", provider_id=provider_id(f"m-{cluster.name}"))
    plain.submit_with_token(node_of(plain, "m-p").client_request("waits"))
    harness.join(blue, "m-b")
    harness.join(green)
    harness.wait_for_condition(blue, "Ready", "True")
    harness.wait_for_condition(green, "Ready", "True")
    assert (pending(plain, "waits").reason, asked(plain)) == ("", 0)
    policy = harness.management.client.get(NODE_ATTESTATION_POLICIES.object(plain.name, plain.namespace))
    assert (policy.get("status"), policy["metadata"].get("ownerReferences")) == (None, None)
    for user, others in (("blue", ("g", "p")), ("green", ("b", "p"))):
        paths = touched(harness, user)
        assert paths
        for other in others:
            assert [path for path in paths if f"/{other}" in path or f"/{other}." in path] == []
    assert_one_owner_each(harness, (blue, green))


def serves(controller: RunningController, cluster: WorldCluster) -> bool:
    """Whether it has a metric for that Cluster, as it does while it serves it."""
    name, labels = "node_attestation_workload_cluster_reachable", {"cluster": f"{cluster.namespace}/{cluster.name}"}
    return controller.options.metrics.registry.get_sample_value(name, labels) is not None


def test_a_label_that_is_added_and_removed(harness: Harness) -> None:
    cluster = labelled(harness, "c", None)
    blue = start(harness, "blue")
    harness.join(labelled(harness, "other", "blue"))
    assert asked(cluster) == 0
    label(cluster, "blue")
    harness.join(cluster)
    label(cluster, "green")
    wait_until(lambda: not serves(blue, cluster), "it is served no more")
    cluster.add_machine("later", provider_id=provider_id("later"))
    cluster.submit_with_token(node_of(cluster, "later").client_request("later"))
    harness.join(labelled(harness, "another", "blue"))
    pending(cluster, "later")
    start(harness, "green")
    assert cluster.wait_until_decided("later").certificate
    assert_one_owner_each(harness, (cluster,))


def test_without_a_filter_every_cluster_is_served(harness: Harness) -> None:
    start(harness, "")
    harness.join(labelled(harness, "b", "blue"))
    harness.join(labelled(harness, "p", None))


@pytest.mark.parametrize("reservations_stay", [True, False])
def test_one_identity_is_not_two_machines_under_two_filters(harness: Harness, reservations_stay: bool) -> None:
    """Nor where the reservations are lost: the other filter's records bring them back."""
    blue, green = labelled(harness, "b", "blue"), labelled(harness, "g", "green", namespace="other")
    for cluster in (blue, green):
        cluster.add_machine("m", provider_id=provider_id("m"))
    with open_controllers(harness.management) as open_one:
        open_one(
            connection=harness.api.connection("blue", MASTERS), attestors=keyed_mac(), watch_filter=WatchFilter("blue")
        )
        blue.submit_with_token(node_of(blue, "m").client_request("first"))
        assert blue.wait_until_decided("first").certificate
    if not reservations_stay:
        for found in harness.reservations():
            path = IDENTITY_RESERVATIONS.object(found["metadata"]["name"], CONTROLLER_NAMESPACE)
            harness.management.client.delete(path)
    start(harness, "green")
    green.submit_with_token(node_of(green, "m").client_request("second"))
    verdict = green.wait_until_decided("second")
    assert (verdict.condition, verdict.reason) == ("Denied", "IdentityConflict"), verdict
    assert_one_owner_each(harness, (blue, green))


def test_garbage_collection_keeps_the_records_of_other_clusters(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage_collector, "ROUND_SECONDS", 0.05)
    blue, green = labelled(harness, "b", "blue"), labelled(harness, "g", "green")
    with open_controllers(harness.management) as open_one:
        open_one(connection=harness.api.connection("both", MASTERS), attestors=keyed_mac())
        harness.join(blue, "m-b")
        harness.join(green, "m-g")
    for cluster, machine in ((blue, "m-b"), (green, "m-g")):
        harness.management.client.delete(MACHINES_V1BETA2.object(machine, cluster.namespace))
    start(harness, "green", ControllerOptions(now=lambda: datetime.now(UTC) + timedelta(days=30)))
    wait_until(lambda: len(harness.reservations()) == 2, "those of its own Cluster are released")
    assert (len(harness.records(blue)), harness.records(green)) == (1, [])
    assert {found["spec"]["machineRef"]["clusterName"] for found in harness.reservations()} == {blue.name}


def test_auto_approval_stays_removed_when_the_label_is_removed(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removing a label hands the Cluster over; that must not restore kubeadm's automatic approval."""
    monkeypatch.setattr(reconciler, "MINIMUM_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(restoration, "RESYNC_SECONDS", 0.05)
    cluster = labelled(harness, "c", "blue", mode="Enforce")
    blue = start(harness, "blue")
    harness.wait_for_condition(cluster, "AutoApprovalRemoved", "True")
    label(cluster, None)
    wait_until(lambda: not serves(blue, cluster), "it is served no more")
    harness.management.client.delete(NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace))
    before = len(looks(harness))
    wait_until(lambda: len(looks(harness)) > before + 2, "saved bindings are looked at")
    assert bindings(cluster) == set()
    label(cluster, "blue")
    wait_until(lambda: bindings(cluster) == KUBEADM_BINDINGS, "restored by the one whose Cluster it is")


def looks(harness: Harness) -> list[object]:
    """Lists of what Enforce removed."""
    path = CONFIG_MAPS.collection(CONTROLLER_NAMESPACE)
    return [entry for entry in harness.api.requests.matching(f"GET {path}") if entry.user == "blue"]


def bindings(cluster: WorldCluster) -> set[str]:
    items = cluster.client().items(CLUSTER_ROLE_BINDINGS.collection())
    return {item["metadata"]["name"] for item in items} & KUBEADM_BINDINGS
