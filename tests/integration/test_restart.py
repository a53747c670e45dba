"""The controller dies at every request that it makes, before and after its execution; the next one continues."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from signer.configuration import Configuration
from signer.kube.errors import ApiError
from signer.testing.api import Request
from signer.testing.fixtures import embedded_api, open_controllers
from signer.testing.world import CONTROLLER_NAMESPACE, RunningController, WorldCluster
from tests.integration.fixtures import (
    CONTROLLER_USER,
    MASTERS,
    Harness,
    assert_one_certificate,
    keyed_mac,
    node_of,
    provider_id,
)

MOST_REQUESTS = 60


class Death:
    """Kills a controller at its ``number``-th request to any API server, and cuts off what it still sends."""

    def __init__(self, harness: Harness, cluster: WorldCluster, number: int, *, carried_out: bool) -> None:
        self._apis = (harness.api, embedded_api(cluster))
        self._number = number
        self._requests = itertools.count(1)
        self._lock = threading.Lock()
        self._victim: RunningController | None = None
        self._armed = threading.Event()
        self.happened = threading.Event()
        for api in self._apis:
            # Order matters: the request at which it dies, then whatever comes after death.
            api.faults.inject(self._is_the_one, drop="after" if carried_out else "before", times=None)
            api.faults.inject(self._is_late, drop="before", times=None)

    def of(self, victim: RunningController) -> None:
        """Whom to kill."""
        self._victim = victim
        self._armed.set()

    def is_over(self) -> None:
        """Let the API servers answer again."""
        for api in self._apis:
            api.faults.clear()

    def _is_the_one(self, request: Request) -> bool:
        if request.user.name != CONTROLLER_USER or self.happened.is_set():
            return False
        with self._lock:
            if next(self._requests) != self._number:
                return False
            self.happened.set()
        # The very first requests come before the test has its handle.
        threading.Thread(target=self._kill, daemon=True).start()
        return True

    def _is_late(self, request: Request) -> bool:
        return request.user.name == CONTROLLER_USER and self.happened.is_set()

    def _kill(self) -> None:
        self._armed.wait()
        assert self._victim is not None
        self._victim.kill()


def _start(harness: Harness) -> RunningController:
    connection = harness.api.connection(CONTROLLER_USER, MASTERS)
    return RunningController(connection, Configuration(namespace=CONTROLLER_NAMESPACE, attestors=keyed_mac()))


@pytest.fixture
def joins(harness: Harness) -> tuple[WorldCluster, Iterator[str]]:
    """A cluster, and names for one Machine after the other."""
    return harness.cluster(), (f"machine-{number}" for number in itertools.count(1))


@pytest.mark.slow
@pytest.mark.parametrize("carried_out", [False, True])
@pytest.mark.parametrize("renewal", [False, True])
def test_death_at_every_request(
    harness: Harness, joins: tuple[WorldCluster, Iterator[str]], renewal: bool, carried_out: bool
) -> None:
    """Until the controller lives longer than the request takes: each CSR has one certificate, the journal's."""
    cluster, names = joins
    for number in range(1, MOST_REQUESTS):
        machine = next(names)
        cluster.add_machine(machine, provider_id=provider_id(machine))
        csrs = [machine]
        if renewal:
            with open_controllers(harness.management) as start:
                start(attestors=keyed_mac())
                cluster.submit_with_token(node_of(cluster, machine).client_request(f"first-{machine}"))
                assert cluster.wait_until_decided(f"first-{machine}").condition == "Approved"
            csrs.append(f"first-{machine}")
            cluster.submit_as_node(node_of(cluster, machine).client_request(machine), machine)
        else:
            cluster.submit_with_token(node_of(cluster, machine).client_request(machine))
        death = Death(harness, cluster, number, carried_out=carried_out)
        victim = _start(harness)
        death.of(victim)
        outlived = _live_until_death(victim, death, cluster, machine)
        death.is_over()
        with open_controllers(harness.management) as start:
            start(attestors=keyed_mac())
            verdict = cluster.wait_until_decided(machine)
            assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), (number, verdict)
            assert_one_certificate(harness, cluster, machine, *csrs)
        if outlived:
            assert number > 15
            return
    pytest.fail("the controller never got through")


def _live_until_death(victim: RunningController, death: Death, cluster: WorldCluster, csr: str) -> bool:
    """Whether the request was decided without the controller having died."""
    try:
        with victim:
            while not death.happened.wait(0.01):
                if cluster.verdict(csr).certificate:
                    return True
            victim.kill()
    except (ApiError, ExceptionGroup, CancelledError):
        # It may die of the broken connection itself while it starts.
        if not death.happened.is_set():
            raise
    return False
