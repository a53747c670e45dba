from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason
from signer.rules import shape
from signer.rules.checks import (
    BUILTIN_PLAN,
    BUILTIN_REQUEST_CHECKS,
    BUILTIN_SERVING_CHECKS,
    CLUSTER_CHECKS,
    IDENTITY_CHECKS,
    MACHINE_CHECKS,
    REQUEST_CHECKS,
    REQUEST_PLAN,
    RESERVED_CHECKS,
    STANDING_CHECKS,
    Check,
    run_checks,
)
from signer.rules.plan import SILENCE, CheckGroup, Plan, Step, Trace
from signer.rules.request import RequestFacts
from tests.unit.signer.builders import (
    blocks,
    cluster_view,
    der_request,
    machine_facts,
    machine_view,
    manifest,
    pkcs10,
    policy,
    request_facts,
    sequence,
    signing_request,
)
from tests.unit.signer.outcomes import all_of, deferred, refused

ROOT = Path(__file__).parents[4]


def names(listed: tuple[Check, ...]) -> list[str]:  # type: ignore[type-arg]
    return [check.run.__name__ for check in listed]


def test_the_lists() -> None:
    """Reviewed, together with the order: whoever takes a check out takes it out here too."""
    assert names(CLUSTER_CHECKS) == ["cluster_is_not_paused", "cluster_is_not_moving"]
    assert names(REQUEST_CHECKS) == [
        "facts_belong_together",
        "requester_may_ask",
        "provider_is_the_signers",
        "attestor_is_authorized",
        "attestor_supports_the_purpose",
        "version_is_supported",
        "subject_is_a_node",
        "requester_is_the_node",
        "attributes_are_known",
        "extensions_are_harmless",
        "alternative_names_fit_the_purpose",
        "usages_fit_the_purpose",
        "key_is_acceptable",
        "provider_id_is_well_formed",
        "certificate_authority_is_not_shared",
        "evidence_names_this_cluster",
        "self_signature_verifies",
    ]
    assert names(IDENTITY_CHECKS) == ["security_is_declared", "binding_is_this_requests", "provider_id_is_proven"]
    assert names(MACHINE_CHECKS) == [
        "machine_is_of_this_cluster",
        "attestor_is_accepted_for_the_role",
        "cluster_admits_the_request",
        "machine_admits_the_request",
        "machine_is_not_paused",
        "machine_has_bootstrap_data",
        "node_name_is_the_machines",
        "node_ref_agrees",
        "node_name_is_free",
        "node_name_is_no_other_machines",
        "machine_has_one_node_name",
        "request_is_not_superseded",
        "credential_is_attested",
        "alternative_names_are_the_machines",
    ]
    assert names(RESERVED_CHECKS) == ["former_identity_has_run_out"]
    assert names(BUILTIN_REQUEST_CHECKS) == [
        "requester_may_ask",
        "subject_is_a_node",
        "requester_is_the_node",
        "attributes_are_known",
        "extensions_are_harmless",
        "alternative_names_fit_the_purpose",
        "usages_fit_the_purpose",
        "key_is_acceptable",
        "self_signature_verifies",
    ]
    assert names(BUILTIN_SERVING_CHECKS) == [
        "record_is_this_nodes",
        "attestation_was_secure",
        "attestor_is_still_authorized",
        "recorded_attestor_is_accepted_for_the_role",
        "cluster_admits_the_request",
        "machine_admits_the_request",
        "machine_is_not_paused",
        "node_ref_agrees",
        "machine_is_the_attested_one",
        "reservation_stands",
        "client_certificate_is_valid",
        "no_former_credential_is_valid",
        "posted_since_attested",
        "credential_is_attested",
        "alternative_names_are_the_machines",
    ]


def test_the_stages() -> None:
    """Documents, ``explain`` and the audit log use these names."""
    assert [stage.name for stage in REQUEST_PLAN.stages] == [
        "policy",
        "cluster",
        "clocks",
        "records_listed",
        "attestor",
        "read",
        "approved_before",
        "authority",
        "request",
        "trusted",
        "claim",
        "attest",
        "identity",
        "unchanged",
        "match",
        "machine",
        "former_machine_gone",
        "token",
        "former_instance_gone",
        "reserve",
        "reserved",
        "journal",
    ]
    assert [stage.name for stage in BUILTIN_PLAN.stages] == [
        "policy",
        "cluster",
        "clocks",
        "read",
        "request",
        "record",
        "serving",
        "standing",
        "builtin_journal",
    ]


def test_the_numbers() -> None:
    """The checks alone are counted, in the order in which they run."""
    for plan, last in ((REQUEST_PLAN, 37), (BUILTIN_PLAN, 27)):
        numbered = plan.numbered()
        assert [one for _, one in numbered] == list(plan.listed())
        assert [number for number, one in numbered if isinstance(one, Check)] == list(range(1, last + 1))
        assert {number for number, one in numbered if isinstance(one, Step)} == {0}


@pytest.mark.parametrize("plan", [REQUEST_PLAN, BUILTIN_PLAN], ids=["ours", "built-in"])
def test_every_check_and_step_says_what_it_checks(plan: Plan[Any]) -> None:
    listed = plan.listed()
    assert all(one.says for one in listed)
    for each in ("says", "name"):
        assert len({getattr(one, each) for one in listed}) == len(listed)
    names_of_stages = [stage.name for stage in plan.stages]
    assert len(set(names_of_stages)) == len(names_of_stages)
    assert {plan.again_from, *(one.again_from or one.name for one in groups(plan))} <= set(names_of_stages)


def groups(plan: Plan[Any]) -> list[CheckGroup[Any]]:
    return [stage for stage in plan.stages if isinstance(stage, CheckGroup)]


class Stop(Exception):
    pass


def test_the_first_that_does_not_pass_ends_it() -> None:
    seen: list[str] = []

    def stop(facts: str) -> None:
        seen.append(f"stop {facts}")
        raise Stop

    run_checks([], "x")
    with pytest.raises(Stop):
        run_checks([Check(seen.append, "a"), Check(stop, "b"), Check(seen.append, "c")], "facts")
    assert seen == ["facts", "stop facts"]


def test_a_request_that_is_wrong_everywhere_is_told_the_first() -> None:
    """Each mend uncovers the next reason, in the order of the list."""
    judge: Callable[[RequestFacts], None] = all_of((*CLUSTER_CHECKS, *REQUEST_CHECKS))
    wrong_in_itself = pkcs10(subject=sequence(), extensions=[], hash_name="sha1")
    facts = request_facts(
        signing_request(manifest(blocks(wrong_in_itself, "aws"), requester=("eve", ()), usages=())),
        cluster=cluster_view(paused=True),
        policy=policy(authorizedAttestors=[]),
        ca_cert_hashes=frozenset({"sha256:" + "00" * 32}),
    )
    assert deferred(judge, facts).reason == Reason.CLUSTER_PAUSED
    facts = replace(facts, cluster=cluster_view())
    assert refused(judge, facts).reason == Reason.REQUESTER_NOT_ALLOWED
    facts = replace(facts, request=signing_request(manifest(blocks(wrong_in_itself, "aws"), usages=())))
    assert refused(judge, facts).reason == Reason.PROVIDER_MISMATCH
    facts = replace(facts, request=signing_request(manifest(blocks(wrong_in_itself), usages=())))
    assert refused(judge, facts).reason == Reason.ATTESTOR_NOT_AUTHORIZED
    facts = replace(facts, policy=policy())
    assert refused(judge, facts).reason == Reason.INVALID_SUBJECT
    facts = replace(
        facts, request=signing_request(manifest(blocks(pkcs10(extensions=[], hash_name="sha1")), usages=()))
    )
    assert refused(judge, facts).reason == Reason.INVALID_USAGES
    facts = replace(facts, request=der_request(pkcs10(extensions=[], hash_name="sha1")))
    assert refused(judge, facts).reason == Reason.INVALID_PROVIDER_ID
    facts = replace(facts, request=der_request(pkcs10(hash_name="sha1")))
    assert refused(judge, facts).reason == Reason.CLUSTER_MISMATCH
    facts = replace(facts, ca_cert_hashes=request_facts().ca_cert_hashes)
    assert refused(judge, facts).reason == Reason.INVALID_SIGNATURE
    judge(replace(facts, request=der_request(pkcs10())))


def test_the_signature_is_verified_after_the_key_was_judged() -> None:
    """A key of 16,384 bits costs more to verify with than every other check together."""
    listed = [check.run for check in REQUEST_CHECKS]
    assert listed.index(shape.key_is_acceptable) < listed.index(shape.self_signature_verifies)
    assert listed[-1] is shape.self_signature_verifies


def test_a_machine_on_its_way_out_is_denied_before_anything_is_deferred() -> None:
    facts = machine_facts(machine=machine_view(deleting=True, paused=True, bootstrap_ready=False, node_ref="other"))
    with pytest.raises(Refused, match="MachineDeleting"):
        run_checks(MACHINE_CHECKS, facts)
    facts = machine_facts(machine=machine_view(paused=True, bootstrap_ready=False), node_name="other")
    with pytest.raises(Deferred, match="MachinePaused"):
        run_checks(MACHINE_CHECKS, facts)


def test_what_stands_between_a_request_and_its_answer() -> None:
    """Reviewed, as the lists of checks are: this is what runs, and nothing else refuses."""
    assert [stage.name if isinstance(stage, Step) else stage.checks for stage in REQUEST_PLAN.stages] == [
        "policy",
        CLUSTER_CHECKS,
        *("clocks", "records_listed", "attestor", "read", "approved_before", "authority"),
        REQUEST_CHECKS,
        *("trusted", "claim", "attest"),
        IDENTITY_CHECKS,
        *("unchanged", "match"),
        MACHINE_CHECKS,
        *("former_machine_gone", "token", "former_instance_gone", "reserve"),
        RESERVED_CHECKS,
        "journal",
    ]
    assert [stage.name if isinstance(stage, Step) else stage.checks for stage in BUILTIN_PLAN.stages] == [
        "policy",
        CLUSTER_CHECKS,
        "clocks",
        "read",
        BUILTIN_REQUEST_CHECKS,
        "record",
        BUILTIN_SERVING_CHECKS,
        STANDING_CHECKS,
        "builtin_journal",
    ]


def test_where_it_goes_on_after_a_recheck() -> None:
    """What a refusal rests upon is read anew from there; and after a lost write all that may have changed."""
    rechecked = {one.name: one.again_from or one.name for one in groups(REQUEST_PLAN) if one.recheck is not None}
    assert rechecked == {"request": "authority", "machine": "machine", "reserved": "reserved"}
    assert REQUEST_PLAN.again_from == "unchanged"
    rechecked = {one.name: one.again_from or one.name for one in groups(BUILTIN_PLAN) if one.recheck is not None}
    assert rechecked == {"serving": "record", "standing": "record"}
    assert BUILTIN_PLAN.again_from == "policy"


class Told(Trace):
    """What a trace is told."""

    step = SILENCE.step

    def __init__(self) -> None:
        self.all: list[tuple[str, str, object]] = []

    def passed(self, check: Check[Any], facts: object) -> None:
        self.all.append(("passed", check.says, facts))

    def stopped(self, check: Check[Any], facts: object, error: Refused | Deferred) -> None:
        self.all.append((type(error).__name__, check.says, facts))


@pytest.mark.parametrize("error", [Refused(Reason.INVALID_SUBJECT, "no"), Deferred(Reason.MACHINE_PAUSED, "later")])
def test_a_trace_is_told_of_each_check(error: Exception) -> None:
    def stop(facts: str) -> None:
        raise error

    told = Told()
    passes: Check[str] = Check(lambda facts: None, "passes")
    with pytest.raises(type(error)):
        run_checks([passes, Check(stop, "stops"), passes], "facts", told)
    assert told.all == [("passed", "passes", "facts"), (type(error).__name__, "stops", "facts")]


def test_nothing_but_the_driver_runs_checks() -> None:
    """Else something would run that is not listed."""
    product = [path for folder in ("signer", "attestors") for path in (ROOT / folder).rglob("*.py")]
    runs = {path.relative_to(ROOT).as_posix() for path in product if re.search(r"\brun_checks\(", path.read_text())}
    assert runs == {"signer/rules/plan.py"}
    walks = {path.relative_to(ROOT).as_posix() for path in product if re.search(r"\bwalk\(", path.read_text())}
    assert walks == {"signer/rules/plan.py", "signer/rules/checks.py"}
