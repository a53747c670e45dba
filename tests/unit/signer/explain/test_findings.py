from __future__ import annotations

import pytest

from signer.explain.findings import Finding, Findings, Outcome
from signer.kube.errors import Cause, Unreachable
from signer.model.decision import Deferred, Refused
from signer.rules.checks import BUILTIN_PLAN, CLUSTER_CHECKS, REQUEST_CHECKS, REQUEST_PLAN, run_checks
from signer.rules.comparison import Comparison
from signer.rules.plan import Check, Step
from tests.unit.signer.builders import cluster_view, machine_facts, request_facts

STEPS = {one.name: one for one in REQUEST_PLAN.listed() if isinstance(one, Step)}


def named(findings: tuple[Finding, ...]) -> dict[str, Finding]:
    return {one.name: one for one in findings}


def test_nothing_was_run() -> None:
    findings = Findings().in_order(builtin=False)
    assert {one.outcome for one in findings} == {Outcome.NOT_REACHED}
    assert len(findings) == len(REQUEST_PLAN.listed()) - 1  # what has its approval already is a line where it applies
    assert [one.number for one in findings if one.number] == list(range(1, 38))
    builtin = Findings().in_order(builtin=True)
    assert len(builtin) == len(BUILTIN_PLAN.listed())
    assert [one.number for one in builtin if one.number] == list(range(1, 28))


def test_checks_that_pass_and_the_one_that_does_not() -> None:
    trace = Findings()
    with pytest.raises(Deferred):
        run_checks(CLUSTER_CHECKS, request_facts(cluster=cluster_view(paused=True)), trace)
    found = named(trace.in_order(builtin=False))
    assert found["facts_belong_together"].outcome is Outcome.NOT_REACHED
    assert found["cluster_is_not_paused"].outcome is Outcome.STOPPED
    assert found["cluster_is_not_paused"].reason == "ClusterPaused"
    assert found["cluster_is_not_paused"].message == "Cluster team-a/prod is paused"
    assert found["cluster_is_not_paused"].comparison == Comparison("paused", "not paused")
    assert found["cluster_is_not_moving"].outcome is Outcome.NOT_REACHED


def test_of_what_is_run_twice_the_last_counts() -> None:
    trace = Findings()
    with pytest.raises(Deferred):
        run_checks(CLUSTER_CHECKS, request_facts(cluster=cluster_view(paused=True)), trace)
    run_checks((*CLUSTER_CHECKS, *REQUEST_CHECKS), request_facts(), trace)
    assert all(one.outcome is not Outcome.STOPPED for one in trace.in_order(builtin=False))


@pytest.mark.parametrize(
    ("error", "reason", "message"),
    [
        (Refused("Mine", "why"), "Mine", "why"),
        (Deferred("Mine", "why"), "Mine", "why"),
        (Unreachable("away", cause=Cause.TIMEOUT), "ManagementClusterUnreachable", "Unreachable: away"),
        (KeyError("secret"), "InternalError", "unexpected KeyError"),
    ],
)
def test_a_step_that_an_exception_ends(error: Exception, reason: str, message: str) -> None:
    trace = Findings()

    def fail() -> None:
        with trace.step(STEPS["match"]) as note:
            note(lambda: Comparison("found", "expected"))
            raise error

    with pytest.raises(type(error)):
        fail()
    step = named(trace.in_order(builtin=False))["match"]
    assert (step.outcome, step.reason, step.message) == (Outcome.STOPPED, reason, message)
    assert step.comparison == Comparison("found", "expected")


def test_a_comparison_that_fails_hides_nothing() -> None:
    def fail(facts: object) -> Comparison:
        raise ValueError("secret")

    trace = Findings()
    check = Check(lambda facts: None, "says", fail)
    trace.passed(check, object())
    with trace.step(STEPS["token"]) as note:
        note(lambda: fail(None))
    step = named(trace.in_order(builtin=False))["token"]
    assert (step.outcome, step.comparison.found) == (Outcome.PASSED, "cannot be shown: ValueError")


def test_what_the_machine_was_judged_by_is_kept() -> None:
    trace = Findings()
    facts = machine_facts()
    trace.passed(Check(lambda facts: None, "says"), facts)
    assert trace.facts == [facts]
