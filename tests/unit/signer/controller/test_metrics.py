"""Metrics: named as Prometheus wants them, with labels that nobody outside can multiply."""

from __future__ import annotations

import re

import pytest
from prometheus_client import generate_latest

from signer.controller.metrics import OTHER_REASON, Metrics
from signer.model.reasons import Reason


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
def test_known_reasons_are_told_apart(metrics: Metrics, reason: Reason) -> None:
    metrics.decided("ns/c", "tpm", "Deny", reason)
    assert f'reason="{reason.value}"' in generate_latest(metrics.registry).decode()


def test_gauges_of_a_cluster_that_is_gone(metrics: Metrics) -> None:
    for cluster in ("ns/gone", "ns/stays"):
        metrics.pending.labels(cluster).set(1)
        metrics.reachable.labels(cluster).set(1)
    metrics.forget_cluster("ns/gone")
    metrics.forget_cluster("ns/never-there")
    text = generate_latest(metrics.registry).decode()
    assert "ns/gone" not in text
    assert "ns/stays" in text


def test_two_controllers_in_one_process() -> None:
    first, second = Metrics(), Metrics()
    first.decided("ns/c", "tpm", "Deny", Reason.IDENTITY_CONFLICT)
    assert "ns/c" not in generate_latest(second.registry).decode()
