"""Faults of either API server at each read and write: calls are retried, and nothing is done twice."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pytest

from signer.controller import workload_access
from signer.controller.requests.handler import RequestHandler
from signer.kube.client import Client
from signer.model.reasons import Reason
from signer.testing.api import Request
from signer.testing.fixtures import embedded_api
from signer.testing.world import WorldCluster
from tests.integration.fixtures import (
    CONTROLLER_USER,
    Harness,
    assert_one_certificate,
    node_of,
    pending,
    provider_id,
    writes,
)

pytestmark = pytest.mark.slow

_NUMBERS: Final = itertools.count(1)
FAULTS: Final[dict[str, dict[str, Any]]] = {
    "409": {"status": 409},
    "429": {"status": 429},
    "429, later": {"status": 429, "retry_after_seconds": 1},
    "500": {"status": 500},
    "503": {"status": 503, "retry_after_seconds": 0},
    "504": {"status": 504},
    "dropped before": {"drop": "before"},
    "dropped after": {"drop": "after"},
    "times out": {"delay_seconds": 3.0, "drop": "before"},
}
FAST: Final = ("409", "500", "dropped after")
CLIENT_TIMEOUT_SECONDS: Final = 1.0


def _snapshots(*targets: str, fast: tuple[str, ...] = FAST) -> list[Any]:
    return [
        pytest.param(target, fault, marks=() if fault in fast else pytest.mark.slow, id=f"{target}, {fault}")
        for target, fault in itertools.product(targets, FAULTS)
    ]


@pytest.fixture(scope="module")
def harness(shared_harness: Harness, short_waits: None) -> Iterator[Harness]:
    """One harness for all faults; the controller's clients give up after a second."""
    impatient = partial(Client, timeout_seconds=CLIENT_TIMEOUT_SECONDS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workload_access, "Client", impatient)
        patch.setattr("signer.controller.run.Client", impatient)
        shared_harness.run()
        yield shared_harness


@pytest.fixture(scope="module")
def steady(harness: Harness) -> WorldCluster:
    """A cluster with an established connection, for faults of writes."""
    return harness.cluster("steady")


@pytest.fixture
def machine(harness: Harness) -> Iterator[str]:
    """The name of a Machine of this test's own; no fault outlives the test."""
    yield f"machine-{next(_NUMBERS)}"
    harness.api.faults.clear()


def _nth(method: str, path: str, number: int) -> Callable[[Request], bool]:
    """Matches the controller's request of that method and path, from the ``number``-th on."""
    seen = itertools.count(1)

    def matches(request: Request) -> bool:
        fits = request.user.name == CONTROLLER_USER and request.method == method and path in request.path
        return fits and next(seen) >= number

    return matches


WRITES: Final = {
    "machine side": ("management", "POST", "/identityreservations", 1),
    "identity side": ("management", "POST", "/identityreservations", 2),
    "record": ("management", "POST", "/attestednodes", 1),
    "approval": ("workload", "PUT", "/approval", 1),
    "certificate": ("workload", "PUT", "/status", 1),
    "event": ("management", "POST", "/events", 1),
}


@pytest.mark.parametrize(("target", "fault"), _snapshots(*WRITES))
def test_first_join(harness: Harness, steady: WorldCluster, machine: str, target: str, fault: str) -> None:
    steady.add_machine(machine, provider_id=provider_id(machine))
    where, method, path, number = WRITES[target]
    api = harness.api if where == "management" else embedded_api(steady)
    armed = api.faults.inject(_nth(method, path, number), **FAULTS[fault])
    steady.submit_with_token(node_of(steady, machine).client_request(machine))
    assert steady.wait_until_decided(machine).reason == "Attested"
    # Events are best effort and written later.
    assert armed.hits or target == "event"
    assert_one_certificate(harness, steady, machine, machine)


@pytest.mark.parametrize(("target", "fault"), _snapshots("renewed record", "renewed approval", "renewed certificate"))
def test_renewal(harness: Harness, steady: WorldCluster, machine: str, target: str, fault: str) -> None:
    harness.join(steady, machine)
    wheres = {
        "renewed record": (harness.api, "PUT", "/attestednodes/"),
        "renewed approval": (embedded_api(steady), "PUT", "/approval"),
        "renewed certificate": (embedded_api(steady), "PUT", "/status"),
    }
    api, method, path = wheres[target]
    armed = api.faults.inject(_nth(method, path, 1), **FAULTS[fault])
    steady.submit_as_node(node_of(steady, machine).client_request(machine), machine)
    assert steady.wait_until_decided(machine).reason == "Attested"
    assert armed.hits == 1
    assert_one_certificate(harness, steady, machine, f"join-steady-{machine}", machine)


READS: Final = {
    "kubeconfig": ("management", "GET", "-kubeconfig"),
    "CA": ("management", "GET", "-ca"),
    "list and watch": ("workload", "GET", "/certificatesigningrequests"),
}


@pytest.mark.slow
@pytest.mark.parametrize("target", READS)
def test_reads_that_fail_for_a_while(harness: Harness, machine: str, target: str) -> None:
    _join_with_faulty_reads(harness, machine, target, "500", times=6)


@pytest.mark.parametrize(("target", "fault"), _snapshots(*READS, fast=("500",)))
def test_reads(harness: Harness, machine: str, target: str, fault: str) -> None:
    _join_with_faulty_reads(harness, machine, target, fault, times=1)


def _join_with_faulty_reads(harness: Harness, machine: str, target: str, fault: str, times: int) -> None:
    """A join in a new cluster, whose Secrets and requests are read for the first time."""
    cluster = harness.cluster(f"reads-{machine}", ())
    cluster.add_machine(machine, provider_id=provider_id(machine))
    where, method, path = READS[target]
    api = harness.api if where == "management" else embedded_api(cluster)
    only = f"{cluster.name}{path}" if where == "management" else path
    armed = api.faults.inject(_nth(method, only, 1), times=times, **FAULTS[fault])
    cluster.submit_with_token(node_of(cluster, machine).client_request(machine))
    cluster.authorize("keyed-mac")
    assert cluster.wait_until_decided(machine).reason == "Attested"
    assert armed.hits >= 1
    assert_one_certificate(harness, cluster, machine, machine)


@pytest.mark.parametrize("disturbance", ["close_watches", "compact", "restart"])
def test_streams_of_the_workload_cluster(
    harness: Harness, steady: WorldCluster, machine: str, disturbance: str
) -> None:
    """The watch ends cleanly, gets a 410, or breaks: changes meanwhile are found."""
    steady.add_machine(machine, provider_id=provider_id(machine))
    api = embedded_api(steady)
    steady.close()
    if disturbance == "compact":
        api.compact()
        api.close_watches()
    else:
        getattr(api, disturbance)()
    steady.submit_with_token(node_of(steady, machine).client_request(machine))
    assert steady.wait_until_decided(machine).reason == "Attested"
    assert_one_certificate(harness, steady, machine, machine)


@pytest.mark.parametrize("disturbance", ["close_watches", "compact"])
def test_streams_of_the_management_cluster(
    harness: Harness, steady: WorldCluster, machine: str, disturbance: str
) -> None:
    """A Machine that appears while the controller's watches are down is found, and wakes its waiting requests."""
    steady.submit_with_token(node_of(steady, machine).client_request(machine))
    harness.wait_for_event("MachineNotFound", steady.name, "Cluster")
    pending(steady, machine)
    if disturbance == "compact":
        harness.api.compact()
    harness.api.close_watches()
    steady.add_machine(machine, provider_id=provider_id(machine))
    assert steady.wait_until_decided(machine).reason == "Attested"
    assert_one_certificate(harness, steady, machine, machine)


@pytest.mark.slow
def test_a_requested_wait_is_observed(
    harness: Harness, steady: WorldCluster, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retry-After is what the request is tried again after, not the queue's own backoff."""
    unreachable = (Reason.MANAGEMENT_CLUSTER_UNREACHABLE, Reason.WORKLOAD_CLUSTER_UNREACHABLE)
    waits: list[tuple[Reason, float]] = []
    original = RequestHandler._wait

    def note(self: RequestHandler, name: str, decided_request: Any, decision: Any) -> None:
        if decision.reason in unreachable:  # other waits are of a Machine unknown yet, or changed while it was judged
            waits.append((decision.reason, decision.retry_after.total_seconds()))
        original(self, name, decided_request, decision)

    monkeypatch.setattr(RequestHandler, "_wait", note)
    steady.add_machine(machine, provider_id=provider_id(machine))
    for path, method in (("/attestednodes", "POST"), ("/approval", "PUT")):
        api = harness.api if method == "POST" else embedded_api(steady)
        api.faults.inject(_nth(method, path, 1), status=429, retry_after_seconds=1)
    steady.submit_with_token(node_of(steady, machine).client_request(machine))
    assert steady.wait_until_decided(machine).reason == "Attested"
    assert waits == [(reason, 1.0) for reason in unreachable]
    assert len([entry for entry in writes(embedded_api(steady)) if f"/{machine}/" in entry.path]) == 2
