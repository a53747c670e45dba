"""A workload API that holds more requests than the request budget of one cluster, or unwritable ones."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from signer.controller import run
from signer.controller.requests import pending as pending_module
from signer.controller.requests import request_budget as budget
from signer.controller.requests.request_budget import SharedRequestMemory
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS, NODE_ATTESTATION_POLICIES
from signer.testing.api import Request
from signer.testing.fixtures import embedded_api
from signer.testing.world import WorldCluster
from tests.integration.fixtures import CONTROLLER_USER, Harness, node_of, pending, provider_id, writes
from tests.integration.requests import manifest_of, plant
from tests.support.processes import wait_until


def _says_that_requests_overflowed(policy: dict[str, Any]) -> bool:
    conditions = (policy.get("status") or {}).get("conditions") or []
    return ("WorkloadClusterReachable", "True", "RequestsOverflowed") in [
        (condition["type"], condition["status"], condition["reason"]) for condition in conditions
    ]


def test_names_that_are_no_path_segment_are_ignored(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    cluster = harness.cluster()
    names = ("back\\slash", "line\nfeed", "n" * 300)
    with caplog.at_level(logging.INFO):
        plant(cluster, manifest_of(names[0], b"listed"))
        harness.run()
        harness.join(cluster)
        for name in names[1:]:
            plant(cluster, manifest_of(name, b"watched"))
        harness.join(cluster)
    messages = [record.getMessage() for record in caplog.records if record.name.startswith("signer.controller")]
    assert [message for message in messages if message.startswith("ignored a request")] == [
        "ignored a request that cannot be kept; further ones are not logged"
    ]
    assert not [message for message in messages if "unexpected fault" in message]
    assert len(writes(embedded_api(cluster))) == 4  # approval and certificate of the two honest ones


def test_the_budget_of_a_deleted_cluster_is_released(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    shared_memory = SharedRequestMemory()
    at_first = shared_memory.bytes_left
    monkeypatch.setattr(budget, "OWN_BYTES", 0)
    monkeypatch.setattr(run, "SharedRequestMemory", lambda: shared_memory)
    cluster = harness.cluster()
    harness.run()
    harness.join(cluster)
    cluster.submit_with_token(node_of(cluster, "waits").client_request("waits"))
    wait_until(lambda: shared_memory.bytes_left < at_first, "a request without its Machine is kept")
    cluster.remove()
    wait_until(lambda: shared_memory.bytes_left == at_first, "nothing is kept")


def _more_than_are_kept(
    harness: Harness, waiting: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[WorldCluster, list[str]]:
    """So many requests wait for Machines that are not there, and four of them are kept."""
    monkeypatch.setattr(pending_module, "MAXIMUM_REQUESTS", 4)
    cluster = harness.cluster()
    harness.run()
    harness.join(cluster)
    machines = [f"m{number}" for number in range(waiting)]
    for machine in machines:
        cluster.submit_with_token(node_of(cluster, machine).client_request(machine))
    harness.management.client.wait_for(
        NODE_ATTESTATION_POLICIES.collection(cluster.namespace), cluster.name, _says_that_requests_overflowed
    )
    return cluster, machines


def test_overflow_requests_are_served_when_others_are_done(
    harness: Harness, short_waits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are kept wait for their Machines; those that are left out are found again by listing."""
    cluster, machines = _more_than_are_kept(harness, 10, monkeypatch)
    for machine in machines:
        pending(cluster, machine)
    for machine in machines:
        cluster.add_machine(machine, provider_id=provider_id(machine))
    for machine in machines:
        assert cluster.wait_until_decided(machine).reason == "Attested"
    harness.join(cluster)


def test_new_requests_are_received_during_a_relist_of_the_overflow(
    harness: Harness, short_waits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That list is a whole flood's, and takes its time."""
    cluster, machines = _more_than_are_kept(harness, 5, monkeypatch)
    api = embedded_api(cluster)
    slow = api.faults.inject(_is_list_of_requests, delay_seconds=3600, times=None)
    for machine in machines[:4]:
        api.delete("certificatesigningrequests", machine)
    wait_until(lambda: slow.hits > 0, "what was left out is listed")
    harness.join(cluster)
    api.faults.clear()


def _is_list_of_requests(request: Request) -> bool:
    """By the controller."""
    listed = request.path == CERTIFICATE_SIGNING_REQUESTS.collection() and "watch=" not in request.query
    return listed and request.method == "GET" and request.user.name == CONTROLLER_USER
