"""Replicas under leader election, and the state of the Lease."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Final

from signer.configuration import LeaderElection, OperatorAttestor, Sharding
from signer.controller.run import ControllerOptions
from signer.kube.errors import NotFound
from signer.kube.resources import LEASES
from signer.model.lease import DEFAULT_LEASE_NAME, ElectionTimes, Holding, parse_lease
from signer.rules.leadership import Leading
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController
from tests.integration.fixtures import MASTERS, Harness, keyed_mac
from tests.support.processes import wait_until

TIMES: Final = ElectionTimes(timedelta(seconds=8), timedelta(seconds=7), timedelta(milliseconds=200))
"""Short, for who dies or is cut off in a test: it ends, or is followed, within seconds."""
LONG_TIMES: Final = ElectionTimes(timedelta(seconds=120), timedelta(seconds=110), timedelta(milliseconds=200))
"""For all others: a process that stands still for seconds on a busy machine loses no Lease, and no Lease runs out."""
DEADLINE: Final = f"{TIMES.renew_deadline.total_seconds():g}"
"""In seconds, as messages say it."""
USED_BY_SHARDS: Final = {
    ("coordination.k8s.io", verb, "leases") for verb in ("create", "get", "list", "update", "delete")
}
"""The grants on Leases that replicas need to share shards; ``tests/integration/test_shards.py`` sees them used."""
NOBODYS: Final = Holding("", 0, "", "", 0)


class StallingClock:
    """A monotonic clock that a test can stop."""

    def __init__(self) -> None:
        self._stopped_at: float | None = None

    def __call__(self) -> float:
        return time.monotonic() if self._stopped_at is None else self._stopped_at

    def stop(self) -> None:
        """It shows this moment from now on."""
        self._stopped_at = time.monotonic()


def start_replica(
    harness: Harness,
    user: str,
    *,
    clock: StallingClock | None = None,
    shards: int = 0,
    times: ElectionTimes = LONG_TIMES,
    attestors: dict[str, OperatorAttestor] | None = None,
) -> RunningController:
    """One replica, known to the API server by a name of its own; without ``shards`` under leader election."""
    return harness.start(
        options=ControllerOptions(monotonic=clock) if clock is not None else None,
        connection=harness.api.connection(user, MASTERS),
        attestors=keyed_mac() if attestors is None else attestors,
        insecure_enabled=True,
        insecure_namespaces=frozenset({"default"}),
        leader_election=Sharding(shards, times) if shards else LeaderElection(times),
    )


def wait_until_it_leads(replica: RunningController) -> None:
    """Wait until it believes that it leads."""
    wait_until(lambda: isinstance(replica.leadership.standing(), Leading), "the replica leads")


def holding(management: ManagementCluster, name: str = DEFAULT_LEASE_NAME) -> Holding:
    """What the Lease says."""
    try:
        path = LEASES.object(name, CONTROLLER_NAMESPACE)
        return parse_lease(management.client.get(path)).holding
    except NotFound:
        return NOBODYS


def shards_owned(replica: RunningController) -> int:
    """How many shards it believes to own."""
    value = replica.options.metrics.registry.get_sample_value("node_attestation_shards_owned")
    return int(value or 0)


def watched(replica: RunningController) -> set[str]:
    """The clusters that it serves, by namespace and name."""
    return set(replica.options.metrics.gauges.clusters)
