"""Trust on first use, against the running controller: whoever is not the first with the Machine's own token."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION, Purpose
from signer.kube.resources import ATTESTED_NODES, IDENTITY_RESERVATIONS, MACHINES_V1BETA2
from signer.model.cluster import ClusterKey
from signer.model.record import record_name
from signer.model.record_object import parse_record
from signer.model.seal import RecordSeals
from signer.testing.world import CONTROLLER_NAMESPACE, WorldCluster
from tests.integration.endorsement_key_sources import assert_one_owner_each
from tests.integration.fixtures import Harness, keys_of, pending, provider_id
from tests.integration.tpm.whose import (
    FIRST_USE,
    NUMBERS,
    SEVERAL_KEYS,
    OperatorFolder,
    add_worker,
    assert_denied,
    assert_joins,
    assert_waits,
    chip,
    cluster_of,
    csr,
    nudge,
)
from tests.support import endorsement_certificates as write
from tests.support.processes import wait_until
from tests.unit.attestors.tpm.endorsement.support import ENDORSEMENT
from tests.unit.attestors.tpm.fake_tpm import FakeTPM
from tests.unit.attestors.tpm.test_controller import GOOGLE_INSTANCE, instance

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def harness(shared_harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Harness:
    """A harness whose controller runs; its tests only add to it."""
    shared_harness.run(attestors=OperatorFolder(tmp_path_factory.mktemp("operator")).attestors)
    return shared_harness


@pytest.fixture(scope="module")
def cluster(harness: Harness) -> WorldCluster:
    return cluster_of(harness, "first-use", *FIRST_USE)


def test_the_machines_own_token_is_enough(harness: Harness, cluster: WorldCluster) -> None:
    """It renews by its record, without any token."""
    node = add_worker(cluster)
    renewing = assert_joins(node)
    renewing = assert_joins(renewing)
    verdict = renewing.attest(csr(), Purpose.SERVING)
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    assert_one_owner_each(harness, [cluster])


def test_a_joined_machine_may_come_with_its_token_again(cluster: WorldCluster) -> None:
    node = add_worker(cluster)
    assert_joins(node)
    assert_joins(node.with_new_key())


def test_the_token_of_another_machine(harness: Harness, cluster: WorldCluster) -> None:
    victim, thief = add_worker(cluster), add_worker(cluster)
    waits = assert_waits(
        harness, victim.but(chip=thief.chip, token=thief.token), f"made for Machine default/{thief.machine}"
    )
    assert_joins(victim)
    # Now another chip is recorded there.
    assert_denied(cluster.wait_until_decided(waits), "EndorsementKeyMismatch", "first came with another TPM")


def test_a_token_that_belongs_to_no_machine(harness: Harness, cluster: WorldCluster) -> None:
    victim = add_worker(cluster)
    assert_waits(harness, victim.but(token=""), "no KubeadmConfig of the Cluster holds the bootstrap token")


def test_the_token_of_a_pool(harness: Harness, cluster: WorldCluster) -> None:
    """Any genuine TPM, and a token that all of the pool's machines have."""
    pool = cluster.add_machine_pool("pool", provider_id("pool-1"))
    token = cluster.api.bootstrap_token()
    cluster.add_kubeadm_config("pool", token, pool)
    victim = add_worker(cluster)
    assert_waits(harness, victim.but(token=token), "made for MachinePool default/pool")
    member = add_worker(cluster, owner=pool)
    assert_waits(harness, member.but(token=token), "is for workers")
    assert_waits(harness, member, "is for workers", about=member.machine)
    instance = victim.but(machine="pool-1", token=token, chip=chip())
    assert_waits(harness, instance, "needs a Machine", about="pool", kind="MachinePool")


def test_never_for_the_control_plane(harness: Harness, cluster: WorldCluster) -> None:
    """With its own token."""
    assert_waits(harness, add_worker(cluster, control_plane=True), "is a control-plane")


def test_another_chip_after_the_first(harness: Harness, cluster: WorldCluster) -> None:
    """With the Machine's own token, read from its bootstrap data."""
    node = add_worker(cluster)
    renewing = assert_joins(node)
    thief = node.but(chip=chip()).with_new_key()
    assert_denied(thief.ask(csr(), thief.chip.first()), "EndorsementKeyMismatch", "first came with another TPM")
    stolen = renewing.but(chip=thief.chip)
    for purpose in Purpose:
        verdict = stolen.with_new_key().ask(csr(), stolen.chip.first(), purpose)
        assert_denied(verdict, "EndorsementKeyMismatch")
    assert_joins(renewing)


def test_two_race_to_be_the_first(harness: Harness, cluster: WorldCluster) -> None:
    """Both have the Machine's token and a genuine chip, and both were challenged before either answered."""
    for _ in range(3):
        node = add_worker(cluster)
        both = [node, node.but(chip=chip()).with_new_key()]
        answers = [one.chip.answer(one.challenge(csr()), one.binding()) for one in both]
        with ThreadPoolExecutor(2) as pool:
            verdicts = list(pool.map(lambda one, answer: one.ask(csr(), answer), both, answers))
        assert sorted(verdict.condition for verdict in verdicts) == ["Approved", "Denied"], verdicts
        lost = next(verdict for verdict in verdicts if verdict.condition == "Denied")
        assert lost.reason in ("IdentityConflict", "EndorsementKeyMismatch")
        winner, loser = (both[index] for index in (0, 1)) if verdicts[0].certificate else (both[1], both[0])
        assert_denied(loser.with_new_key().ask(csr(), loser.chip.first()), "EndorsementKeyMismatch")
        assert_joins(winner.with_new_key())
    assert_one_owner_each(harness, [cluster])


def test_one_chip_cannot_be_the_first_of_two_machines(harness: Harness, cluster: WorldCluster) -> None:
    node, second = add_worker(cluster), add_worker(cluster)
    assert_joins(node)
    verdict = second.but(chip=node.chip).attest(csr())
    assert_denied(verdict, "IdentityConflict")
    assert_one_owner_each(harness, [cluster])


def test_one_chip_cannot_be_the_first_of_two_machines_with_two_keys(cluster: WorldCluster) -> None:
    """Its maker certified both keys, and no certificate says that they are of one chip."""
    node, second = add_worker(cluster), add_worker(cluster)
    assert_joins(node)
    other_key = second.but(chip=node.chip.with_another_key("L-1").certified())
    verdict = other_key.ask(csr(), other_key.chip.first())
    assert_denied(verdict, "EndorsementKeyTemplateNotAllowed", "ecc-p256")
    assert_joins(second)


def test_a_chip_that_its_certificates_name_is_one_machine(harness: Harness) -> None:
    """Where the operator accepts two keys of a chip: with the second key it is no second Machine."""
    cluster = cluster_of(harness, "several-keys", *FIRST_USE, namespace=SEVERAL_KEYS)
    node, second, third = (add_worker(cluster) for _ in range(3))
    extensions = (*ENDORSEMENT, write.extension(GOOGLE_INSTANCE, instance(7, next(NUMBERS))))
    named = node.but(chip=node.chip.certified(extensions=extensions))
    thief = second.but(chip=named.chip.with_another_key("L-1").certified(extensions=extensions))
    renewing = assert_joins(named)
    assert_denied(thief.attest(csr()), "IdentityConflict", f"belongs to Machine {SEVERAL_KEYS}/{node.machine}")
    assert not [one for one in harness.reservations() if one["spec"]["machineRef"]["name"] == second.machine]
    assert_joins(second)
    assert_joins(renewing)
    harness.management.client.delete(MACHINES_V1BETA2.object(node.machine, cluster.namespace))
    elsewhere = thief.but(machine=third.machine, token=third.token)
    wait_until(
        lambda: elsewhere.with_new_key().attest(csr()).condition == "Approved", "the chip may be another Machine"
    )


def test_a_program_with_the_certificate_of_a_web_server(cluster: WorldCluster) -> None:
    """The operator's root has certified servers, too, and their certificates name no purpose."""
    usage = write.key_usage(write.KEY_AGREEMENT)
    program = add_worker(cluster)
    thief = program.but(chip=program.chip.certified(extensions=(write.basic_constraints(), usage)))
    refused = thief.ask(csr(), thief.chip.first())
    assert_denied(refused, "EndorsementCertificateRefused", "nothing marks it as that of an endorsement key")


def test_the_annotation_speaks_before_it(cluster: WorldCluster) -> None:
    """Also about one that is recorded."""
    node = add_worker(cluster)
    renewing = assert_joins(node)
    annotation = {"attestation.cluster.x-k8s.io/tpm-endorsement-key": chip().fingerprint}
    cluster.patch_machine(node.machine, {"metadata": {"annotations": annotation}})
    assert_joins(add_worker(cluster))  # its Machine comes later: all of this is known by then
    verdict = renewing.ask(csr(), renewing.chip.first())
    assert_denied(verdict, "EndorsementKeyMismatch", f"Machine {node.machine} has another TPM")


@pytest.mark.parametrize("said", ["", "x" * 3000], ids=["nothing", "too-much"])
def test_a_slip_in_the_annotation_does_not_let_it_speak(harness: Harness, cluster: WorldCluster, said: str) -> None:
    """As of a provisioning script with an empty variable."""
    node = add_worker(cluster, annotations={ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: said})
    assert_waits(harness, node, "is neither sha256:")


def test_a_node_with_a_lost_record_waits_until_the_machine_agrees_with_the_reservations(
    harness: Harness, cluster: WorldCluster
) -> None:
    """As docs/recovering.md has it: by a restored backup, or under another controller key."""
    renewing = assert_joins(add_worker(cluster))
    harness.management.client.delete(
        ATTESTED_NODES.object(record_name(ClusterKey("default", cluster.name), renewing.machine), "default")
    )
    waits = assert_waits(harness, renewing, "no TPM is recorded of Machine")
    reserved = {
        one["spec"]["identity"]
        for one in harness.reservations()
        if one["spec"]["machineRef"]["name"] == renewing.machine
    }
    said = {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: reserved.pop().removeprefix("tpm:")}
    cluster.patch_machine(renewing.machine, {"metadata": {"annotations": said}})
    assert cluster.wait_until_decided(waits).reason == "ChallengeIssued"
    renewing = assert_joins(renewing.with_new_key())
    cluster.patch_machine(renewing.machine, {"metadata": {"annotations": dict.fromkeys(said)}})
    assert_joins(renewing)


def test_a_record_that_the_controller_key_forged_names_no_tpm(harness: Harness, cluster: WorldCluster) -> None:
    """Its author has the controller key, write access to AttestedNodes, a chip of its own, and any bootstrap token that
    cannot be traced. Only an attestation makes the reservation that the record lacks.
    """
    joined = add_worker(cluster)
    assert_joins(joined)
    victim = add_worker(cluster)
    thief = victim.but(chip=chip(), token=cluster.api.bootstrap_token())
    forge_record(harness, cluster, joined.machine, victim.machine, thief.chip)
    assert_waits(harness, thief, "a first use needs the Machine's own bootstrap token")


def test_a_former_chip_whose_record_and_pair_are_put_back_stays_a_former_one(
    harness: Harness, cluster: WorldCluster
) -> None:
    """By write access to both kinds, without the controller key. An operator had admitted other hardware since."""
    client, node = harness.management.client, add_worker(cluster)
    former = assert_joins(node)
    path = ATTESTED_NODES.object(record_name(ClusterKey("default", cluster.name), node.machine), "default")
    record, pair = copy.deepcopy(client.get(path)), copy.deepcopy(pair_of(harness, node.machine))
    client.delete(path)
    remove(harness, pair)
    assert_joins(node.but(chip=chip()).with_new_key())
    remove(harness, pair_of(harness, node.machine))
    for one in pair:
        metadata = {"name": one["metadata"]["name"], "namespace": CONTROLLER_NAMESPACE}
        client.create(IDENTITY_RESERVATIONS.collection(CONTROLLER_NAMESPACE), {**one, "metadata": metadata})
    client.patch(path, {"spec": record["spec"]})
    assert_joins(add_worker(cluster))  # all of this is known by then
    waits = csr()
    former.post(waits, former.chip.first())
    message = harness.wait_for_event("EndorsementKeyUnknown", node.machine)
    assert f"no TPM is recorded of Machine {node.machine}" in message
    assert pending(cluster, waits).annotations == {}


def pair_of(harness: Harness, machine: str) -> list[dict[str, Any]]:
    return [one for one in harness.reservations() if one["spec"]["machineRef"]["name"] == machine]


def remove(harness: Harness, sides: list[dict[str, Any]]) -> None:
    for one in sides:
        path = IDENTITY_RESERVATIONS.object(one["metadata"]["name"], CONTROLLER_NAMESPACE)
        harness.management.client.delete(path)


def test_a_machine_that_is_made_anew_starts_again(harness: Harness, cluster: WorldCluster) -> None:
    """Renewals of the former one end with it."""
    node = add_worker(cluster)
    renewing = assert_joins(node)
    harness.management.client.delete(MACHINES_V1BETA2.object(node.machine, cluster.namespace))
    machine = cluster.add_machine(node.machine, provider_id=provider_id(node.machine))
    assert_joins(add_worker(cluster))  # its Machine comes later: all of this is known by then
    waits = csr()
    renewing.post(waits, renewing.chip.first())
    message = harness.wait_for_event("EndorsementKeyUnknown", node.machine)
    assert f"no TPM is recorded of Machine {node.machine}" in message
    nudge(node)
    assert pending(cluster, waits).annotations == {}
    token = cluster.api.bootstrap_token()
    cluster.add_kubeadm_config(f"{node.machine}-anew", token, machine)
    again = node.but(token=token).with_new_key()
    name = csr()
    again.post(name, again.chip.first())
    assert cluster.wait_until_decided(name).reason == "ChallengeIssued"


def forge_record(harness: Harness, cluster: WorldCluster, of: str, machine: str, named: FakeTPM) -> None:
    """A copy of one node's record, sealed for another Machine with that chip."""
    client = harness.management.client
    forged = copy.deepcopy(
        client.get(ATTESTED_NODES.object(record_name(ClusterKey("default", cluster.name), of), "default"))
    )
    uid = client.get(MACHINES_V1BETA2.object(machine, cluster.namespace))["metadata"]["uid"]
    forged["metadata"] = {"name": record_name(ClusterKey("default", cluster.name), machine), "namespace": "default"}
    spec = forged["spec"]
    spec["machineRef"] = {"kind": "Machine", "name": machine, "uid": uid}
    identity = f"tpm:{named.fingerprint}"
    spec |= {"providerID": provider_id(machine), "nodeName": machine, "identity": identity}
    claimed = parse_record({**forged, "metadata": {**forged["metadata"], "uid": "u", "resourceVersion": "1"}})
    spec["seal"] = RecordSeals(keys_of(harness)).seal(claimed)
    client.create(ATTESTED_NODES.collection("default"), forged)


def test_a_cluster_that_does_not_prefer_it_has_it_not(harness: Harness) -> None:
    cluster = cluster_of(harness, "annotated")
    assert_waits(harness, add_worker(cluster), "has no annotation")


def test_a_policy_that_does_not_put_it_last(harness: Harness) -> None:
    cluster = cluster_of(harness, "wrong-order", "TrustOnFirstUse", "MachineAnnotation")
    condition = harness.wait_for_condition(cluster, "AttestorsConfigured", "False")
    assert "must have TrustOnFirstUse last" in condition["message"]
