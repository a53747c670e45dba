"""A controller, or an API server, whose clock is wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from signer.controller.run import ControllerOptions, by_its_answers
from signer.kube.client import Client
from signer.kube.clocks import ServerTimes
from signer.kube.resources import NODE_ATTESTATION_POLICIES
from signer.kube.server_clock import NoServerTime, ServerTime, ServerTimeAnswer
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, certificate_of, node_of, nodes_clocks_say, pending, provider_id

pytestmark = pytest.mark.slow

FAR = timedelta(days=3000)


@dataclass
class Clock:
    """The controller's. The API servers' are the system's, by their answers."""

    ahead: timedelta = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    @property
    def options(self) -> ControllerOptions:
        return ControllerOptions(now=self.now, server_clock=lambda client: by_its_answers(client))


def posted(cluster: WorldCluster, name: str) -> None:
    cluster.add_machine(name, provider_id=provider_id(name))
    cluster.submit_with_token(node_of(cluster, name).client_request(name))


@pytest.mark.parametrize("ahead", [FAR, timedelta(minutes=-3)])
def test_by_a_wrong_clock_nothing_is_decided(
    harness: Harness, ahead: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also evidence that fits the wrong clock: the certificate would be valid in years."""
    clock = Clock()
    nodes_clocks_say(clock.now, monkeypatch)
    cluster = harness.cluster()
    harness.run(clock.options)
    clock.ahead = ahead
    posted(cluster, "m")
    message = harness.wait_for_event("ClocksDiffer", "m")
    assert "the controller's clock says" in message
    assert "the management API server's" in message
    condition = harness.wait_for_condition(cluster, "ClocksAgree", "False")
    assert condition["reason"] == "ClocksDiffer"
    pending(cluster, "m")
    assert harness.records(cluster) == []
    clock.ahead = timedelta()
    certificate = certificate_of(harness.join(cluster))
    assert certificate.not_valid_after_utc < datetime.now(UTC) + timedelta(days=8)
    path = NODE_ATTESTATION_POLICIES.collection(cluster.namespace)
    harness.management.client.wait_for(path, cluster.name, lambda policy: "ClocksAgree" not in types_of(policy))


def types_of(policy: dict[str, dict[str, list[dict[str, str]]]]) -> set[str]:
    return {condition["type"] for condition in policy["status"]["conditions"]}


@dataclass
class Wrong:
    """Implements ServerTimes: by the answers of an API server, but for the error."""

    server: ServerTimes
    error: timedelta | None

    def now(self) -> ServerTimeAnswer:
        answer = self.server.now()
        if isinstance(answer, NoServerTime) or self.error is None:
            return NoServerTime()
        return ServerTime(answer.moment + self.error, answer.age_seconds)


@dataclass
class WrongAt:
    """The clock of one API server is wrong."""

    address: str
    error: timedelta | None = field(default=None)

    def __call__(self, client: Client) -> ServerTimes:
        return Wrong(client.clock, self.error) if client.server.server == self.address else client.clock


@pytest.mark.parametrize("error", [FAR, None], ids=["wrong", "none"])
def test_a_workload_api_server_stops_its_own_cluster_alone(harness: Harness, error: timedelta | None) -> None:
    """One whose Date is wrong, and one that sends none."""
    wrong, right = harness.cluster("wrong"), harness.cluster("right")
    address = wrong.api.connection().server
    harness.run(ControllerOptions(server_clock=WrongAt(address, error)))
    posted(wrong, "held")
    message = harness.wait_for_event("ClocksDiffer", "held")
    assert "the workload API server" in message
    assert harness.join(right, "joined").condition == "Approved"
    pending(wrong, "held")
    harness.wait_for_condition(wrong, "ClocksAgree", "False")
