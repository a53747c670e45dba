"""Metrics: Prometheus naming conventions, and labels whose number outsiders cannot increase."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import generate_latest

from attestors.contract import CloudCall, CloudCallOutcome
from signer.controller.telemetry.metrics import (
    MAXIMUM_CLOUD_OPERATIONS,
    MAXIMUM_LATENCY_SECONDS,
    OTHER_REASON,
    Metrics,
)
from signer.controller.telemetry.metrics_collector import (
    UNATTESTED,
    ClusterGauges,
    ProcessGauges,
    QueueGauges,
    ServiceGauge,
)
from signer.model.condition import AUTO_APPROVAL_REMOVED, PolicyCondition
from signer.model.reasons import Reason
from signer.store.node_certificates import NodeCertificates


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def test_names_follow_the_convention(metrics: Metrics) -> None:
    for family in metrics.registry.collect():
        assert re.fullmatch(r"node_attestation_[a-z]+(_[a-z]+)*", family.name), family.name
        assert family.documentation.endswith(".")
        if family.type == "counter":
            assert not family.name.endswith("_total"), "the exposition adds it"
        if family.type == "histogram":
            assert family.name.endswith("_seconds")
            assert "seconds" in family.documentation


def test_counters_end_in_total_on_the_wire(metrics: Metrics) -> None:
    metrics.decided("ns/c", "tpm", "Deny", Reason.IDENTITY_CONFLICT)
    text = generate_latest(metrics.registry).decode()
    assert (
        'node_attestation_decisions_total{cluster="ns/c",decision="Deny",provider="tpm",reason="IdentityConflict"} 1.0'
        in text
    )


def test_an_attestors_own_reasons_share_one_label(metrics: Metrics) -> None:
    for number in range(100):
        metrics.decided("ns/c", "tpm", "Deny", f"Reason{number}")
    reasons = {
        sample.labels["reason"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "node_attestation_decisions_total"
    }
    assert reasons == {OTHER_REASON}


@pytest.mark.parametrize("reason", Reason)
def test_known_reasons_have_their_own_label(metrics: Metrics, reason: Reason) -> None:
    metrics.decided("ns/c", "tpm", "Deny", reason)
    assert f'reason="{reason.value}"' in generate_latest(metrics.registry).decode()


def gauges(**changes: Any) -> ClusterGauges:
    """Gauges of a healthy cluster."""
    well = ClusterGauges(
        pending=2,
        oldest_pending_seconds=30.0,
        queue=QueueGauges(1, 2.0, 3.0),
        reachable=True,
        mode="Enforce",
        conditions=(PolicyCondition(AUTO_APPROVAL_REMOVED, None, "Connecting", "not checked yet"),),
        authority_expiry=(5000.0,),
        certificates=NodeCertificates(
            ends=(900.0, 1100.0, 2000.0), renewing_ends=(1100.0, 2000.0), overdue=(990.0, 1900.0)
        ),
        services=(ServiceGauge(UNATTESTED, 4),),
        now=1000.0,
    )
    return replace(well, **changes)


def test_the_gauges_of_a_cluster(metrics: Metrics) -> None:
    metrics.serve_cluster("ns/c", gauges)

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"node_attestation_{name}", {"cluster": "ns/c", **labels})

    assert (value("pending_requests"), value("oldest_pending_request_seconds")) == (2, 30)
    assert (value("queue_depth"), value("queue_oldest_seconds")) == (1, 2)
    assert (value("queue_longest_processing_seconds"), value("workload_cluster_reachable")) == (3, 1)
    assert value("cluster_info", mode="Enforce") == 1
    assert value("cluster_condition", condition="AutoApprovalRemoved", status="Unknown") == 1
    assert value("cluster_condition", condition="AutoApprovalRemoved", status="True") is None
    assert value("certificate_authority_expiry_timestamp_seconds") == 5000
    assert [value("nodes", certificate=one) for one in ("valid", "overdue", "expired")] == [1, 1, 1]
    assert value("unattested_requesters") == 4
    assert value("outage_budget_timestamp_seconds") == 1100, "who has lost it already has none to lose"


def test_missing_values_have_no_series(metrics: Metrics) -> None:
    metrics.serve_cluster("ns/c", lambda: gauges(mode="", authority_expiry=(), certificates=NodeCertificates()))
    text = generate_latest(metrics.registry).decode()
    for name in ("cluster_info", "certificate_authority_expiry_timestamp_seconds", "outage_budget_timestamp_seconds"):
        assert f"node_attestation_{name}{{" not in text


def test_a_removed_cluster_has_no_series(metrics: Metrics) -> None:
    def gone() -> ClusterGauges:
        return gauges()

    for cluster, gauges_of in (("ns/gone", gone), ("ns/stays", gauges)):
        metrics.serve_cluster(cluster, gauges_of)
        metrics.decided(cluster, "tpm", "Deny", Reason.IDENTITY_CONFLICT)
        metrics.published(cluster, "tpm", "client", created=1.0, now=2.0)
        metrics.builtin_approvals.labels(cluster).inc()
    metrics.forget_cluster("ns/gone", gone)
    metrics.forget_cluster("ns/never-there", gone)
    text = generate_latest(metrics.registry).decode()
    assert "ns/gone" not in text
    assert text.count('cluster="ns/stays"') >= 12


def test_the_successor_of_a_cluster_keeps_its_series(metrics: Metrics) -> None:
    """The Cluster was re-created: the old task ends after the new one has begun."""

    def old() -> ClusterGauges:
        return gauges()

    metrics.serve_cluster("ns/c", old)
    metrics.serve_cluster("ns/c", gauges)
    metrics.forget_cluster("ns/c", old)
    assert "ns/c" in generate_latest(metrics.registry).decode()


@pytest.mark.parametrize(("created", "seconds"), [(90.0, 10.0), (500.0, 0.0), (-1e12, MAXIMUM_LATENCY_SECONDS)])
def test_an_impossible_creation_time_is_bounded(metrics: Metrics, created: float, seconds: float) -> None:
    metrics.published("ns/c", "tpm", "client", created=created, now=100.0)
    labels = {"provider": "tpm", "purpose": "client"}
    name = "node_attestation_certificate_latency_seconds_sum"
    assert metrics.registry.get_sample_value(name, labels) == seconds


def test_names_of_cloud_calls_are_bounded(metrics: Metrics) -> None:
    for number in range(MAXIMUM_CLOUD_OPERATIONS + 50):
        metrics.cloud_called(CloudCall("cloud", f"ask-{number}", CloudCallOutcome.THROTTLED, 0.1))
    metrics.cloud_called(CloudCall("cloud", "ask-0", CloudCallOutcome.THROTTLED, 0.1))
    found = {
        (sample.labels["operation"], sample.value)
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "node_attestation_cloud_calls_total"
    }
    assert len(found) == MAXIMUM_CLOUD_OPERATIONS + 1
    assert {("other", 50.0), ("ask-0", 2.0)} <= found


def test_blocking_of_an_attestor_is_counted(metrics: Metrics) -> None:
    metrics.attestor_blocking("tpm", 0.5)
    metrics.attestor_blocking("tpm", 2.0)
    name = "node_attestation_attestor_blocking_seconds_total"
    assert metrics.registry.get_sample_value(name, {"provider": "tpm"}) == 2.5


def test_every_series_is_described(metrics: Metrics) -> None:
    """Documents and alerts are checked against these descriptions."""
    metrics.serve_cluster("ns/c", gauges)
    metrics.serve_process(lambda: ProcessGauges(watched={"machines": True}, controller_key_readable=(True,)))
    described = {one.name: one for one in metrics.described()}
    for family in metrics.registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert described[name].documentation == family.documentation
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(described[name].labels)
    assert len(described) == len(list(metrics.registry.collect()))


def test_two_controllers_in_one_process() -> None:
    first, second = Metrics(), Metrics()
    first.decided("ns/c", "tpm", "Deny", Reason.IDENTITY_CONFLICT)
    assert "ns/c" not in generate_latest(second.registry).decode()
