from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason
from signer.rules import checks, shape
from signer.rules.checks import (
    BUILTIN_REQUEST_CHECKS,
    BUILTIN_SEQUENCE,
    BUILTIN_SERVING_CHECKS,
    IDENTITY_CHECKS,
    MACHINE_CHECKS,
    REQUEST_CHECKS,
    SEQUENCE,
    Check,
    run_checks,
)
from signer.rules.trace import SILENCE, Step, Trace
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


def names(listed: tuple[Check, ...]) -> list[str]:  # type: ignore[type-arg]
    return [check.run.__name__ for check in listed]


def test_the_lists() -> None:
    """Reviewed, together with the order: whoever takes a check out takes it out here too."""
    assert names(REQUEST_CHECKS) == [
        "facts_belong_together",
        "cluster_is_not_paused",
        "cluster_is_not_deleting",
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
        "evidence_names_this_cluster",
        "self_signature_verifies",
    ]
    assert names(IDENTITY_CHECKS) == ["security_is_declared", "binding_is_this_requests", "provider_id_is_proven"]
    assert names(MACHINE_CHECKS) == [
        "machine_is_of_this_cluster",
        "machine_is_not_deleting",
        "machine_is_not_paused",
        "machine_has_bootstrap_data",
        "node_name_is_the_machines",
        "node_ref_agrees",
        "node_name_is_free",
        "node_name_is_nobody_elses",
        "machine_has_one_node_name",
        "request_is_not_superseded",
        "credential_is_attested",
        "alternative_names_are_the_machines",
    ]
    assert names(BUILTIN_REQUEST_CHECKS) == [
        "cluster_is_not_paused",
        "cluster_is_not_deleting",
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
        "machine_is_not_deleting",
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


def test_the_numbers_in_the_overview() -> None:
    assert checks.__doc__ is not None
    sizes = [len(listed) for listed in (REQUEST_CHECKS, IDENTITY_CHECKS, MACHINE_CHECKS)]
    first = 1
    for size in sizes:
        assert f"\n{first}-{first + size - 1} " in checks.__doc__
        first += size


def test_every_check_says_what_it_checks() -> None:
    for lists in ((REQUEST_CHECKS, IDENTITY_CHECKS, MACHINE_CHECKS), (BUILTIN_REQUEST_CHECKS, BUILTIN_SERVING_CHECKS)):
        said = [check.says for listed in lists for check in listed]
        assert all(said)
        assert len(set(said)) == len(said)


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
    judge = all_of(REQUEST_CHECKS)
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
    """Reviewed, as the lists of checks are: what people read of it must not lack a step."""
    assert (
        *(Step.READ, Step.POLICY, Step.ATTESTOR, Step.APPROVED_BEFORE, Step.AUTHORITY),
        *REQUEST_CHECKS,
        *(Step.CLAIM, Step.ATTEST),
        *IDENTITY_CHECKS,
        Step.MATCH,
        *MACHINE_CHECKS,
        *(Step.TOKEN, Step.RESERVE, Step.JOURNAL),
    ) == SEQUENCE
    assert (
        *(Step.READ, Step.POLICY),
        *BUILTIN_REQUEST_CHECKS,
        Step.RECORD,
        *BUILTIN_SERVING_CHECKS,
        Step.BUILTIN_JOURNAL,
    ) == BUILTIN_SEQUENCE


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
