"""Who says whose TPM it is, through the running controller: InfraMachines and inventories, right, wrong and changed."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from attestors.tpm.endorsement_key_sources import INVENTORY_KEY
from attestors.wire.names import (
    ENDORSEMENT_KEY_ANNOTATION,
    ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION,
    ENDORSEMENT_KEY_SOURCE_ANNOTATION,
)
from signer.kube.resources import CONFIG_MAPS, EVENTS
from signer.testing.world import Verdict, WorldCluster
from tests.integration.fixtures import Harness, pending, provider_id
from tests.integration.tpm.fake_tpm_node import FakeTPMNode, add_machine, say
from tests.integration.tpm.whose import (
    NUMBERS,
    OperatorFolder,
    add_worker,
    assert_denied,
    assert_joins,
    assert_waits,
    chip,
    cluster_of,
    csr,
    decided_at_last,
)
from tests.support.infra_cluster import INFRASTRUCTURE, SIGNER_FIELD, add_infra_cluster, add_infra_machine
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def harness(shared_harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Harness:
    """A harness whose controller runs; its tests only add to it."""
    shared_harness.run(attestors=OperatorFolder(tmp_path_factory.mktemp("operator")).attestors)
    return shared_harness


def resolved(verdict: Verdict) -> tuple[str, str]:
    """What the controller wrote on the request that it approved: the key, and who said it."""
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    annotations = verdict.annotations
    return annotations[ENDORSEMENT_KEY_ANNOTATION], annotations[ENDORSEMENT_KEY_SOURCE_ANNOTATION]


@pytest.fixture(scope="module")
def cluster(harness: Harness) -> WorldCluster:
    """One whose policy says nothing of sources, and whose platform has InfraMachines."""
    cluster = cluster_of(harness, "infrastructure")
    add_infra_cluster(cluster, SIGNER_FIELD)
    return cluster


class TestInfrastructureMachine:
    """The cluster's policy says nothing: the Machine's annotation, then its InfraMachine's."""

    @staticmethod
    def add_node(cluster: WorldCluster, said: str) -> FakeTPMNode:
        name = f"metal-{next(NUMBERS)}"
        machine = cluster.add_machine(name, provider_id=provider_id(name))
        annotations = {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: said} if said else {}
        add_infra_machine(cluster, machine, **annotations)
        return FakeTPMNode(cluster, name, chip())

    def test_the_platforms_controller_says_it(self, cluster: WorldCluster) -> None:
        genuine = chip()
        node = self.add_node(cluster, genuine.fingerprint).but(chip=genuine)
        assert resolved(node.attest(csr())) == (genuine.fingerprint, "InfrastructureMachineAnnotation")
        assert_joins(node.with_new_key())

    def test_it_says_another(self, cluster: WorldCluster) -> None:
        thief = self.add_node(cluster, chip().fingerprint)
        verdict = thief.ask(csr(), thief.chip.first())
        assert_denied(verdict, "EndorsementKeyMismatch", f"the InfraMachine of Machine {thief.machine} has another TPM")

    def test_it_says_it_later(self, harness: Harness, cluster: WorldCluster) -> None:
        node = self.add_node(cluster, "")
        name = assert_waits(harness, node, f"the InfraMachine of Machine {node.machine} has no annotation")
        annotation = {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: node.chip.fingerprint}
        path = INFRASTRUCTURE.object(f"{node.machine}-infra", cluster.namespace)
        cluster.management.client.patch(path, {"metadata": {"annotations": annotation}})
        assert decided_at_last(node, name).reason == "ChallengeIssued"

    def test_the_machine_itself_speaks_first(self, cluster: WorldCluster) -> None:
        genuine, other = chip(), chip()
        node = self.add_node(cluster, other.fingerprint).but(chip=genuine)
        say(cluster, node.machine, genuine.fingerprint)
        assert resolved(node.attest(csr())) == (genuine.fingerprint, "MachineAnnotation")

    def test_an_inframachine_that_is_not_there(self, harness: Harness, cluster: WorldCluster) -> None:
        name = f"metal-{next(NUMBERS)}"
        add_machine(cluster, name)
        assert_waits(harness, FakeTPMNode(cluster, name, chip()), "does not exist")


@dataclass(frozen=True)
class Listed:
    """A cluster that prefers an inventory of its own; behind it the door to first use is open."""

    cluster: WorldCluster
    name: str

    @property
    def path(self) -> str:
        return CONFIG_MAPS.object(self.name, "default")

    def create(self) -> None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self.name}, "data": {INVENTORY_KEY: "#"}}
        self.cluster.management.client.create(CONFIG_MAPS.collection("default"), body)

    def delete(self) -> None:
        self.cluster.management.client.delete(self.path)

    def write(self, *lines: str, key: str = INVENTORY_KEY) -> None:
        self.cluster.management.client.patch(self.path, {"data": {INVENTORY_KEY: None, key: "\n".join(lines)}})


def line(node: FakeTPMNode, fingerprint: str = "") -> str:
    return f"{provider_id(node.machine)} {fingerprint or node.chip.fingerprint}"


@pytest.fixture
def listed(harness: Harness) -> Listed:
    name = f"listed-{next(NUMBERS)}"
    cluster = cluster_of(harness, name, "Inventory", "MachineAnnotation", "TrustOnFirstUse", inventory=name)
    made = Listed(cluster, name)
    made.create()
    return made


class TestInventory:
    def test_a_machine_that_is_listed(self, listed: Listed) -> None:
        """Its bootstrap token is anybody's: that does not matter."""
        node, other = add_worker(listed.cluster).but(token=""), add_worker(listed.cluster)
        listed.write("# rack 7", line(other), line(node))
        assert resolved(node.attest(csr())) == (node.chip.fingerprint, "Inventory")

    def test_one_that_changes_while_the_controller_runs(self, listed: Listed) -> None:
        """The board was replaced: the former chip renews no more."""
        node = add_worker(listed.cluster)
        listed.write(line(node))
        renewing = assert_joins(node)
        listed.write(line(node, chip().fingerprint))

        def denied() -> bool:
            asking = renewing.with_new_key()
            return asking.ask(csr(), asking.chip.first()).reason == "EndorsementKeyMismatch"

        wait_until(denied, "the change is seen")

    def test_any_genuine_chip_with_a_stolen_token_of_a_pool(self, listed: Listed) -> None:
        """A pool's instances have no Machines: those that are listed join, and no others."""
        instance = f"instance-{next(NUMBERS)}"
        pool = listed.cluster.add_machine_pool(f"pool-of-{instance}", provider_id(instance))
        token = listed.cluster.api.bootstrap_token()
        listed.cluster.add_kubeadm_config(f"pool-of-{instance}", token, pool)
        genuine = FakeTPMNode(listed.cluster, instance, chip(), token=token)
        listed.write(line(genuine))
        thief = genuine.but(chip=chip()).with_new_key()
        verdict = thief.ask(csr(), thief.chip.first())
        assert_denied(verdict, "EndorsementKeyMismatch", "the claimed machine has another TPM")
        assert genuine.challenge(csr())

    def test_a_chip_that_is_listed_elsewhere_is_no_first_use(self, listed: Listed) -> None:
        """The owner of one machine has stolen the bootstrap token of another."""
        victim, thief = add_worker(listed.cluster), add_worker(listed.cluster)
        listed.write(line(thief))
        verdict = victim.but(chip=thief.chip).ask(csr(), thief.chip.first())
        assert_denied(verdict, "EndorsementKeyMismatch", "under another provider ID")

    def test_one_that_is_not_listed_is_for_the_next(self, listed: Listed) -> None:
        node = add_worker(listed.cluster)
        assert resolved(node.attest(csr())) == (node.chip.fingerprint, "TrustOnFirstUse")

    @pytest.mark.parametrize("how", ["deleted", "contradictory", "unreadable", "table", "renamed", "folded"])
    def test_one_that_cannot_be_used_opens_no_door(self, harness: Harness, listed: Listed, how: str) -> None:
        """The next source would let the first use decide."""
        node = add_worker(listed.cluster)
        if how == "deleted":
            listed.delete()
            part = f"ConfigMap default/{listed.name} does not exist"
        elif how == "contradictory":
            listed.write("#", line(node), line(node, chip().fingerprint))
            part = "see line 2, 3"
        elif how == "unreadable":
            listed.write(line(node) + " # mine")
            part = "see line 1"
        elif how == "table":
            listed.write("machine,key", line(node, chip().fingerprint).replace(" ", ","))
            part = "see line 2"
        elif how == "folded":  # by `>` in YAML, where each machine has a comment before it
            listed.write("# Rack 7. rack://1 sha256:" + "1a" * 32, f"# Rack 8. {line(node, chip().fingerprint)}")
            part = "see line 2"
        else:
            listed.write(line(node), key="keys")
            part = "has no text under endorsement-keys"
        name = assert_waits(harness, node, part)
        if how == "deleted":
            listed.create()
        listed.write(line(node))
        assert decided_at_last(node, name).reason == "ChallengeIssued"

    def test_one_that_is_deleted_ends_renewals(self, harness: Harness, listed: Listed) -> None:
        """Also of a machine that was let in by first use, and has a record."""
        node = add_worker(listed.cluster)
        renewing = assert_joins(node)
        listed.delete()
        names: list[str] = []

        def waits() -> bool:
            names.append(csr())
            renewing.with_new_key().post(names[-1], renewing.chip.first())
            events = harness.management.client.items(EVENTS.collection("default"))
            about = [event for event in events if event["involvedObject"]["name"] == node.machine]
            return "EndorsementKeyUnknown" in {event["reason"] for event in about}

        wait_until(waits, "the deletion is seen")
        assert pending(listed.cluster, names[-1]).annotations == {}
