from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from attestors.contract import InstanceExists, InstanceGone, Security, TerminationNotProvable
from signer.model.cluster import ClusterKey, MachineAddress
from signer.model.decision import Deferred
from signer.model.reasons import Reason
from signer.model.record import AttestedIdentity, AttestedNode
from signer.rules.checks import MACHINE_CHECKS
from signer.rules.machine import (
    MachineFacts,
    MachineGone,
    NoRecord,
    NothingToProve,
    former_identity_has_run_out,
    instance_to_prove_gone,
    require_proven_gone,
    the_machine,
)
from tests.unit.signer.builders import (
    AS_NODE,
    BOOTSTRAP,
    CLUSTER,
    NODE,
    NOW,
    PROVIDER_ID,
    attested_identity,
    cluster_view,
    machine_facts,
    machine_view,
    policy,
    record,
    verified,
)
from tests.unit.signer.outcomes import all_of, deferred, refused

judge = all_of(MACHINE_CHECKS)
LOOK_AGAIN = timedelta(minutes=5)


def test_honest() -> None:
    judge(machine_facts())


class TestTheMachine:
    def test_the_one(self) -> None:
        assert the_machine(PROVIDER_ID, (machine_view(),)) == machine_view()

    def test_none_yet(self) -> None:
        defer = deferred(lambda _: the_machine(PROVIDER_ID, ()), None)
        assert defer.reason == Reason.MACHINE_NOT_FOUND
        assert PROVIDER_ID in defer.message

    def test_several(self) -> None:
        machines = tuple(machine_view(name=f"m{number}") for number in (4, 3, 2, 1))
        defer = deferred(lambda _: the_machine(PROVIDER_ID, machines), None)
        assert defer.reason == Reason.MACHINE_AMBIGUOUS
        assert defer.message.endswith(": Machine m1, Machine m2, Machine m3")
        assert deferred(lambda _: the_machine(PROVIDER_ID, machines[:2]), None).reason == Reason.MACHINE_AMBIGUOUS


def renewal_facts(**changes: Any) -> MachineFacts:
    """The facts of the node that was attested as the Machine."""
    given: dict[str, Any] = {"requester": AS_NODE[0], "record": record(), "recorded_machine": machine_view()}
    return machine_facts(**given | changes)


NO_RENEWALS: dict[str, dict[str, Any]] = {
    "a bootstrap token": {"requester": BOOTSTRAP[0]},
    "no record": {"record": NoRecord(), "recorded_machine": MachineGone()},
    "another identity": {"identity": attested_identity("ek:2")},
}


class TestState:
    @pytest.mark.parametrize("key", [ClusterKey("team-a", "other"), ClusterKey("team-b", "prod")])
    def test_of_another_cluster(self, key: ClusterKey) -> None:
        assert deferred(judge, machine_facts(machine=machine_view(cluster=key))).reason == Reason.INTERNAL_ERROR

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"machine": machine_view(deleting=True)}, Reason.MACHINE_DELETING),
            ({"cluster": cluster_view(deleting=True)}, Reason.CLUSTER_DELETING),
        ],
    )
    class TestDeleting:
        def test_a_first_join(self, changes: dict[str, Any], reason: Reason) -> None:
            deny = refused(judge, machine_facts(**changes))
            assert deny.reason == reason
            assert deny.message.endswith("is being deleted, so no node joins any more: only attested nodes renew")

        def test_a_renewal(self, changes: dict[str, Any], reason: Reason) -> None:
            judge(renewal_facts(**changes))
            deny = refused(judge, renewal_facts(**changes, policy=policy(certificates={"deletingDuration": "0s"})))
            assert deny.reason == reason
            assert deny.message.endswith("is being deleted, and the policy's certificates.deletingDuration is 0s")

        @pytest.mark.parametrize("other", NO_RENEWALS.values(), ids=NO_RENEWALS)
        def test_no_renewal(self, changes: dict[str, Any], reason: Reason, other: dict[str, Any]) -> None:
            assert refused(judge, renewal_facts(**{**other, **changes})).reason == reason

    def test_deleting_and_recreated(self) -> None:
        """Bare metal: the new Machine has the name and provider ID of the attested one, and no node yet."""
        facts = renewal_facts(machine=machine_view(deleting=True, uid="m-2"))
        assert refused(judge, facts).reason == Reason.MACHINE_DELETING
        judge(replace(facts, cluster=cluster_view(created=NOW + timedelta(hours=1))))  # moved with its Cluster

    def test_paused(self) -> None:
        assert deferred(judge, machine_facts(machine=machine_view(paused=True))).reason == Reason.MACHINE_PAUSED

    def test_without_bootstrap_data(self) -> None:
        facts = machine_facts(machine=machine_view(bootstrap_ready=False))
        assert deferred(judge, facts).reason == Reason.MACHINE_NOT_READY

    def test_whose_bootstrap_data_is_gone(self) -> None:
        gone = machine_view(bootstrap_ready=False)
        judge(renewal_facts(machine=gone))
        # A node that joined before this controller was installed.
        judge(machine_facts(requester=AS_NODE[0], machine=replace(gone, node_ref=NODE)))

    @pytest.mark.parametrize("other", NO_RENEWALS.values(), ids=NO_RENEWALS)
    def test_without_bootstrap_data_and_no_renewal(self, other: dict[str, Any]) -> None:
        facts = renewal_facts(**{"machine": machine_view(bootstrap_ready=False), **other})
        assert deferred(judge, facts).reason == Reason.MACHINE_NOT_READY

    def test_a_token_joins_no_machine_without_bootstrap_data(self) -> None:
        facts = machine_facts(machine=machine_view(bootstrap_ready=False, node_ref=NODE))
        assert deferred(judge, facts).reason == Reason.MACHINE_NOT_READY


class TestNodeName:
    def test_not_known_yet(self) -> None:
        """After a move or restore, status.addresses is empty until the infrastructure provider fills it again."""
        facts = machine_facts(machine=machine_view(addresses=()))
        assert deferred(judge, facts).reason == Reason.MACHINE_ADDRESSES_UNKNOWN
        judge(renewal_facts(machine=machine_view(addresses=())))

    @pytest.mark.parametrize("other", NO_RENEWALS.values(), ids=NO_RENEWALS)
    def test_not_known_yet_and_no_renewal(self, other: dict[str, Any]) -> None:
        facts = renewal_facts(**{"machine": machine_view(addresses=()), **other})
        assert deferred(judge, facts).reason == Reason.MACHINE_ADDRESSES_UNKNOWN

    @pytest.mark.parametrize("name", ["other", "x" + NODE, NODE[1:], "prod-md-0-x7k2p", "10.0.0.1"])
    def test_of_another_machine(self, name: str) -> None:
        deny = refused(judge, machine_facts(node_name=name))
        assert deny.reason == Reason.NODE_NAME_MISMATCH
        assert f"is node {NODE} by nodeNames" in deny.message

    def test_one_of_several(self) -> None:
        addresses = (MachineAddress("InternalDNS", "a.b"), MachineAddress("InternalDNS", NODE))
        judge(machine_facts(machine=machine_view(addresses=addresses)))
        deny = refused(judge, machine_facts(machine=machine_view(addresses=addresses), node_name="c"))
        assert f"is node a.b or {NODE} by nodeNames" in deny.message

    def test_addresses_unknown(self) -> None:
        facts = machine_facts(machine=machine_view(addresses=()))
        assert deferred(judge, facts).reason == Reason.MACHINE_ADDRESSES_UNKNOWN

    def test_attested_name(self) -> None:
        proven = verified(node_names=("proven",))
        judge(machine_facts(proven=proven, node_name="proven"))
        assert refused(judge, machine_facts(proven=proven)).reason == Reason.NODE_NAME_MISMATCH

    def test_policy_chooses_the_source(self) -> None:
        chosen = policy(nodeNames={"sources": ["MachineName"]})
        judge(machine_facts(policy=chosen, node_name="prod-md-0-x7k2p"))
        assert refused(judge, machine_facts(policy=chosen)).reason == Reason.NODE_NAME_MISMATCH

    def test_nothing_proven(self) -> None:
        judge(machine_facts(proven=None))

    def test_of_a_node_that_was_attested_so_waits_for_the_platform_to_be_corrected(self) -> None:
        """An infrastructure provider's change of names is not the node's fault, and not for good."""
        renamed = machine_view(addresses=(MachineAddress("InternalDNS", "renamed"),))
        defer = deferred(judge, machine_facts(machine=renamed, record=record()))
        assert (defer.reason, defer.retry_after) == (Reason.NODE_NAME_MISMATCH, LOOK_AGAIN)
        assert "is node renamed by nodeNames Automatic" in defer.message
        assert f"; it was attested as node {NODE} before" in defer.message
        judge(machine_facts(record=record()))

    @pytest.mark.parametrize(
        "recorded",
        [
            record(identity="another"),
            replace(record(), machine=replace(record().machine, name="another")),
            replace(record(), node_name="another"),
        ],
        ids=["identity", "Machine", "node"],
    )
    def test_of_a_node_that_was_not(self, recorded: AttestedNode) -> None:
        renamed = machine_view(addresses=(MachineAddress("InternalDNS", "renamed"),))
        assert refused(judge, machine_facts(machine=renamed, record=recorded)).reason == Reason.NODE_NAME_MISMATCH

    def test_agreeing_node_ref(self) -> None:
        judge(machine_facts(machine=machine_view(node_ref=NODE)))

    def test_disagreeing_node_ref(self) -> None:
        defer = deferred(judge, machine_facts(machine=machine_view(node_ref="other")))
        assert defer.reason == Reason.NODE_REF_DISAGREES
        assert defer.retry_after == LOOK_AGAIN


OTHER = machine_view(name="other", provider_id="aws:///eu-west-1a/i-other")


class TestRecord:
    def test_of_this_identity(self) -> None:
        judge(machine_facts(record=record(), recorded_machine=machine_view()))

    def test_of_this_identity_under_a_machine_that_is_gone(self) -> None:
        judge(machine_facts(record=record(OTHER), recorded_machine=MachineGone()))

    def test_of_this_machine_under_another_identity(self) -> None:
        judge(machine_facts(record=record(identity="ek:2"), recorded_machine=machine_view()))

    def test_of_this_machine_which_is_another_identitys_by_now(self) -> None:
        """The former hardware may be another Machine, and its certificates are valid."""
        facts = machine_facts(record=record(identity="ek:2"), recorded_machine=machine_view())
        defer = deferred(former_identity_has_run_out, facts)
        assert (defer.reason, defer.waits_for) == (Reason.NODE_NAME_BLOCKED, (machine_view().provider_id,))
        assert "had before may be in use until 2026-03-08 12:10 UTC" in defer.message
        former_identity_has_run_out(replace(facts, now=record().held_until))
        former_identity_has_run_out(replace(facts, policy=policy(nodeNameReuse="Immediate")))

    def test_of_nobody_else_before(self) -> None:
        former_identity_has_run_out(machine_facts())
        former_identity_has_run_out(machine_facts(record=record(), recorded_machine=machine_view()))
        only_claimed = AttestedIdentity("insecure", "team-a/prod/x", Security.INSECURE)
        former_identity_has_run_out(machine_facts(record=replace(record(), identity=only_claimed)))

    def test_of_this_machine_once_proven_and_now_only_claimed(self) -> None:
        """Reservations may be missing, as after `clusterctl move`; what was attested is not had without proof."""
        claimed = AttestedIdentity("insecure", "team-a/prod/x", Security.INSECURE)
        facts = machine_facts(record=record(identity="ek:2"), recorded_machine=machine_view(), identity=claimed)
        assert refused(judge, facts).reason == Reason.IDENTITY_CONFLICT

    def test_of_this_machine_claimed_in_two_ways(self) -> None:
        """Neither is proven: the reservations decide, first come."""
        before = replace(record(), identity=AttestedIdentity("insecure", "one", Security.INSECURE))
        now = AttestedIdentity("insecure", "other", Security.INSECURE)
        judge(machine_facts(record=before, recorded_machine=machine_view(), identity=now))

    def test_of_this_machine_only_claimed_before(self) -> None:
        before = replace(record(), identity=AttestedIdentity("insecure", "team-a/prod/x", Security.INSECURE))
        judge(machine_facts(record=before, recorded_machine=machine_view()))

    def test_of_another_machine(self) -> None:
        facts = machine_facts(record=record(OTHER, "ek:2"), recorded_machine=OTHER)
        deny = refused(judge, facts)
        assert deny.reason == Reason.IDENTITY_CONFLICT
        assert "belongs to Machine team-a/other, not to Machine team-a/prod-md-0-x7k2p" in deny.message

    @pytest.mark.parametrize("reuse", ["AfterExpiry", "Immediate"])
    @pytest.mark.parametrize("now", [NOW, NOW + timedelta(days=30)])
    def test_of_another_machine_for_ever(self, reuse: str, now: Any) -> None:
        facts = machine_facts(
            record=record(OTHER, "ek:2"), recorded_machine=OTHER, now=now, policy=policy(nodeNameReuse=reuse)
        )
        assert refused(judge, facts).reason == Reason.IDENTITY_CONFLICT

    @pytest.mark.parametrize("reuse", ["AfterExpiry", "Immediate"])
    def test_of_another_machine_that_is_going(self, reuse: str) -> None:
        going = replace(OTHER, deleting=True)
        facts = machine_facts(record=record(OTHER, "ek:2"), recorded_machine=going, policy=policy(nodeNameReuse=reuse))
        defer = deferred(judge, facts)
        assert defer.reason == Reason.NODE_NAME_BLOCKED
        assert "being deleted" in defer.message
        assert defer.retry_after == LOOK_AGAIN
        assert defer.waits_for == (OTHER.provider_id,)

    @pytest.mark.parametrize("gone", [MachineGone(), machine_view(name="other", provider_id="aws:///new")])
    def test_of_a_machine_that_is_gone_blocks_until_expiry(self, gone: Any) -> None:
        facts = machine_facts(record=record(OTHER, "ek:2"), recorded_machine=gone)
        defer = deferred(judge, facts)
        assert defer.reason == Reason.NODE_NAME_BLOCKED
        assert "2026-03-08 12:10 UTC" in defer.message
        assert defer.retry_after == LOOK_AGAIN
        assert defer.waits_for == (OTHER.provider_id,)
        free = record().held_until
        nearly = replace(facts, now=free - timedelta(seconds=1))
        assert deferred(judge, nearly).retry_after == timedelta(seconds=1)
        judge(replace(facts, now=free))
        judge(replace(facts, policy=policy(nodeNameReuse="Immediate")))

    def test_of_an_instance_that_may_be_proven_gone(self) -> None:
        """The attestor is asked after all other checks; without its proof, the last check of all defers."""
        facts = machine_facts(
            record=record(OTHER, "ek:2"),
            recorded_machine=MachineGone(),
            policy=policy(nodeNameReuse="WhenFormerInstanceIsGone"),
        )
        judge(facts)
        assert instance_to_prove_gone(facts) == attested_identity("ek:2")
        assert deferred(former_identity_has_run_out, facts).reason == Reason.NODE_NAME_BLOCKED
        former_identity_has_run_out(require_proven_gone(facts, InstanceGone()))
        for answer in (InstanceExists("it is running"), TerminationNotProvable("the cloud does not answer")):
            with pytest.raises(Deferred, match=answer.message) as caught:
                require_proven_gone(facts, answer)
            assert caught.value.defer.reason == Reason.NODE_NAME_BLOCKED
            assert caught.value.defer.retry_after == timedelta(seconds=30)

    @pytest.mark.parametrize(
        "changes",
        [
            {"policy": policy(nodeNameReuse="AfterExpiry")},
            {"policy": policy(nodeNameReuse="Immediate")},
            {"record": NoRecord()},
            {"record": record()},
            {"now": record().held_until},
            {"record": replace(record(OTHER), identity=AttestedIdentity("insecure", "x", Security.INSECURE))},
        ],
        ids=["after-expiry", "immediate", "no-record", "own", "expired", "asserted"],
    )
    def test_nothing_to_prove(self, changes: dict[str, Any]) -> None:
        facts = machine_facts(
            record=record(OTHER, "ek:2"),
            recorded_machine=MachineGone(),
            policy=policy(nodeNameReuse="WhenFormerInstanceIsGone"),
        )
        assert isinstance(instance_to_prove_gone(replace(facts, **changes)), NothingToProve)

    def test_of_an_asserted_identity_blocks_until_expiry(self) -> None:
        asserted = replace(record(OTHER), identity=AttestedIdentity("insecure", "x", Security.INSECURE))
        facts = machine_facts(
            record=asserted,
            recorded_machine=MachineGone(),
            policy=policy(nodeNameReuse="WhenFormerInstanceIsGone"),
        )
        assert deferred(judge, facts).reason == Reason.NODE_NAME_BLOCKED

    @pytest.mark.parametrize(
        "other",
        [
            record(machine_view(cluster=ClusterKey("team-a", "other"))),
            record(machine_view(cluster=ClusterKey("team-b", "prod"))),
            record(node_name="other"),
        ],
    )
    def test_that_is_not_this_nodes(self, other: Any) -> None:
        defer = deferred(judge, machine_facts(record=other, now=NOW + timedelta(days=30)))
        assert defer.reason == Reason.NODE_NAME_BLOCKED
        assert defer.retry_after == LOOK_AGAIN

    def test_the_identity_of_another_attestor_is_another(self) -> None:
        insecure = replace(attested_identity(), provider="insecure")
        facts = machine_facts(record=record(OTHER), recorded_machine=OTHER, identity=insecure)
        assert refused(judge, facts).reason == Reason.IDENTITY_CONFLICT


def test_the_cluster_of_the_tests_is_the_machines() -> None:
    assert machine_view().cluster == CLUSTER
