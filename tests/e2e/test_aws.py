"""EC2 instances join on the real kube-apiserver, and every attack on the AWS attestor is refused there.

Honest instances run the node's own program; attackers post what they like. EC2 and IAM are moto's, STS and the metadata
services verify what moto does not, documents are signed by an authority of the test's. Everything is on this machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import pytest

from attestors.aws import wire
from attestors.wire.names import Purpose
from signer.testing.world import Verdict, WorldCluster
from tests.e2e.aws_attacks import ANSWERS, ATTACKS, ATTACKS_WITH_THE_ATTACKERS_KEY
from tests.e2e.aws_suspect import Suspect, launch, machine_name
from tests.e2e.clouds import a_kubelet_turns_ready, joins_renews_and_serves, node_program, open_harness
from tests.integration.aws.fixtures import fields
from tests.integration.fixtures import Harness, assert_readable, pending
from tests.support.aws_documents import ACCOUNT
from tests.support.control_plane import ControlPlane
from tests.support.fake_aws import EC2Instance, FakeAccount
from tests.support.fake_aws.ec2 import EC2_TRUST
from tests.support.fake_aws.instances import ROLE

pytestmark = [pytest.mark.real, pytest.mark.slow]

OPEN_ROLE: Final = "open.example"


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeAccount]:
    with FakeAccount(tmp_path_factory.mktemp("aws")) as running:
        anybody = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
        running.ec2.create_role(OPEN_ROLE, {**EC2_TRUST, "Statement": [*EC2_TRUST["Statement"], anybody]})
        yield running


@pytest.fixture(scope="module")
def harness(real_control_plane: ControlPlane, account: FakeAccount) -> Iterator[Harness]:
    roles = [f"arn:aws:iam::{ACCOUNT}:role/{name}" for name in (ROLE, OPEN_ROLE)]
    with open_harness(real_control_plane, account.attestor, account.operator_attestor(allowedRoles=roles)) as opened:
        yield opened


@pytest.fixture(scope="module")
def cluster(harness: Harness) -> WorldCluster:
    return harness.make_cluster("aws", namespace="aws")


@pytest.fixture
def victim(account: FakeAccount, cluster: WorldCluster) -> Suspect:
    """An honest instance that has not joined yet."""
    instance = launch(account, cluster)
    return Suspect(cluster, account, instance, instance)


@pytest.fixture(scope="module")
def attackers_own(account: FakeAccount, cluster: WorldCluster) -> EC2Instance:
    return launch(account, cluster)


@pytest.fixture
def attacker(victim: Suspect, attackers_own: EC2Instance) -> Suspect:
    """On an instance of the same cluster and role, who wants to be the victim."""
    return victim.but(own=attackers_own).with_new_key()


class TestHonest:
    def test_the_instance_joins_renews_and_serves(
        self, real_control_plane: ControlPlane, cluster: WorldCluster, victim: Suspect, tmp_path: Path
    ) -> None:
        settings = victim.account.metadata_of(victim.own)
        program = node_program(cluster, victim.node, tmp_path / "node", settings)
        address = ip_address(victim.own.launched.private_ip)
        joins_renews_and_serves(real_control_plane, program, [victim.own.node_name], address)

    def test_a_kubelet_registers_and_turns_ready(
        self, real_control_plane: ControlPlane, cluster: WorldCluster, victim: Suspect, tmp_path: Path
    ) -> None:
        settings = victim.account.metadata_of(victim.own)
        a_kubelet_turns_ready(real_control_plane, node_program(cluster, victim.node, tmp_path / "node", settings))

    def test_both_proofs_by_hand(self, victim: Suspect, account: FakeAccount, cluster: WorldCluster) -> None:
        """What every attack below differs from in one thing."""
        other = launch(account, cluster)
        with_token = victim.but(claimed=other, own=other)
        for verdict in (victim.ask(victim.fields()), with_token.ask(with_token.token())):
            assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused(victim: Suspect, attacker: Suspect, attack: str) -> None:
    make, reason, part = ATTACKS[attack]
    evidence = make(victim, attacker)
    asking = attacker if attack in ATTACKS_WITH_THE_ATTACKERS_KEY else victim
    assert_denied(asking.ask(evidence), reason, part)


def assert_denied(verdict: Verdict, reason: str, part: str = "") -> None:
    assert (verdict.condition, verdict.reason, verdict.certificate) == ("Denied", reason, b""), verdict
    assert_readable(verdict.message, "X-Amz-", "eyJ", "ASIA")
    assert part in verdict.message


class TestCopies:
    """Everybody with a bootstrap token can read everybody's evidence."""

    def test_evidence_of_another_request(self, victim: Suspect, attacker: Suspect) -> None:
        for evidence in (victim.fields(), victim.token()):
            assert_denied(attacker.ask(evidence), "BindingMismatch")

    def test_evidence_for_another_cluster_purpose_or_signer(self, victim: Suspect) -> None:
        others = (
            victim.binding(cluster="sha256:" + "aa" * 32),
            victim.binding(Purpose.SERVING),
            victim.binding(provider="gcp"),
        )
        for other in others:
            signed_for = other.value.hex()
            copied = fields(victim.presigned(signed_for=signed_for), binding=signed_for, document=victim.signed)
            assert_denied(victim.ask(copied), "BindingMismatch")
            assert_denied(victim.ask(victim.token(aud=wire.audience(other.value))), "BindingMismatch")

    def test_a_binding_that_was_not_signed(self, victim: Suspect, attacker: Suspect) -> None:
        """What the attacker writes beside the victim's request is not what the header said when it was signed."""
        copied = fields(victim.presigned(), binding=attacker.binding().value.hex(), document=victim.signed)
        assert_denied(attacker.ask(copied), "CallerIdentityRefused")


class TestRoles:
    def test_a_role_that_others_may_assume_waits_for_the_operator(self, harness: Harness, victim: Suspect) -> None:
        """They can name their sessions after any instance: nobody can tell this one from the instance's own."""
        role_id = victim.account.ec2.iam.get_role(RoleName=OPEN_ROLE)["Role"]["RoleId"]
        named = victim.session(role_name=OPEN_ROLE, role_id=role_id, instance_arn="")
        assert OPEN_ROLE in victim.waits(harness, victim.fields(named), "RoleTrustTooWide")


class TestInstances:
    def test_a_terminated_instance(self, victim: Suspect, account: FakeAccount) -> None:
        account.terminate(victim.own)
        assert_denied(victim.ask(victim.fields()), "InstanceTerminated")

    def test_one_instance_for_two_machines(self, harness: Harness, victim: Suspect, cluster: WorldCluster) -> None:
        assert victim.ask(victim.fields()).certificate
        again = machine_name(victim.claimed) + "-b"
        cluster.add_machine(again, provider_id=victim.claimed.provider_id, addresses=victim.claimed.addresses)
        thief = victim.with_new_key()
        name = thief.post(thief.fields())
        message = harness.wait_for_event("MachineAmbiguous", cluster.name, "Cluster", namespace=cluster.namespace)
        assert again in message
        pending(cluster, name)


@pytest.mark.parametrize("answer", ANSWERS)
def test_no_other_answer_of_sts_is_believed_nor_held_against_the_node(
    harness: Harness, victim: Suspect, account: FakeAccount, answer: str
) -> None:
    account.sts.fail("sts", ANSWERS[answer](victim))
    try:
        assert victim.waits(harness, victim.fields(), "CloudUnavailable").startswith("AWS STS: ")
    finally:
        account.sts.recover()
    assert victim.ask(victim.fields()).certificate
