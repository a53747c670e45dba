"""A node name whose former instance is proven gone: clouds give names of dead instances to new ones at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from signer.controller.run import ControllerOptions
from signer.kube.resources import MACHINES_V1BETA2
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, node_of, pending, provider_id
from tests.support.proving_attestor import CLOUD, registry

pytestmark = pytest.mark.slow

NAME = "ip-10-10-164-36.eu-west-1.compute.internal"


@pytest.fixture(autouse=True)
def cloud() -> Iterator[None]:
    CLOUD.states.clear()
    CLOUD.asked.clear()
    yield
    CLOUD.states.clear()


def replaced(harness: Harness, reuse: str = "WhenFormerInstanceIsGone") -> WorldCluster:
    """A cluster whose node NAME was Machine ``old``, which is gone; Machine ``new`` has its name now."""
    cluster = harness.cluster(policy={"nodeNameReuse": reuse})
    cluster.add_machine("old", provider_id=provider_id("old"), addresses=[("Hostname", NAME)])
    harness.run(replace(ControllerOptions(), registry=registry()))
    cluster.submit_with_token(node_of(cluster, "old", NAME).client_request("old"))
    assert cluster.wait_until_decided("old").reason == "Attested"
    harness.management.client.delete(MACHINES_V1BETA2.object("old", cluster.namespace))
    cluster.add_machine("new", provider_id=provider_id("new"), addresses=[("Hostname", NAME)])
    return cluster


def test_its_name_is_free_at_once(harness: Harness) -> None:
    CLOUD.states[provider_id("old")] = "terminated"
    cluster = replaced(harness)
    cluster.submit_with_token(node_of(cluster, "new", NAME).client_request("new"))
    assert cluster.wait_until_decided("new").reason == "Attested"
    assert set(CLOUD.asked) == {provider_id("old")}
    (record,) = harness.records(cluster)
    assert record["spec"]["machineRef"]["name"] == "new"
    CLOUD.asked.clear()
    cluster.submit_as_node(node_of(cluster, "new", NAME).client_request("renewal"), NAME)
    assert cluster.wait_until_decided("renewal").reason == "Attested"
    assert CLOUD.asked == [], "once the record is the new instance's, there is nothing to prove"


@pytest.mark.parametrize(
    ("state", "says"),
    [("shutting-down", "it is shutting-down"), ("running", "it is running"), ("", "the cloud does not know it")],
)
def test_its_name_waits(harness: Harness, state: str, says: str) -> None:
    if state:
        CLOUD.states[provider_id("old")] = state
    cluster = replaced(harness)
    cluster.submit_with_token(node_of(cluster, "new", NAME).client_request("new"))
    message = harness.wait_for_event("NodeNameBlocked", "new", part="unless its instance is gone")
    assert says in message
    pending(cluster, "new")
    (record,) = harness.records(cluster)
    assert record["spec"]["machineRef"]["name"] == "old"


def test_a_failing_attestor_proves_nothing(harness: Harness) -> None:
    CLOUD.states[provider_id("old")] = "broken"
    cluster = replaced(harness)
    cluster.submit_with_token(node_of(cluster, "new", NAME).client_request("new"))
    message = harness.wait_for_event("InternalError", "new")
    assert "attestor keyed-mac failed with OSError" in message
    pending(cluster, "new")


def test_no_cloud_is_asked_under_another_policy(harness: Harness) -> None:
    CLOUD.states[provider_id("old")] = "terminated"
    cluster = replaced(harness, "AfterExpiry")
    cluster.submit_with_token(node_of(cluster, "new", NAME).client_request("new"))
    harness.wait_for_event("NodeNameBlocked", "new")
    pending(cluster, "new")
    assert CLOUD.asked == []


def test_no_cloud_is_asked_for_a_request_that_other_checks_refuse(harness: Harness) -> None:
    """Also while the former Machine still exists: its node may run."""
    CLOUD.states[provider_id("old")] = "terminated"
    cluster = replaced(harness)
    cluster.submit_with_token(node_of(cluster, "new", "elsewhere").client_request("elsewhere"))
    assert cluster.wait_until_decided("elsewhere").condition == "Denied"
    cluster.add_machine("old", provider_id=provider_id("old"), addresses=[("Hostname", NAME)])
    harness.join(cluster)
    CLOUD.asked.clear()
    cluster.submit_with_token(node_of(cluster, "new", NAME).client_request("new"))
    assert cluster.wait_until_decided("new").condition == "Denied"
    assert CLOUD.asked == []
