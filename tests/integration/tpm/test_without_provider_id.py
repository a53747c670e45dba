"""Machines whose provider ID comes only after their Node: matched by bootstrap token, and by record afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from attestors.tpm.endorsement_key_sources import INVENTORY_KEY
from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION, ENDORSEMENT_KEY_SOURCE_ANNOTATION, Purpose
from signer.kube.client import JsonObject
from signer.kube.resources import BARE_METAL_HOSTS, CONFIG_MAPS, MACHINES_V1BETA2
from signer.model.node_attested import NODE_ATTESTED
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, pending
from tests.integration.kubelets import builtin_serving_request
from tests.integration.tpm.fake_tpm_node import FakeTPMNode, say
from tests.integration.tpm.whose import NUMBERS, OperatorFolder, assert_joins, chip, csr
from tests.support.metal3 import add_bare_metal_host, define_metal3, provision
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow

CLAIMS = {"matchMachines": "WithoutProviderID"}
FIRST_USE = "TrustOnFirstUse"


@pytest.fixture(scope="module")
def harness(shared_harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Harness:
    """A harness whose controller runs; its tests only add to it."""
    define_metal3(shared_harness.management)
    shared_harness.run(attestors=OperatorFolder(tmp_path_factory.mktemp("operator")).attestors)
    return shared_harness


def cluster_of(
    harness: Harness, name: str, *sources: str, tokens: JsonObject | None = None, **more: Any
) -> WorldCluster:
    """A cluster that prefers these sources, and by default matches Machines by their tokens."""
    settings: JsonObject = {"endorsementKeySources": list(sources or ("MachineAnnotation", FIRST_USE))}
    if "Inventory" in sources:
        settings["inventory"] = {"kind": "ConfigMap", "name": f"{name}-inventory"}
    policy = {
        "authorizedAttestors": [{"name": "tpm", "settings": settings}],
        "bootstrapTokens": CLAIMS if tokens is None else tokens,
        "nodeNames": {"sources": ["MachineName"]},
        **more,
    }
    return harness.cluster(name, ["tpm"], policy=policy)


@pytest.fixture(scope="module")
def cluster(harness: Harness) -> WorldCluster:
    """The cluster of tests that do not change its policy."""
    return cluster_of(harness, "late")


def claim_of(machine: str, host: str = "") -> str:
    """The provider ID that Metal3 will write for the Machine."""
    return f"metal3://default/{host or machine}/{machine}"


def add_late(cluster: WorldCluster, *, named: bool = True, name: str = "") -> tuple[FakeTPMNode, JsonObject]:
    """A Machine without provider ID, its token and its node; its annotation names the node's chip if ``named``."""
    name = name or f"late-{next(NUMBERS)}"
    machine = cluster.add_machine(name)
    token = cluster.api.bootstrap_token()
    cluster.add_kubeadm_config(name, token, machine)
    node = FakeTPMNode(cluster, name, chip(), token=token, claimed=claim_of(name))
    if named:
        say(cluster, name, node.chip.fingerprint)
    return node, machine


def assert_waits(harness: Harness, node: FakeTPMNode, part: str, reason: str = "MachineNotFound") -> str:
    """The first request of the node waits, with a reason that is said of its Machine or the Cluster."""
    name = csr()
    node.post(name, node.chip.first())
    try:
        harness.wait_for_event(reason, node.machine, part=part)
    except AssertionError:
        harness.wait_for_event(reason, node.cluster.name, "Cluster", part=part)
    pending(node.cluster, name)
    return name


def record_of(harness: Harness, node: FakeTPMNode) -> JsonObject:
    (record,) = [one for one in harness.records(node.cluster) if one["spec"]["nodeName"] == node.machine]
    spec: JsonObject = record["spec"]
    return spec


def show(node: FakeTPMNode, provider_id: str) -> None:
    """The infrastructure provider writes the Machine's provider ID."""
    node.cluster.patch_machine(node.machine, {"spec": {"providerID": provider_id}})


def _shows(cluster: WorldCluster, machine: str) -> bool:
    found = cluster.management.client.get(MACHINES_V1BETA2.object(machine, cluster.namespace))
    return bool(found["spec"].get("providerID"))


def _condition(cluster: WorldCluster, machine: str, status: str) -> JsonObject:
    def found(item: JsonObject) -> list[JsonObject]:
        conditions = (item.get("status") or {}).get("conditions") or []
        return [one for one in conditions if one["type"] == NODE_ATTESTED and one["status"] == status]

    path = MACHINES_V1BETA2.collection(cluster.namespace)
    return found(cluster.management.client.wait_for(path, machine, lambda item: bool(found(item))))[0]


class TestJoin:
    """The first certificate."""

    def test_token_leads_to_the_machine_whose_chip_is_named(self, harness: Harness, cluster: WorldCluster) -> None:
        node, machine = add_late(cluster)
        renewing = assert_joins(node)
        spec = record_of(harness, node)
        assert (spec["providerID"], spec["providerIDSource"]) == (node.claimed, "Claim")
        assert spec["machineRef"]["uid"] == machine["metadata"]["uid"]
        assert_joins(renewing)  # while the Machine shows none

    def test_serving_certificate(self, cluster: WorldCluster) -> None:
        node, _ = add_late(cluster)
        verdict = assert_joins(node).attest(csr(), Purpose.SERVING)
        assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict

    def test_builtin_serving_request(self, harness: Harness) -> None:
        """It carries no evidence: the record leads to the Machine. A disagreeing provider ID stops it, too."""
        cluster = cluster_of(harness, "builtin", builtinServingRequests="Approve")
        node, _ = add_late(cluster)
        renewing = assert_joins(node)
        assert renewing.credential is not None
        cluster.submit(builtin_serving_request("kubelet", node.machine, [node.machine]), renewing.credential)
        wait_until(lambda: cluster.verdict("kubelet").condition == "Approved", "the request is approved")
        show(node, claim_of("other"))
        wait_until(lambda: _shows(cluster, node.machine), "the Machine shows it")
        cluster.submit(builtin_serving_request("later", node.machine, [node.machine]), renewing.credential)
        harness.wait_for_event("ProviderIDDisagrees", cluster.name, "Cluster")
        pending(cluster, "later")

    def test_machine_condition(self, cluster: WorldCluster) -> None:
        """For a readiness gate, while the Machine shows no provider ID."""
        node, _ = add_late(cluster)
        cluster.patch_machine(node.machine, {"spec": {"readinessGates": [{"conditionType": NODE_ATTESTED}]}})
        assert_joins(node)
        assert _condition(cluster, node.machine, "True")["reason"] == "Attested"

    def test_agreeing_provider_id_is_recorded(self, harness: Harness, cluster: WorldCluster) -> None:
        node, _ = add_late(cluster)
        renewing = assert_joins(node)
        show(node, node.claimed)
        assert_joins(renewing)
        spec = record_of(harness, node)
        assert (spec["providerID"], spec["providerIDSource"]) == (node.claimed, "Machine")

    def test_chip_that_is_named_later(self, harness: Harness, cluster: WorldCluster) -> None:
        node, _ = add_late(cluster, named=False)
        name = csr()
        node.post(name, node.chip.first())
        harness.wait_for_event("EndorsementKeyUnknown", node.machine, part="does not count")  # first use does not
        pending(cluster, name)
        say(cluster, node.machine, node.chip.fingerprint)
        assert cluster.wait_until_decided(name).reason == "ChallengeIssued"

    def test_another_chip_is_denied(self, cluster: WorldCluster) -> None:
        node, _ = add_late(cluster)
        verdict = node.but(chip=chip()).ask(csr(), node.but(chip=chip()).chip.first())
        assert (verdict.condition, verdict.reason) == ("Denied", "EndorsementKeyMismatch"), verdict

    def test_token_of_another_machine(self, cluster: WorldCluster) -> None:
        """A node with Machine A's token and chip does not get into Machine B."""
        attacker, _ = add_late(cluster)
        victim, _ = add_late(cluster)
        thief = attacker.but(machine=victim.machine, claimed=victim.claimed)
        verdict = thief.attest(csr())
        assert (verdict.condition, verdict.reason) == ("Denied", "NodeNameMismatch"), verdict

    def test_token_with_two_owners(self, harness: Harness, cluster: WorldCluster) -> None:
        """Attack A19: a tenant writes a second KubeadmConfig with a stolen token."""
        victim, _ = add_late(cluster)
        attacker, machine = add_late(cluster)
        cluster.add_kubeadm_config(f"{attacker.machine}-second", victim.token, machine)
        thief = attacker.but(token=victim.token)
        assert_waits(harness, thief, "which is not one Machine")
        assert_waits(harness, victim, "which is not one Machine")

    def test_untraceable_token(self, harness: Harness, cluster: WorldCluster) -> None:
        node, _ = add_late(cluster)
        assert_waits(harness, node.but(token=""), "no KubeadmConfig of Cluster default/late holds it")

    def test_token_of_a_pool(self, harness: Harness, cluster: WorldCluster) -> None:
        node, _ = add_late(cluster)
        token = cluster.api.bootstrap_token()
        cluster.add_kubeadm_config("late-pool", token, cluster.add_machine_pool("late-pool"))
        assert_waits(harness, node.but(token=token), "it was made for MachinePool default/late-pool")

    def test_machine_that_shows_another(self, harness: Harness, cluster: WorldCluster) -> None:
        node, _ = add_late(cluster)
        show(node, claim_of("other"))
        assert_waits(harness, node, f"shows provider ID {claim_of('other')}", "ProviderIDDisagrees")

    def test_machine_with_the_node_of_another_name(self, harness: Harness, cluster: WorldCluster) -> None:
        node, machine = add_late(cluster)
        cluster.set_machine_status(machine, {"nodeRef": {"name": "other"}})
        name = csr()
        node.post(name, node.chip.answer(node.challenge(csr()), node.binding()))
        harness.wait_for_event("NodeRefDisagrees", node.machine)
        pending(cluster, name)

    def test_policy_never(self, harness: Harness) -> None:
        closed = cluster_of(harness, "never", tokens={})
        node, _ = add_late(closed)
        assert_waits(harness, node, "no Machine has provider ID")

    def test_two_hosts_claim_one_provider_id(self, harness: Harness, cluster: WorldCluster) -> None:
        first, _ = add_late(cluster)
        assert_joins(first)
        second, _ = add_late(cluster)
        text = f"is that of Machine default/{first.machine}"
        assert_waits(harness, second.but(claimed=first.claimed), text, "ProviderIDTaken")

    def test_provider_id_of_a_machine_of_another_cluster(self, harness: Harness, cluster: WorldCluster) -> None:
        other = harness.cluster("elsewhere", ["tpm"], namespace="default")
        other.add_machine("taken", provider_id=claim_of("taken"))
        node, _ = add_late(cluster)
        assert_waits(
            harness, node.but(claimed=claim_of("taken")), "is that of Machine default/taken", "ProviderIDTaken"
        )


class TestLater:
    """The Machine shows its provider ID, or goes."""

    def test_disagreeing_provider_id_freezes_renewal(self, harness: Harness) -> None:
        cluster = cluster_of(harness, "disagreeing", mode="Observe")
        harness.wait_for_condition(cluster, "ClaimedProviderIDsAgree", "True")
        node, _ = add_late(cluster)
        renewing = assert_joins(node)
        show(node, claim_of("other"))
        name = csr()
        renewing.post(name, renewing.chip.first())
        harness.wait_for_event("ProviderIDDisagrees", cluster.name, "Cluster", part=claim_of("other"))
        pending(cluster, name)
        cluster.patch({"metadata": {"annotations": {"example.com/nudge": "1"}}})
        condition = harness.wait_for_condition(cluster, "ClaimedProviderIDsAgree", "False")
        assert node.machine in condition["message"]
        # An operator corrects the node: it renews by what the Machine shows.
        corrected = renewing.with_new_key().but(claimed=claim_of("other"))
        assert_joins(corrected)
        assert record_of(harness, node)["providerIDSource"] == "Machine"

    def test_second_node_name_after_a_wrong_claim(self, harness: Harness) -> None:
        """Root on a node claims a wrong provider ID, and asks for another name once the Machine shows its own."""
        cluster = cluster_of(harness, "names", nodeNames={"sources": ["MachineName", "MachineAddress"]})
        node, machine = add_late(cluster)
        second = f"{node.machine}-second"
        cluster.set_machine_status(machine, {"addresses": [{"type": "Hostname", "address": second}]})
        assert_joins(node)
        show(node, claim_of("other"))
        name = csr()
        thief = node.with_new_key().but(machine=second, claimed=claim_of("other"))
        thief.post(name, thief.chip.answer(thief.challenge(csr()), thief.binding()))
        harness.wait_for_event("NodeNameBlocked", node.machine, part=f"is node {node.machine}")
        pending(cluster, name)

    def test_first_use_after_a_wrong_claim(self, harness: Harness, cluster: WorldCluster) -> None:
        """A reader of the Machine's bootstrap data cannot give it another chip once its annotation is removed."""
        node, _ = add_late(cluster)
        renewing = assert_joins(node)
        show(node, claim_of(f"{node.machine}-shown"))
        say(cluster, node.machine, None)
        thief = node.but(chip=chip(), claimed=claim_of(f"{node.machine}-shown")).with_new_key()
        verdict = thief.ask(csr(), thief.chip.first())
        assert (verdict.condition, verdict.reason) == ("Denied", "EndorsementKeyMismatch"), verdict
        assert_joins(renewing.with_new_key().but(claimed=thief.claimed))

    def test_machine_of_another_tenant_blocks_nothing(self, harness: Harness, cluster: WorldCluster) -> None:
        """A tenant writes Machines with the provider IDs that another tenant's nodes will claim, or have claimed."""
        other = harness.cluster("other-tenant", ["tpm"], namespace="other-tenant")
        node, _ = add_late(cluster)
        other.add_machine(f"{node.machine}-first", provider_id=node.claimed)
        renewing = assert_joins(node)
        other.add_machine(f"{node.machine}-second", provider_id=node.claimed)
        assert_joins(renewing)

    def test_next_machine_on_the_same_host(self, harness: Harness, cluster: WorldCluster) -> None:
        node, _ = add_late(cluster)
        assert_joins(node)
        cluster.management.client.delete(MACHINES_V1BETA2.object(node.machine, cluster.namespace))
        following, _ = add_late(cluster, named=False)
        following = following.but(chip=node.chip)
        say(cluster, following.machine, node.chip.fingerprint)
        assert_joins(following)

    def test_identity_stays_reserved_while_its_machine_shows_none(
        self, harness: Harness, cluster: WorldCluster
    ) -> None:
        node, _ = add_late(cluster)
        assert_joins(node)
        other, _ = add_late(cluster, named=False)
        other = other.but(chip=node.chip)
        say(cluster, other.machine, node.chip.fingerprint)
        verdict = other.attest(csr())
        assert (verdict.condition, verdict.reason) == ("Denied", "IdentityConflict"), verdict


@pytest.fixture(scope="module")
def by_annotation(harness: Harness) -> WorldCluster:
    """A cluster whose hosts' objects name their chips."""
    return cluster_of(harness, "hosts", "HostAnnotation", FIRST_USE)


@pytest.fixture(scope="module")
def by_inventory(harness: Harness) -> WorldCluster:
    """A cluster whose inventory lists hosts."""
    cluster = cluster_of(harness, "listed", "Inventory")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "listed-inventory"}, "data": {}}
    harness.management.client.create(CONFIG_MAPS.collection("default"), body)
    return cluster


class TestHosts:
    """Metal3: a BareMetalHost names the chip for all Machines that run on it."""

    @staticmethod
    def add_on_host(cluster: WorldCluster, host: str, *, consumer: str = "") -> FakeTPMNode:
        node, machine = add_late(cluster, named=False)
        provision(cluster, machine, host, consumer=consumer)
        return node.but(claimed=claim_of(node.machine, host))

    def test_annotation_of_the_host(self, by_annotation: WorldCluster) -> None:
        host, genuine = f"host-{next(NUMBERS)}", chip()
        add_bare_metal_host(by_annotation, host, **{ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: genuine.fingerprint})
        first = self.add_on_host(by_annotation, host).but(chip=genuine)
        verdict = first.attest(csr())
        assert verdict.reason == "Attested", verdict
        assert verdict.annotations[ENDORSEMENT_KEY_SOURCE_ANNOTATION] == "HostAnnotation"
        by_annotation.management.client.delete(MACHINES_V1BETA2.object(first.machine, by_annotation.namespace))
        assert_joins(self.add_on_host(by_annotation, host).but(chip=genuine))

    def test_host_without_annotation(self, harness: Harness, by_annotation: WorldCluster) -> None:
        host = f"host-{next(NUMBERS)}"
        add_bare_metal_host(by_annotation, host)
        node = self.add_on_host(by_annotation, host)
        name = csr()
        node.post(name, node.chip.first())
        harness.wait_for_event("EndorsementKeyUnknown", node.machine, part="has no annotation")
        pending(by_annotation, name)

    def test_host_of_another_machine(self, harness: Harness, by_annotation: WorldCluster) -> None:
        host, genuine = f"host-{next(NUMBERS)}", chip()
        add_bare_metal_host(by_annotation, host, **{ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: genuine.fingerprint})
        node = self.add_on_host(by_annotation, host, consumer="other").but(chip=genuine)
        node.post(csr(), node.chip.first())
        harness.wait_for_event("EndorsementKeyUnknown", node.machine, part="has another consumer")

    def test_claim_of_another_host(self, harness: Harness, by_annotation: WorldCluster) -> None:
        host, genuine = f"host-{next(NUMBERS)}", chip()
        add_bare_metal_host(by_annotation, host, **{ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: genuine.fingerprint})
        node = self.add_on_host(by_annotation, host).but(chip=genuine)
        node = node.but(claimed=claim_of(node.machine, "other"))
        node.post(csr(), node.chip.first())
        harness.wait_for_event("EndorsementKeyUnknown", node.machine, part="the request claims another one")

    def test_inventory_by_host(self, harness: Harness, by_inventory: WorldCluster) -> None:
        host, genuine = f"host-{next(NUMBERS)}", chip()
        add_bare_metal_host(by_inventory, host)
        line = f"metal3://default/{host} {genuine.fingerprint}"
        path = CONFIG_MAPS.object("listed-inventory", "default")
        harness.management.client.patch(path, {"data": {INVENTORY_KEY: line}})
        first = self.add_on_host(by_inventory, host).but(chip=genuine)
        show(first, first.claimed)  # by provider ID too
        assert_joins(first)
        by_inventory.management.client.delete(MACHINES_V1BETA2.object(first.machine, by_inventory.namespace))
        assert_joins(self.add_on_host(by_inventory, host).but(chip=genuine))

    def test_inventory_of_any_host_does_not_count(self, harness: Harness, by_inventory: WorldCluster) -> None:
        """A line for the claimed provider ID says nothing about the Machine that the token was made for."""
        host, other, attackers = f"host-{next(NUMBERS)}", f"host-{next(NUMBERS)}", chip()
        add_bare_metal_host(by_inventory, host)
        path = CONFIG_MAPS.object("listed-inventory", "default")
        line = f"metal3://default/{other} {attackers.fingerprint}"
        harness.management.client.patch(path, {"data": {INVENTORY_KEY: line}})
        node = self.add_on_host(by_inventory, host).but(chip=attackers)
        thief = node.but(claimed=claim_of(node.machine, other))
        thief.post(csr(), thief.chip.first())
        harness.wait_for_event("EndorsementKeyUnknown", node.machine, part="the request claims another one")


def test_every_decision_is_replayed(harness: Harness) -> None:
    """Runs last: the audit log of all of the above."""
    wait_until(lambda: bool(harness.audited), "something is audited")
    harness.assert_audited()


def test_bare_metal_hosts_are_read_by_name_only(harness: Harness) -> None:
    calls = [entry for entry in harness.api.requests.matching() if BARE_METAL_HOSTS.plural in entry.path]
    assert all(entry.path.startswith("/apis/metal3.io/v1alpha1/namespaces/default/") for entry in calls)
