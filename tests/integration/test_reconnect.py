"""A workload API server that refuses the controller's credentials gets few connections, and causes few calls."""

from __future__ import annotations

import pytest

from signer.controller.requests import reachability
from signer.kube.backoff import Backoff
from signer.testing.fixtures import embedded_api
from tests.integration.fixtures import Harness, node_of, provider_id


def test_a_server_that_answers_401_costs_one_connection_for_each_pause(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = Backoff(base_seconds=1000, maximum_seconds=1000, jitter=0)
    monkeypatch.setattr(reachability, "RECONNECT", long)
    refusing = harness.cluster("refusing")
    api = embedded_api(refusing)
    unknown = api.kubeconfig("refusing", connection=api.token_connection("nobody-knows-this-token"))
    refusing.put_secret("kubeconfig", {"value": unknown.encode()})
    healthy = harness.cluster("healthy")
    harness.run()
    condition = harness.wait_for_condition(refusing, "WorkloadClusterReachable", "False")
    assert condition["reason"] == "Unauthorized"
    harness.join(healthy)
    harness.join(healthy)
    assert len(harness.api.requests.matching("GET /api/v1/namespaces/default/secrets/refusing-kubeconfig")) == 1
    assert [request.status for request in api.requests.matching("GET */certificatesigningrequests")] == [401]


def test_a_server_that_answers_401_to_every_decision_costs_one_connection_for_each_pause(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reachability, "RECONNECT", Backoff(base_seconds=1000, maximum_seconds=1000, jitter=0))
    refusing = harness.cluster("refusing")
    api = embedded_api(refusing)
    api.faults.inject("PUT *", status=401, times=None)
    healthy = harness.cluster("healthy")
    harness.run()
    harness.join(healthy)
    refusing.add_machine("refused", provider_id=provider_id("refused"))
    refusing.submit_with_token(node_of(refusing, "refused").client_request("refused"))
    assert harness.wait_for_condition(refusing, "WorkloadClusterReachable", "False")["reason"] == "Unauthorized"
    harness.join(healthy)
    harness.join(healthy)
    assert len(harness.api.requests.matching("GET /api/v1/namespaces/default/secrets/refusing-kubeconfig")) == 1
    assert [request.status for request in api.requests.matching("PUT *")] == [401]
