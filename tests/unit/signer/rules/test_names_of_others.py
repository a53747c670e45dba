"""A name without a record may be a running node's; one Machine does not collect names."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from signer.model.cluster import MachineView
from signer.model.reasons import Reason
from signer.model.record import HELD_AFTER_END, AttestedNode
from signer.rules.checks import MACHINE_CHECKS
from signer.rules.machine import MachineFacts, MachineGone
from tests.unit.signer.builders import NODE, NOW, attested_identity, machine_facts, machine_view, policy, record
from tests.unit.signer.outcomes import all_of, deferred

judge = all_of(MACHINE_CHECKS)
OTHER: MachineView = machine_view(name="control-plane-1", provider_id="aws:///eu-west-1a/i-other")
FORMER: AttestedNode = replace(record(), node_name="former")
RUN_OUT = NOW - HELD_AFTER_END


def facts(**changes: object) -> MachineFacts:
    return replace(machine_facts(), **changes)  # type: ignore[arg-type]


class TestNobodyElses:
    def test_a_running_node_that_was_never_attested_keeps_its_name(self) -> None:
        defer = deferred(judge, facts(others_called_so=(OTHER,)))
        assert defer.reason == Reason.NODE_NAME_BLOCKED
        assert "control-plane-1" in defer.message
        assert defer.waits_for == (OTHER.provider_id,)

    def test_one_without_a_provider_id(self) -> None:
        assert deferred(judge, facts(others_called_so=(replace(OTHER, provider_id=""),))).waits_for == ()

    def test_who_has_the_name_by_attestation_keeps_it(self) -> None:
        """Otherwise a tenant, or a machine that reports a false name, could end renewals."""
        judge(facts(others_called_so=(OTHER,), record=record(), recorded_machine=machine_view()))

    def test_the_record_of_another_identity_is_no_claim(self) -> None:
        held = facts(others_called_so=(OTHER,), record=record(identity="ek:2"), recorded_machine=machine_view())
        assert deferred(judge, held).reason == Reason.NODE_NAME_BLOCKED

    def test_a_running_node_is_not_kept_out_by_who_reports_its_name(self) -> None:
        running = machine_view(node_ref=NODE)
        judge(facts(others_called_so=(OTHER,), machine=running))
        both = (replace(OTHER, node_ref=NODE),)
        assert deferred(judge, facts(others_called_so=both, machine=running)).reason == Reason.NODE_NAME_BLOCKED


class TestOneNodeName:
    def test_a_second_name(self) -> None:
        defer = deferred(judge, facts(other_names=(FORMER,)))
        assert defer.reason == Reason.NODE_NAME_BLOCKED
        assert "is node former" in defer.message
        assert defer.waits_for == ("system:node:former",)
        assert defer.retry_after == timedelta(minutes=5)

    @pytest.mark.parametrize(
        "allowed",
        [
            pytest.param({"other_names": (record(),)}, id="its own record"),
            pytest.param({"other_names": (replace(FORMER, last_not_after=RUN_OUT),)}, id="run out"),
            pytest.param(
                {"other_names": (FORMER,), "record": record(), "recorded_machine": machine_view()},
                id="recorded already",
            ),
            pytest.param({"other_names": (FORMER,), "policy": policy(nodeNameReuse="Immediate")}, id="by the policy"),
        ],
    )
    def test_what_is_no_second_name(self, allowed: dict[str, object]) -> None:
        judge(facts(**allowed))

    @pytest.mark.parametrize(
        "held", [record(OTHER), record(last_not_after=RUN_OUT)], ids=["as another Machine", "before, and it ran out"]
    )
    def test_one_that_it_had_itself(self, held: AttestedNode) -> None:
        recorded = MachineGone() if held.machine.name == OTHER.name else machine_view()
        defer = deferred(judge, facts(other_names=(FORMER, held), record=held, recorded_machine=recorded))
        assert defer.reason == Reason.NODE_NAME_BLOCKED
        assert "is node former" in defer.message

    def test_just_before_it_runs_out(self) -> None:
        defer = deferred(judge, facts(other_names=(replace(FORMER, last_not_after=RUN_OUT + timedelta(seconds=7)),)))
        assert defer.retry_after == timedelta(seconds=7)

    def test_another_identity_does_not_make_it_its_name(self) -> None:
        held = facts(
            other_names=(FORMER,),
            record=record(identity="ek:2"),
            recorded_machine=machine_view(),
            identity=attested_identity(),
        )
        assert deferred(judge, held).reason == Reason.NODE_NAME_BLOCKED
        assert NODE not in FORMER.node_name
