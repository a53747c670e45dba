"""Two processes of the controller that share shards on a real kube-apiserver, killed and told to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator

import pytest

from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS, LEASES
from signer.model.shard import SHARDS_OF_LABEL, ShardLeases, parse_shard_leases
from signer.testing.fixtures import open_workload_clusters
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, WorldCluster
from tests.e2e.replicas import Replicas
from tests.integration.endorsement_key_sources import assert_every_certificate_is_permitted, verdicts
from tests.integration.fixtures import node_of, provider_id
from tests.support.cluster_api import cluster_api_crds
from tests.support.control_plane import ControlPlane
from tests.support.processes import Programs, wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

NAMESPACE = "sharded"
NAME = "sharded-lease"
SHARDS = 4
CLUSTERS = 6
NODES = 4
"""Of each cluster, at a time."""
FLAGS = [
    *("--namespace", NAMESPACE, "--shards", str(SHARDS), "--leader-elect-resource-name", NAME),
    *("--leader-elect-lease-duration", "3s", "--leader-elect-renew-deadline", "2s"),
    *("--leader-elect-retry-period", "200ms", "--logging-format", "json"),
]


@pytest.fixture
def management(real_control_plane: ControlPlane) -> Iterator[ManagementCluster]:
    with ManagementCluster(real_control_plane, capi_crds=cluster_api_crds()) as management:
        yield management


@pytest.fixture
def clusters(management: ManagementCluster) -> Iterator[list[WorldCluster]]:
    """Workload clusters on embedded APIs: a real control plane for each would take minutes."""
    with open_workload_clusters(management) as make:
        clusters = [make(f"sharded-{number}", namespace=NAMESPACE) for number in range(CLUSTERS)]
        for cluster in clusters:
            cluster.authorize("keyed-mac")
        yield clusters
        for cluster in clusters:
            cluster.remove()


@pytest.fixture
def programs() -> Iterator[Programs]:
    with Programs("shards-") as programs:
        yield programs


class Sharing(Replicas):
    """Each owns its part."""

    def leases(self) -> ShardLeases:
        """What ``kubectl get lease --selector`` shows."""
        items = self.management.client.items(LEASES.collection(CONTROLLER_NAMESPACE))
        ours = [item for item in items if (item["metadata"].get("labels") or {}).get(SHARDS_OF_LABEL) == NAME]
        return parse_shard_leases(NAME, ours)

    def wait_until_shared(self, count: int) -> set[str]:
        """Wait until so many replicas have their parts; returns who they are."""

        def parts() -> dict[str, int]:
            holders = [shard.lease.holding.holder for shard in self.leases().shards.values()]
            return {holder: holders.count(holder) for holder in holders if holder}

        wait_until(lambda: sorted(parts().values()) == [SHARDS // count] * count, f"{count} share all shards")
        return set(parts())


def ask(clusters: Iterable[WorldCluster], when: str) -> None:
    """In each cluster some nodes ask to join, all at once."""
    for cluster in clusters:
        names = [f"{cluster.name}-{when}-{number}" for number in range(NODES)]
        for name in names:
            cluster.add_machine(name, provider_id=provider_id(name))
        with cluster.client(cluster.api.token_connection(cluster.api.bootstrap_token())) as client:
            client.create_all(
                CERTIFICATE_SIGNING_REQUESTS.collection(),
                [node_of(cluster, name).client_request(name) for name in names],
            )


def certified(clusters: Iterable[WorldCluster]) -> int:
    return sum(bool(verdict.certificate) for cluster in clusters for verdict in verdicts(cluster).values())


def test_replicas_that_share_shards_are_killed_and_told_to_stop(
    management: ManagementCluster, clusters: list[WorldCluster], programs: Programs
) -> None:
    replicas = Sharing(management, programs, FLAGS)
    first = replicas.start("first")
    [of_the_first] = replicas.wait_until_shared(1)

    # The second joins amid the joins of nodes: the first hands half of the shards over.
    second = replicas.start("second")
    ask(clusters, "shared")
    both = replicas.wait_until_shared(2)
    assert of_the_first in both
    wait_until(lambda: certified(clusters) == CLUSTERS * NODES, "every node has joined")

    # SIGKILL amid the joins: the other takes the shards when the Lease of the first has run out, and carries on.
    ask(clusters, "killed")
    first.process.send_signal(signal.SIGKILL)
    assert replicas.wait_until_shared(1) == both - {of_the_first}
    wait_until(lambda: certified(clusters) == 2 * CLUSTERS * NODES, "every node has joined")

    # SIGTERM: the third takes the shards without waiting for any Lease to run out.
    third = replicas.start("third")
    replicas.wait_until_shared(2)
    ask(clusters, "stopped")
    second.process.send_signal(signal.SIGTERM)
    assert second.process.wait(30) == 0, second.log_tail()
    log = second.log.read_text()
    assert log.index('"draining"') < log.index('"stopped"') < log.index('"released the Lease"')
    replicas.wait_until_shared(1)
    wait_until(lambda: certified(clusters) == 3 * CLUSTERS * NODES, "every node has joined")

    third.process.send_signal(signal.SIGTERM)
    assert third.process.wait(30) == 0, third.log_tail()
    assert all(one.has_left for one in replicas.leases().replicas.values() if one.lease.holding.holder not in both)
    for program in (first, second, third):
        assert "Traceback" not in program.log.read_text()
    records = assert_every_certificate_is_permitted(management, clusters)
    ours = [record for record in records if record.machine.cluster.namespace == NAMESPACE]
    assert len(ours) == 3 * CLUSTERS * NODES  # other tests share the management cluster
    for record in ours:
        assert [entry.csr_name for entry in record.journal] == [record.node_name], "handled once, whoever did"
