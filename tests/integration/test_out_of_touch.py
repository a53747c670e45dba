"""Nothing is decided while the management cluster cannot be watched: cached data may be stale."""

from __future__ import annotations

from functools import partial
from typing import Final

import pytest

from signer.kube.backoff import Backoff
from signer.kube.resources import MACHINES_V1BETA2
from signer.kube.watch import list_and_watch
from signer.kube.workqueue import WorkQueue
from signer.store import cache_registry, caches
from signer.testing.api import Request
from tests.integration.fixtures import CONTROLLER_USER, Harness, assert_readable, node_of, pending, provider_id
from tests.support.processes import wait_until


def _reads_machines(request: Request) -> bool:
    return (
        request.user.name == CONTROLLER_USER
        and request.method == "GET"
        and request.path == MACHINES_V1BETA2.collection()
    )


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    soon = Backoff(base_seconds=0.02, maximum_seconds=0.2, jitter=0.5)
    monkeypatch.setattr(cache_registry, "list_and_watch", partial(list_and_watch, backoff=soon))
    monkeypatch.setattr(caches, "OUT_OF_TOUCH_SECONDS", 0.0)
    monkeypatch.setattr(caches, "OUT_OF_TOUCH_RETRY_SECONDS", 0.05)


def test_machines_whose_watch_is_no_longer_allowed(harness: Harness) -> None:
    """A node whose Machine is deleted unseen gets no certificate; a node with a Machine gets one after recovery."""
    cluster = harness.cluster()
    for machine in ("gone", "kept"):
        cluster.add_machine(machine, provider_id=provider_id(machine))
    harness.run()
    harness.join(cluster)  # the controller has seen the Machines before
    forbidden = harness.api.faults.inject(_reads_machines, status=403, times=None)
    harness.api.close_watches()
    # It asks a second time: it knows of the first refusal.
    wait_until(lambda: forbidden.hits > 1, "the refused watch")
    harness.management.client.delete(MACHINES_V1BETA2.object("gone", cluster.namespace))
    for machine in ("gone", "kept"):
        cluster.submit_with_token(node_of(cluster, machine).client_request(machine))
    for machine in ("gone", "kept"):
        message = harness.wait_for_event("ManagementClusterUnreachable", machine)
        assert_readable(message)
        assert "machines" in message
        pending(cluster, machine)
    harness.api.faults.clear()
    assert cluster.wait_until_decided("kept").reason == "Attested"
    harness.wait_for_event("MachineNotFound", cluster.name, "Cluster")
    pending(cluster, "gone")


AN_HOUR: Final = 3600.0


def _reserves(request: Request) -> bool:
    return request.user.name == CONTROLLER_USER and request.method == "POST" and request.path.endswith("reservations")


def test_requests_that_failed_meanwhile_do_not_wait_for_their_backoff(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be minutes by the end of an outage of minutes; here it is an hour at once."""
    monkeypatch.setattr(WorkQueue, "retry", lambda queue, key: queue.add_after(key, AN_HOUR))
    cluster = harness.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    harness.run()
    harness.join(cluster)
    harness.api.faults.inject(_reserves, status=500, times=None)
    cluster.submit_with_token(node_of(cluster, "m").client_request("asks"))
    harness.wait_for_event("ManagementClusterUnreachable", "m")
    refused = harness.api.faults.inject(_reads_machines, status=503, times=None)
    harness.api.close_watches()
    wait_until(lambda: refused.hits > 1, "the refused watch")
    pending(cluster, "asks")
    harness.api.faults.clear()
    assert cluster.wait_until_decided("asks").reason == "Attested"
