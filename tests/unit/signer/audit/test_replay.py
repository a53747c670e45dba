"""One fact of a line changed, with a chain made anew: its decision does not follow any more."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import pytest

from attestors.registry import Registry
from attestors.wire.names import PROVIDER_ID_OID
from signer.audit.comparison import (
    _FROM_OUTSIDE,
    Comparison,
    Differs,
    Reproduced,
    ReproducedInPart,
    _fails_instead,
    _refused_by_reservations,
    compare,
)
from signer.audit.decision_inputs import DecisionInputs
from signer.audit.decision_line import DecisionLine, LoggedDecision, NoEntry, logged_request, read_decision_line
from signer.audit.replay import Replayed
from signer.audit.replay_attestors import ReplayAttestors
from signer.configuration import operator_settings
from signer.model.decision import ApproveOnly, Decision, Deferred
from signer.model.fields import format_time
from signer.rules.request import not_allowed
from tests.unit.signer.audit.test_consistency import Content, judged, logged
from tests.unit.signer.audit.test_standing import asking
from tests.unit.signer.builders import CLUSTER, builtin_serving_manifest, builtin_serving_request
from tests.unit.signer.controller.support import NOW
from tests.unit.signer.decision.builtin_serving_fixtures import World as BuiltinServingWorld

ZERO_HASH: Final = "sha256:" + "00" * 32
OTHER_TOKEN: Final = {
    "kind": "TracedTo",
    "owners": [{"namespace": "team-a", "kind": "Machine", "name": "other", "uid": ""}],
    "cause": "",
}
OTHER_VERSIONS: Final = {
    "provider": "keyed-mac",
    "security": "secure",
    "evidence_versions": ["v2"],
    "freshness": "timestamp",
}


def changed(content: Content, way: str, value: Any) -> Content:
    """With another value at that place, such as ``decision_inputs.matched.0.uid``."""
    *steps, last = (int(step) if step.isdigit() else step for step in way.split("."))
    inner: Any = content
    for step in steps:
        inner = inner[step]
    inner[last] = value
    return content


FACTS: Final[dict[str, tuple[Any, str]]] = {
    "decision_inputs.snapshot.cluster.paused": (True, "give Defer ClusterPaused"),
    "decision_inputs.snapshot.cluster.deleting": (True, "give Deny ClusterDeleting"),
    "decision_inputs.snapshot.policy.authorized_attestors": ([], "give Deny AttestorNotAuthorized"),
    "decision_inputs.snapshot.policy.client_duration": (
        "PT1H",
        "and by the policy it should be valid until 2026-11-26T20:52:55Z",
    ),
    "decision_inputs.snapshot.now": ("2026-11-26T19:54:20Z", "another name of the request or time of decision"),
    "decision_inputs.request.attestor": (OTHER_VERSIONS, "give Deny UnsupportedVersion"),
    "decision_inputs.request.operator_allows": (False, "give Deny AttestorNotAuthorized"),
    "decision_inputs.request.ca_cert_hashes": ([ZERO_HASH], "give Deny ClusterMismatch"),
    "decision_inputs.request.signing_ca_cert_hash": (ZERO_HASH, "of another CA than the one that signs"),
    "decision_inputs.request.ca_not_after": (
        "2026-11-28T08:00:00Z",
        "by the policy it should be valid until 2026-11-28T08:00:00Z",
    ),
    "decision_inputs.claimed.0.provider_id": ("example:///other", "logged for provider ID example:///worker-1"),
    "decision_inputs.matched.0.provider_id": ("example:///other", "logged for provider ID example:///worker-1"),
    "decision_inputs.claimed": ([], "give Defer MachineNotFound"),
    "decision_inputs.matched": ([], "give Defer MachineNotFound"),
    "decision_inputs.matched.0.uid": ("another", "give Defer ReservationPending"),
    "decision_inputs.matched.0.deleting": (True, "give Deny MachineDeleting"),
    "decision_inputs.matched.0.addresses.0.address": ("other", "give Deny NodeNameMismatch"),
    "decision_inputs.answer.answer.identity": ("keyed-mac:00", "the attestor answers VerifiedIdentity keyed-mac:0e00"),
    "decision_inputs.answer.answer.kind": ("Denied", "and Denied keyed-mac:0e00"),
    "decision_inputs.answer.answer.binding": ("00" * 32, "the attestor answers VerifiedIdentity"),
    "decision_inputs.token": (OTHER_TOKEN, "give Deny BootstrapTokenMismatch"),
    "decision_inputs.reserved": (False, "no decision: the decision inputs end before: the reservation"),
    "request.uid": ("other", "the journal entry is of another request"),
    "request.name": ("other", "another name of the request or time of decision"),
    "request.created": ("2026-11-26T19:52:54Z", "another requester or time of creation"),
    "request.conditions": (["Approved"], "the decision inputs end before: who approved it"),
    "request.spec.username": ("system:bootstrap:abcdef", "not the one whose digest the line has"),
    "request.spec.signerName": ("kubernetes.io/kube-apiserver-client", "the controller does not decide such a request"),
    "request.spec_digest": ("00" * 32, "not the one whose digest the line has"),
    "decision.reason": ("Asserted", "logged is Approve Asserted; the line's facts give Approve Attested"),
    "decision.node_name": ("other", "the decision is about node other, the request about worker-1"),
    "decision.certificate": ("x", "the certificate cannot be read"),
    "decision.entry.kind": ("kubelet-serving", "of another kind of certificate"),
    "decision.entry.evidence_ca_cert_hash": (ZERO_HASH, "names another CA than the evidence"),
    "decision.entry.csr_name": ("other", "another name of the request or time of decision"),
    "decision.entry.csr_uid": ("other", "the journal entry is of another request"),
    "decision.entry.spec_digest": ("00" * 32, "the journal entry is of another request"),
    "decision.entry.signer_name": ("cluster.x-k8s.io/kubelet-serving-keyed-mac", "of another key or signer"),
    "decision.entry.public_key_digest": ("00" * 32, "of another key or signer"),
    "decision.entry.requester": ("system:bootstrap:abcdef", "another requester or time of creation"),
    "decision.entry.created": ("2026-11-26T19:52:54Z", "another requester or time of creation"),
    "decision.entry.decided": ("2026-11-26T19:52:54Z", "another name of the request or time of decision"),
    "decision.entry.serial_number": (7, "serial number or validity of the certificate"),
    "decision.entry.not_before": ("2026-11-26T19:47:54Z", "serial number or validity of the certificate"),
    "decision.entry.not_after": ("2026-11-29T07:58:36Z", "serial number or validity of the certificate"),
    "decision.entry.ca_cert_hash": (ZERO_HASH, "of another CA than the one that signs"),
    "decision.entry.certificate_digest": ("00" * 32, "not the one of the journal entry"),
}


@pytest.mark.parametrize("way", FACTS)
def test_a_forged_fact_of_an_approval(way: str) -> None:
    value, words = FACTS[way]
    found = judged(changed(logged("Approve"), way, value))
    assert isinstance(found, Differs)
    assert words in found.why


STAGES: Final = {
    "snapshot": "the Cluster and its policy",
    "request": "the request checks",
    "claimed": "the claimed Machine",
    "claim": "the attestor's answer",
    "answer": "the attestor's answer",
    "matched": "the Machine",
    "machine": "the Machine's record",
    "token": "the bootstrap token",
}


@pytest.mark.parametrize("stage", STAGES)
def test_an_approval_without_one_of_its_stages(stage: str) -> None:
    found = judged(changed(logged("Approve"), f"decision_inputs.{stage}", {}))
    why = "logged is Approve Attested; the line's facts give no decision: the decision inputs end before: "
    assert found == Differs(why + STAGES[stage])


def decided(kind: str, reason: str, *, reserved: bool) -> Content:
    """A decision other than an approval, with the account of one."""
    content = changed(logged("Approve"), "decision_inputs.reserved", reserved)
    content["decision"].update(kind=kind, reason=reason, entry={}, certificate="", node_name="")
    return content


def forbidden(kind: str, reason: str, *, prefix: str = "", namespace: str = "team-a", went_on: bool = False) -> Content:
    """A request for an attestor that the operator does not allow; it ends before the attestor is loaded."""
    content = decided(kind, reason, reserved=False)
    if not went_on:
        content = changed(content, "decision_inputs.request", {})
    content["decision"]["message"] = prefix + not_allowed("keyed-mac", namespace)
    return content


def test_that_the_operator_does_not_allow_an_attestor_is_taken_from_the_line() -> None:
    taken = ReproducedInPart(("that the operator does not allow the attestor",))
    assert judged(forbidden("Deny", "AttestorNotAuthorized")) == taken
    approved = changed(forbidden("Fail", "ApprovedByOthers", prefix="approved. "), "request.conditions", ["Approved"])
    assert judged(approved) == taken


@pytest.mark.parametrize(
    "content",
    [
        forbidden("Deny", "AttestorNotAuthorized", namespace="another"),
        forbidden("Defer", "AttestorUnavailable", prefix="x"),
        forbidden("Deny", "ClusterMismatch"),
        changed(forbidden("Deny", "AttestorNotAuthorized"), "decision_inputs.snapshot.policy.authorized_attestors", []),
        forbidden("Deny", "AttestorNotAuthorized", went_on=True),
    ],
    ids=["another namespace", "waits", "another reason", "the policy says so first", "it went on"],
)
def test_what_else_is_not(content: Content) -> None:
    assert judged(content) != ReproducedInPart(("that the operator does not allow the attestor",))


FROM_OUTSIDE: Final = (
    "ReservationPending",
    "ManagementClusterUnreachable",
    "WorkloadClusterUnreachable",
    "CertificateAuthorityUnavailable",
    "ControllerKeyUnavailable",
    "AttestorUnavailable",
    "PolicyInvalid",
    "BootstrapTokenUntraceable",
    "IdentityConflict",
)


@pytest.mark.parametrize("reserved", [True, False])
@pytest.mark.parametrize("reason", FROM_OUTSIDE)
def test_what_others_make_wait_is_taken_from_the_line(reason: str, reserved: bool) -> None:
    found = judged(decided("Defer", reason, reserved=reserved))
    assert found == ReproducedInPart((f"the reason of the deferral, {reason}",))


def waits(content: Content) -> Content:
    """The same, and others made it wait."""
    content["decision"].update(kind="Defer", reason="ReservationPending", entry={}, certificate="", node_name="")
    return content


def test_others_may_make_wait_what_would_be_refused() -> None:
    """The refusal came after them. What has to wait for its own facts waits for those."""
    waited = ReproducedInPart(("the reason of the deferral, ReservationPending",))
    assert judged(waits(logged("Deny"))) == waited
    assert judged(waits(changed(logged("Approve"), "request.conditions", ["Approved"]))) == waited
    assert judged(waits(logged("Defer"))) == Differs(
        "logged is Defer ReservationPending; the line's facts give Defer MachineNotFound: "
        "no Machine has provider ID example:///worker-3 yet"
    )


@pytest.mark.parametrize("reason", ["MachineNotFound", "ClusterPaused", "Attested"])
def test_what_the_facts_say_is_not(reason: str) -> None:
    found = judged(decided("Defer", reason, reserved=True))
    assert found == Differs(f"logged is Defer {reason}; the line's facts give Approve Attested")


@pytest.mark.parametrize("reason", ["ReservationPending", "MachineNotFound"])
def test_a_denial_is_never_from_outside(reason: str) -> None:
    assert isinstance(judged(decided("Deny", reason, reserved=True)), Differs)
    assert isinstance(judged(decided("Deny", reason, reserved=False)), Differs)


def test_a_fault_is_taken_from_the_line() -> None:
    assert judged(decided("Defer", "InternalError", reserved=True)) == ReproducedInPart(("the internal error",))
    assert isinstance(judged(decided("Deny", "InternalError", reserved=False)), Differs)


@pytest.mark.parametrize(
    ("kind", "reason"), [("Deny", "IdentityConflict"), ("Fail", "IdentityConflict"), ("Fail", "ApprovedByOthers")]
)
def test_the_reservations_refusal_is_taken_from_the_line(kind: str, reason: str) -> None:
    """Whose the identity was is not in it; but the account ends there."""
    found = judged(decided(kind, reason, reserved=False))
    assert found == ReproducedInPart(("the reservations' refusal",))
    for content in (
        decided(kind, reason, reserved=True),
        changed(decided(kind, reason, reserved=False), "decision_inputs.token", {}),
        decided(kind, "NodeNameMismatch", reserved=False),
    ):
        assert isinstance(judged(content), Differs)


def test_nothing_is_denied_because_others_approved_it() -> None:
    assert isinstance(judged(decided("Deny", "ApprovedByOthers", reserved=False)), Differs)
    assert isinstance(judged(changed(logged("Deny"), "decision.reason", "ApprovedByOthers")), Differs)


def test_the_reservations_refuse_where_the_account_ends_and_nowhere_else() -> None:
    refused = LoggedDecision("Deny", "IdentityConflict", "", "", "", NoEntry(), "")
    assert _refused_by_reservations(refused, Replayed("", "", "the decision inputs end before: the reservation", ()))
    assert not _refused_by_reservations(refused, Replayed("Deny", "Other", "of the reservation", ()))


@pytest.mark.parametrize(("kind", "fails"), [("Deny", True), ("Challenge", True), ("Defer", False), ("Approve", False)])
def test_what_is_approved_already_fails_where_it_would_be_answered(kind: str, fails: bool) -> None:
    for reason in ("ApprovedByOthers", "Other"):
        failed = LoggedDecision("Fail", reason, "", "", "", NoEntry(), "")
        assert _fails_instead(failed, Replayed(kind, "Other", "", ())) is fails


def test_what_was_not_made_again_is_said_beside_what_others_made_wait() -> None:
    """Without the operator's settings nobody can make the attestor's answer again."""
    content = waits(logged("Approve"))
    found = asyncio.run(
        compare(read_decision_line(content), ReplayAttestors(Registry(), partial(operator_settings, {})))
    )
    assert isinstance(found, ReproducedInPart)
    assert [one.partition(":")[0] for one in found.taken] == [
        "the attestor's answer",
        "the reason of the deferral, ReservationPending",
    ]
    content = decided("Deny", "IdentityConflict", reserved=False)
    found = asyncio.run(
        compare(read_decision_line(content), ReplayAttestors(Registry(), partial(operator_settings, {})))
    )
    assert isinstance(found, ReproducedInPart)
    assert [one.partition(":")[0] for one in found.taken] == ["the attestor's answer", "the reservations' refusal"]


def test_an_attestor_that_exits_ends_no_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    """With exit code 0 it would say that all was verified."""

    async def exits(request: object) -> Any:
        raise SystemExit(0)

    monkeypatch.setattr(ReplayAttestors, "of", lambda self, provider, policy: SimpleNamespace(verify_client=exits))
    found = asyncio.run(
        compare(read_decision_line(logged("Approve")), ReplayAttestors(Registry(), partial(operator_settings, {})))
    )
    assert isinstance(found, ReproducedInPart)
    assert found.taken == ("the attestor's answer: attestor keyed-mac fails with SystemExit",)


def test_a_token_that_asks_for_nothing_known() -> None:
    content = changed(logged("Approve"), "decision_inputs.token.kind", "Other")
    assert judged(content) == Differs("asks is of an unknown kind")


@pytest.mark.parametrize("reason", ["NodeNameMismatch", "ApprovedByOthers"])
def test_what_others_approved_fails_instead_of_being_denied(reason: str) -> None:
    content = logged("Deny")
    assert content["decision"]["reason"] == "NodeNameMismatch"
    content["decision"].update(kind="Fail", reason=reason)
    assert judged(content) == Reproduced()
    content["decision"]["reason"] = "MachineDeleting"
    assert isinstance(judged(content), Differs)
    challenged = changed(logged("Defer"), "decision.kind", "Fail")
    assert isinstance(judged(challenged), Differs)


def refused_provider() -> Content:
    """Denied because the policy does not name the attestor."""
    content = decided("Deny", "AttestorNotAuthorized", reserved=False)
    reached = {"snapshot", "reserved"}
    content["decision_inputs"].update({name: {} for name in content["decision_inputs"] if name not in reached})
    return changed(content, "decision_inputs.snapshot.policy.authorized_attestors", [])


def judged_where_nothing_is_installed(content: Content) -> Comparison:
    return asyncio.run(
        compare(read_decision_line(content), ReplayAttestors(Registry([]), partial(operator_settings, {})))
    )


def test_an_attestor_with_a_dash_that_is_not_installed_here() -> None:
    content = refused_provider()
    assert content["request"]["spec"]["signerName"].endswith("-keyed-mac")
    assert judged_where_nothing_is_installed(content) == Reproduced()


@pytest.mark.parametrize("signer", ["example.org/other-keyed-mac", "cluster.x-k8s.io/kubelet-serving-", ""])
def test_a_signer_that_is_nobodys_attestor(signer: str) -> None:
    """However its name ends: no controller of ours decides about it."""
    found = judged_where_nothing_is_installed(changed(refused_provider(), "request.spec.signerName", signer))
    assert found == Differs("the controller does not decide such a request")


# The provider ID's extension


def test_a_request_is_read_again_under_the_oids_of_then() -> None:
    logged_line = logged("Approve")
    oid = logged_line["request"]["provider_id_oid"]
    assert oid == PROVIDER_ID_OID
    for looked_for in (f"1.2.3.4,{oid}", f"{oid},1.2.3.4"):
        assert isinstance(judged(changed(logged_line, "request.provider_id_oid", looked_for)), Reproduced)
    other = judged(changed(logged_line, "request.provider_id_oid", "1.2.3.4"))
    assert isinstance(other, Differs)
    assert "give Deny InvalidProviderID" in other.why


@pytest.mark.parametrize("text", ["", "x", "1.2.3.4,", "1.2.3.4,1.2.3.4", "2.5.29.17"])
def test_oids_that_no_controller_looks_under(text: str) -> None:
    found = judged(changed(logged("Approve"), "request.provider_id_oid", text))
    assert isinstance(found, Differs)
    assert found.why.startswith("the line has no valid OID of the provider ID: ")


# Built-in serving requests


@pytest.mark.parametrize("reason", sorted(_FROM_OUTSIDE))
async def test_a_builtin_serving_request_that_others_made_wait(reason: str) -> None:
    """As one whose record has no room for it."""
    world, decision_inputs, manifest = BuiltinServingWorld(), DecisionInputs(), builtin_serving_manifest()
    parsed = builtin_serving_request(manifest)
    assert isinstance(await world.builtin_serving.decide(parsed, decision_inputs), ApproveOnly)
    request = logged_request(manifest, parsed, Registry([]), (PROVIDER_ID_OID,))
    waited = LoggedDecision("Defer", reason, "", "", "", NoEntry(), "")
    line = DecisionLine(str(CLUSTER), NOW, request, decision_inputs.without_seals(), waited)
    found = await compare(read_decision_line(json.loads(line.encode())), asking(world.attestor))
    assert found == ReproducedInPart((f"the reason of the deferral, {reason}",))


@pytest.mark.parametrize(
    ("waited", "expected"),
    [(timedelta(0), ("ApproveOnly", "Attested")), (timedelta(days=1), ("Defer", "NodeNotAttested"))],
)
async def test_a_builtin_serving_request_is_judged_by_when_it_was_posted(
    waited: timedelta, expected: tuple[str, str]
) -> None:
    """And not by the clock of the decision alone."""
    world, decision_inputs, manifest = BuiltinServingWorld(), DecisionInputs(), builtin_serving_manifest()
    manifest["metadata"]["creationTimestamp"] = format_time(NOW - waited)
    parsed = builtin_serving_request(manifest)
    decision: Decision
    try:
        decision = await world.builtin_serving.decide(parsed, decision_inputs)
    except Deferred as error:
        decision = error.defer
    request = logged_request(manifest, parsed, Registry([]), (PROVIDER_ID_OID,))
    line = DecisionLine(str(CLUSTER), NOW, request, decision_inputs.without_seals(), LoggedDecision.of(decision))
    read = read_decision_line(json.loads(line.encode()))
    assert (read.decision.kind, read.decision.reason) == expected
    assert isinstance(await compare(read, asking(world.attestor)), Reproduced)
