"""Two processes of the controller under leader election on a real kube-apiserver, killed and told to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from signer.cli.run import EXIT_LEADERSHIP_LOST
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS, LEASES
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, WorldCluster
from tests.e2e.replicas import Replicas
from tests.integration.endorsement_key_sources import assert_every_certificate_is_permitted, verdicts
from tests.integration.fixtures import node_of, provider_id
from tests.integration.replicas import holding
from tests.support.cluster_api import cluster_api_crds
from tests.support.control_plane import ControlPlane
from tests.support.processes import Program, Programs, wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

NAMESPACE = "elected"
NODES = 24
LATE = 4
"""Of them, so many ask when nobody leads."""
LEASE_NAME = "elected-lease"
FLAGS = [
    *("--namespace", NAMESPACE, "--leader-elect", "--leader-elect-resource-name", LEASE_NAME),
    *("--leader-elect-lease-duration", "5s", "--leader-elect-renew-deadline", "4s"),
    *("--leader-elect-retry-period", "300ms", "--logging-format", "json"),
]


@pytest.fixture
def cluster(real_control_plane: ControlPlane) -> Iterator[WorldCluster]:
    with ManagementCluster(real_control_plane, capi_crds=cluster_api_crds()) as management:
        cluster = management.add_cluster("elected", real_control_plane, namespace=NAMESPACE)
        cluster.authorize("keyed-mac")
        yield cluster
        cluster.remove()


@pytest.fixture
def programs() -> Iterator[Programs]:
    with Programs("leader-election-") as programs:
        yield programs


class Elected(Replicas):
    """One of them leads."""

    def wait_until(self, program: Program, message: str) -> None:
        """Wait until it has logged that."""
        program.wait_ready(lambda: f'"{message}"' in program.log.read_text())

    def holder(self) -> str:
        return holding(self.management, LEASE_NAME).holder


def join(cluster: WorldCluster, numbers: range) -> None:
    """Nodes of these numbers ask, all at once."""
    for number in numbers:
        cluster.add_machine(f"elected-{number}", provider_id=provider_id(f"elected-{number}"))
    asked = [node_of(cluster, f"elected-{number}").client_request(f"elected-{number}") for number in numbers]
    with cluster.client(cluster.api.token_connection(cluster.api.bootstrap_token())) as client:
        client.create_all(CERTIFICATE_SIGNING_REQUESTS.collection(), asked)


def certified(cluster: WorldCluster) -> int:
    return sum(bool(verdict.certificate) for name, verdict in verdicts(cluster).items() if name.startswith("elected-"))


def test_replicas_that_are_killed_and_told_to_stop(cluster: WorldCluster, programs: Programs) -> None:
    replicas = Elected(cluster.management, programs, FLAGS)
    first = replicas.start("first")
    replicas.wait_until(first, "started")
    second = replicas.start("second")
    replicas.wait_until(second, "standing by")
    of_the_first = replicas.holder()

    # SIGKILL amid the joins: the standby takes over when the Lease has run out, and carries on.
    join(cluster, range(NODES - LATE))
    wait_until(lambda: certified(cluster) > 0, "the first has signed")
    first.process.send_signal(signal.SIGKILL)
    join(cluster, range(NODES - LATE, NODES))
    wait_until(lambda: certified(cluster) == NODES, "every node has joined")
    of_the_second = replicas.holder()
    assert of_the_second != of_the_first

    # SIGTERM: the next one leads without waiting for the Lease to run out.
    third = replicas.start("third")
    replicas.wait_until(third, "standing by")
    second.process.send_signal(signal.SIGTERM)
    assert second.process.wait(30) == 0, second.log_tail()
    log = second.log.read_text()
    assert log.index('"draining"') < log.index('"stopped"') < log.index('"released the Lease"')
    replicas.wait_until(third, "started")
    lease = holding(cluster.management, LEASE_NAME)
    assert (lease.holder != of_the_second, lease.transitions) == (True, 2)
    join(cluster, range(NODES, NODES + 4))
    wait_until(lambda: certified(cluster) == NODES + 4, "later nodes have joined")

    # Somebody takes the Lease away: it ends, and says so.
    path = LEASES.object(LEASE_NAME, CONTROLLER_NAMESPACE)
    cluster.management.client.patch(path, {"spec": {"holderIdentity": "a person"}})
    assert third.process.wait(30) == EXIT_LEADERSHIP_LOST, third.log_tail()
    assert "leadership lost: a person holds the Lease now" in third.log_tail()
    assert "Traceback" not in third.log_tail()

    records = assert_every_certificate_is_permitted(cluster.management, [cluster], not_ours=others(cluster))
    ours = [record for record in records if record.machine.cluster.namespace == NAMESPACE]
    assert len(ours) == NODES + 4
    for record in ours:
        assert [entry.csr_name for entry in record.journal] == [record.node_name], "handled once, whoever did"


def others(cluster: WorldCluster) -> set[str]:
    """What other tests left on the control plane that they share."""
    return {name for name in verdicts(cluster) if not name.startswith("elected-")}
