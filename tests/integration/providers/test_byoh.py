"""Hosts of BYOH: their agents write ByoHosts, so only the operator's inventory says which chip is in which host."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from urllib.parse import parse_qs

import pytest

from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION, ENDORSEMENT_KEY_SOURCE_ANNOTATION
from signer.kube.resources import BYO_HOSTS, MACHINES_V1BETA2
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, certificate_of, pending
from tests.integration.providers.infrastructure import WORLDS
from tests.integration.providers.nodes import ChipNode
from tests.integration.providers.stage import cluster_of, csr, late_machine, list_chip
from tests.integration.providers.world import FIRST, ProviderMachine, ProviderWorld, show
from tests.integration.tpm.whose import chip
from tests.support.byoh import LABEL, add_byo_host, add_byo_machine, attach

_NUMBERS = itertools.count(1)
(BYOH,) = (world for world in WORLDS if world.name == "byoh")


@dataclass(frozen=True)
class Pool:
    """A cluster with a host that has a Machine, and a host that has none."""

    harness: Harness
    cluster: WorldCluster
    machine: ProviderMachine
    node: ChipNode
    free: ChipNode
    """In the inventory, with the bootstrap token of the other's Machine."""

    def waits(self, node: ChipNode, part: str, reason: str = "EndorsementKeyUnknown") -> None:
        """The first request waits; the Cluster has the Event, since no Machine is called like the node."""
        name = node.post(csr())
        self.harness.wait_for_event(reason, self.cluster.name, "Cluster", self.cluster.namespace, part=part)
        pending(self.cluster, name)


@pytest.fixture
def pool(worlds: Harness) -> Pool:
    world = replace(BYOH, name=f"byoh-pool-{next(_NUMBERS)}")
    cluster, machine, other = cluster_of(worlds, world), world.at(FIRST), world.at(FIRST + 1)
    node, own = late_machine(world, cluster, machine), chip()
    add_byo_host(cluster, other.host)
    list_chip(cluster, f"byoh://{other.host}", own)
    free = ChipNode.of(cluster, other.node_name, other.provider_id, own, node.token)
    return Pool(worlds, cluster, machine, node, free)


def another_machine(world: ProviderWorld, pool: Pool, number: int) -> tuple[ProviderMachine, str]:
    """A Machine without a host, and its bootstrap token."""
    machine, token = world.at(number), pool.cluster.api.bootstrap_token()
    created = world.create(pool.cluster, machine)
    pool.cluster.add_kubeadm_config(machine.name, token, created)
    add_byo_machine(pool.cluster, created, machine.infrastructure_name)
    return machine, token


def test_the_name_is_proven_by_the_inventory(pool: Pool) -> None:
    verdict = pool.node.ask(csr())
    assert certificate_of(verdict).subject.rfc4514_string() == "CN=system:node:host-11,O=system:nodes"
    assert verdict.annotations[ENDORSEMENT_KEY_SOURCE_ANNOTATION] == "Inventory"
    joined = pool.node.joined(verdict)
    assert joined.ask(csr()).reason == "Attested"  # while the Machine shows no provider ID
    assert joined.ask(csr(), ("host-11",)).reason == "Attested"


def test_stolen_token_of_another_host(pool: Pool) -> None:
    """The host of the inventory is not that of the Machine for which the token was made."""
    pool.waits(pool.free, "is on host byoh://host-11, and the request claims another one")


def test_host_that_labels_itself(pool: Pool) -> None:
    """A host writes its own ByoHost."""
    attach(pool.cluster, "host-12", pool.machine.infrastructure_name)
    pool.waits(pool.free, "ByoHosts host-11 and host-12 are both labelled")


def test_host_that_is_not_attached(pool: Pool) -> None:
    attach(pool.cluster, "host-11", "")
    pool.waits(pool.node, f"no ByoHost of namespace {pool.cluster.namespace} is labelled")


def test_free_host_can_take_a_machine_without_a_host(pool: Pool) -> None:
    """What is not stopped, as ``docs/threat-model.md`` says: BYOH would accept it, too. It has its own name alone."""
    attach(pool.cluster, "host-11", "")
    attach(pool.cluster, "host-12", pool.machine.infrastructure_name)
    verdict = pool.free.but(node_name="host-11").ask(csr())
    assert (verdict.condition, verdict.reason) == ("Denied", "NodeNameMismatch"), verdict
    verdict = pool.free.ask(csr())
    assert certificate_of(verdict).subject.rfc4514_string() == "CN=system:node:host-12,O=system:nodes"


def test_annotation_of_the_host_does_not_count(pool: Pool) -> None:
    """A host would name its own chip."""
    world = replace(BYOH, name="byoh-annotated")
    settings = {"endorsementKeySources": ["HostAnnotation"]}
    cluster = cluster_of(pool.harness, world, authorizedAttestors=[{"name": "tpm", "settings": settings}])
    node = late_machine(world, cluster, pool.machine)
    named = {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: node.chip.fingerprint}
    path = BYO_HOSTS.object(pool.machine.host, cluster.namespace)
    cluster.management.client.patch(path, {"metadata": {"annotations": named}})
    replace(pool, cluster=cluster).waits(node, "writes its own object, so that annotations of it do not count")


@pytest.mark.parametrize(
    "claim", ["byoh://HOST-11/rack-7", "byoh://host-12/rack-7", "byoh://host-12/byoh://host-11/x", "xbyoh://host-11/x"]
)
def test_claim_of_another_host(pool: Pool, claim: str) -> None:
    """BYOH itself would take some of these: its expression has no anchors, and takes the name as an expression."""
    pool.waits(pool.node.but(provider_id=claim), "and the request claims another one")


@pytest.mark.parametrize("name", ["host-12", "HOST-11", "host-11.corp.example", "prod-md-0-11"])
def test_another_node_name(pool: Pool, name: str) -> None:
    verdict = pool.node.but(node_name=name).ask(csr())
    assert verdict.condition == "Denied", verdict
    assert verdict.reason in {"NodeNameMismatch", "InvalidSubject"}, verdict


def test_next_machine_on_the_same_host(pool: Pool) -> None:
    """Also with the same provider ID: the operator writes it into the kubelet's configuration once."""
    verdict = pool.node.ask(csr())
    assert verdict.reason == "Attested", verdict
    show(pool.cluster, pool.machine)
    pool.cluster.management.client.delete(MACHINES_V1BETA2.object(pool.machine.name, pool.cluster.namespace))
    following, token = another_machine(BYOH, pool, FIRST + 2)
    attach(pool.cluster, "host-11", following.infrastructure_name)
    again = pool.node.with_token(token)
    verdict = again.ask(csr())
    assert verdict.reason == "Attested", verdict
    show(pool.cluster, replace(following, provider_id=pool.machine.provider_id))
    assert again.joined(verdict).ask(csr()).reason == "Attested"


def test_one_host_is_not_two_machines(pool: Pool) -> None:
    assert pool.node.ask(csr()).reason == "Attested"
    following, token = another_machine(BYOH, pool, FIRST + 2)
    attach(pool.cluster, "host-11", following.infrastructure_name)
    verdict = pool.node.but(provider_id="byoh://host-11/rack-8").with_token(token).ask(csr())
    assert (verdict.condition, verdict.reason) == ("Denied", "IdentityConflict"), verdict


def test_machine_that_shows_another_provider_id(pool: Pool) -> None:
    """BYOH made one up, because the kubelet had none: the node renews once its configuration has it."""
    verdict = pool.node.ask(csr())
    joined = pool.node.joined(verdict)
    made_up = "byoh://host-11/x7mz5a"
    show(pool.cluster, replace(pool.machine, provider_id=made_up))
    name = joined.post(csr())
    pool.harness.wait_for_event(
        "ProviderIDDisagrees", pool.cluster.name, "Cluster", pool.cluster.namespace, part=made_up
    )
    pending(pool.cluster, name)
    assert joined.but(provider_id=made_up).ask(csr()).reason == "Attested"


def test_every_decision_is_replayed(worlds: Harness) -> None:
    """Runs last: the audit log of all of the above."""
    worlds.assert_audited()


def test_hosts_are_listed_by_label_only(worlds: Harness) -> None:
    reads = worlds.api.requests.matching("GET */byohosts*")
    assert reads
    for entry in reads:
        assert entry.path.startswith("/apis/infrastructure.cluster.x-k8s.io/v1beta1/namespaces/byoh-"), entry
        assert parse_qs(entry.query)["labelSelector"][0].startswith(f"{LABEL}=byoh-"), entry
