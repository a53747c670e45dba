"""Each check says what it compared: both sides, printable and bounded, for what passes and for what does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from attestors.contract import AssertedIdentity, ChallengeIssued, Denied, Security, StillAllowed
from signer.model.attestor_roles import AnyOf, RequiredAttestors
from signer.model.authority_sharing import SharedAuthorities
from signer.model.bootstrap_token import NodeAsks, TokenAsks, TokenOwner, TracedTo, TracingOff, Untraceable
from signer.model.certificate_request import NoProviderID
from signer.model.record import AttestedIdentity, MachineKey
from signer.model.reservation import Pair
from signer.model.serving_facts import ServingFacts
from signer.model.signing_request import CertificateCredential
from signer.rules import step_comparisons
from signer.rules.builtin_serving import BuiltinRequestFacts, BuiltinServingFacts, PairState, StandingFacts
from signer.rules.checks import (
    BUILTIN_REQUEST_CHECKS,
    BUILTIN_SERVING_CHECKS,
    CLUSTER_CHECKS,
    IDENTITY_CHECKS,
    MACHINE_CHECKS,
    REQUEST_CHECKS,
    RESERVED_CHECKS,
    STANDING_CHECKS,
)
from signer.rules.comparison import MAXIMUM_SIDE_CHARACTERS, Comparison, listed
from signer.rules.machine import MachineGone, NoRecord
from signer.rules.machine_comparisons import recorded_machine
from signer.rules.machine_match import MatchFacts, NotConsidered, OtherLead
from signer.rules.plan import Check
from signer.rules.request import IdentityFacts
from tests.unit.signer import builders
from tests.unit.signer.builders import NODE, NOW, PROVIDER_ID

GCP_FOR_WORKERS = RequiredAttestors(workers=AnyOf(frozenset({"gcp"})))
HOSTILE = "evil\x1b[31m\nline\x00\u202e" * 100


def identity_facts(**changes: Any) -> IdentityFacts:
    facts = IdentityFacts(PROVIDER_ID, builders.request_binding(), builders.TPM, builders.verified())
    return replace(facts, **changes)


def builtin_facts(**changes: Any) -> BuiltinServingFacts:
    record = builders.record()
    given: dict[str, Any] = {
        "node_name": NODE,
        "dns_names": (NODE,),
        "ip_addresses": (),
        "credential": builders.machine_facts().credential,
        "created": NOW,
        "cluster": builders.cluster_view(),
        "policy": builders.policy(),
        "record": record,
        "machine": builders.machine_view(),
        "operator_allows": True,
        "pair": PairState.RESERVED,
        "conflicting_names": frozenset(),
        "serving": ServingFacts(),
        "now": NOW,
    }
    return BuiltinServingFacts(**given | changes)


LISTS: list[tuple[tuple[Check[Any], ...], Callable[[], Any]]] = [
    (CLUSTER_CHECKS, builders.request_facts),
    (REQUEST_CHECKS, builders.request_facts),
    (IDENTITY_CHECKS, identity_facts),
    (MACHINE_CHECKS, builders.machine_facts),
    (RESERVED_CHECKS, builders.machine_facts),
    (BUILTIN_REQUEST_CHECKS, lambda: BuiltinRequestFacts(builders.builtin_serving_request(), builders.cluster_view())),
    (BUILTIN_SERVING_CHECKS, builtin_facts),
    (STANDING_CHECKS, lambda: StandingFacts(builders.record(), "chip:1", StillAllowed())),
]
EVERY = [(check, facts) for checks, facts in LISTS for check in checks]


@pytest.mark.parametrize(("check", "facts"), EVERY, ids=[check.run.__name__ for check, _ in EVERY])
def test_what_passes_shows_both_sides(check: Check[Any], facts: Callable[[], Any]) -> None:
    check.run(facts())
    shown = check.compares(facts())
    for side in (shown.found, shown.expected):
        assert side
        assert side.isprintable()
        assert side.isascii()


def of_request(changes: dict[str, Any]) -> Any:
    """Facts of a request with another PKCS#10."""
    request = builders.signing_request()
    return builders.request_facts(replace(request, certificate_request=replace(request.certificate_request, **changes)))


def of_csr_header(**changes: Any) -> Any:
    request = builders.signing_request()
    return builders.request_facts(replace(request, header=replace(request.header, **changes)))


KEY = builders.signing_request().certificate_request.key
STOPPED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "facts_belong_together": (
        lambda: builders.request_facts(attestor=replace(builders.TPM, provider="aws")),
        "attestor aws",
        "kubelet-tpm",
    ),
    "cluster_is_not_paused": (
        lambda: builders.request_facts(cluster=builders.cluster_view(paused=True)),
        "paused",
        "not paused",
    ),
    "cluster_is_not_moving": (
        lambda: builders.request_facts(cluster=builders.cluster_view(deleting=True, deleting_for_move=True)),
        "being moved",
        "not being moved",
    ),
    "requester_may_ask": (
        lambda: of_csr_header(username="eve", groups=frozenset({"g"})),
        "eve in g",
        "system:bootstrap",
    ),
    "provider_is_the_signers": (
        lambda: builders.request_facts(replace(builders.signing_request(), provider="aws")),
        "aws",
        "tpm",
    ),
    "attestor_is_authorized": (
        lambda: builders.request_facts(policy=builders.policy(authorizedAttestors=[])),
        "tpm (secure)",
        "one of the policy's: none",
    ),
    "attestor_supports_the_purpose": (
        lambda: replace(of_csr_header(username="system:node:n"), attestor=builders.INSECURE),
        "client certificate for a node",
        "first join",
    ),
    "version_is_supported": (
        lambda: builders.request_facts(attestor=replace(builders.TPM, evidence_versions=("v7",))),
        "v1",
        "one of: v7",
    ),
    "subject_is_a_node": (lambda: of_request({"subject": ()}), "empty", "CN=system:node:<node name>"),
    "requester_is_the_node": (
        lambda: of_csr_header(username="system:node:other"),
        f"system:node:other requests system:node:{NODE}",
        f"system:node:{NODE}",
    ),
    "attributes_are_known": (lambda: of_request({"attributes": ("1.2.3",)}), "1.2.3", "only 1.2.840.113549.1.9.14"),
    "extensions_are_harmless": (
        lambda: of_request({"asks_to_be_authority": True}),
        "requests a CA certificate",
        "no CA extension",
    ),
    "alternative_names_fit_the_purpose": (lambda: of_request({"other_name_kinds": ("URI",)}), "a URI", "none"),
    "usages_fit_the_purpose": (lambda: of_csr_header(usages=("any",)), "any", "client auth, digital signature"),
    "key_is_acceptable": (lambda: of_request({"key": replace(KEY, curve="secp256k1")}), "secp256k1", "P-256"),
    "provider_id_is_well_formed": (
        lambda: of_request({"provider_id": NoProviderID(b"\x0c\x01\xff", "not UTF-8")}),
        "3 bytes: 0c01ff",
        "printable ASCII",
    ),
    "certificate_authority_is_not_shared": (
        lambda: builders.request_facts(shared=SharedAuthorities(frozenset({builders.CA_CERT_HASH}))),
        builders.CA_CERT_HASH,
        "sharedBy",
    ),
    "evidence_names_this_cluster": (
        lambda: builders.request_facts(ca_cert_hashes=frozenset({"sha256:" + "00" * 32})),
        builders.CA_CERT_HASH,
        "00" * 32,
    ),
    "self_signature_verifies": (lambda: of_request({"signature_hash": "sha1"}), "sha1", "SHA-256"),
    "security_is_declared": (
        lambda: identity_facts(identity=AssertedIdentity(PROVIDER_ID, "x")),
        "asserted, not proven",
        "attestor tpm is secure",
    ),
    "binding_is_this_requests": (
        lambda: identity_facts(binding=builders.request_binding(2)),
        builders.request_binding().value.hex(),
        builders.request_binding(2).value.hex(),
    ),
    "provider_id_is_proven": (
        lambda: identity_facts(claimed_provider_id="aws:///x"),
        f"proven: {PROVIDER_ID}",
        "claimed: aws:///x",
    ),
    "cluster_admits_the_request": (
        lambda: builders.machine_facts(cluster=builders.cluster_view(deleting=True)),
        "is being deleted; the request is a first join",
        "not being deleted, or a renewal (deletingDuration: 1 day, 0:00:00)",
    ),
    "machine_admits_the_request": (
        lambda: builders.machine_facts(
            machine=builders.machine_view(deleting=True),
            policy=builders.policy(certificates={"deletingDuration": "0s"}),
        ),
        "is being deleted; the request is a first join",
        "not being deleted (deletingDuration: 0s)",
    ),
    "attestor_is_accepted_for_the_role": (
        lambda: builders.machine_facts(policy=replace(builders.policy(), required_attestors=GCP_FOR_WORKERS)),
        "tpm",
        "gcp",
    ),
    "machine_is_not_paused": (
        lambda: builders.machine_facts(machine=builders.machine_view(paused=True)),
        "is paused",
        "not paused",
    ),
    "machine_has_bootstrap_data": (
        lambda: builders.machine_facts(machine=builders.machine_view(bootstrap_ready=False)),
        "not yet",
        "BootstrapConfigReady",
    ),
    "node_name_is_the_machines": (
        lambda: builders.machine_facts(node_name="other"),
        "other",
        f"{NODE} (nodeNames",
    ),
    "node_ref_agrees": (
        lambda: builders.machine_facts(machine=builders.machine_view(node_ref="other")),
        "nodeRef: other",
        NODE,
    ),
    "node_name_is_free": (
        lambda: builders.machine_facts(record=builders.record(identity="ek:2")),
        "as ek:2, until",
        "as ek:1",
    ),
    "node_name_is_no_other_machines": (
        lambda: builders.machine_facts(others_called_so=(builders.machine_view(name="twin"),)),
        "twin",
        "none",
    ),
    "machine_has_one_node_name": (
        lambda: builders.machine_facts(other_names=(builders.record(node_name="elsewhere"),)),
        "elsewhere until",
        "none that is still valid",
    ),
    "former_identity_has_run_out": (
        lambda: builders.machine_facts(record=builders.record(identity="ek:2")),
        "as ek:2, until",
        "nothing that is valid, or ek:1",
    ),
    "request_is_not_superseded": (
        lambda: builders.machine_facts(record=builders.record(), created=NOW - timedelta(hours=1)),
        "csr-1",
        "none newer than",
    ),
    "record_is_this_nodes": (lambda: builtin_facts(node_name="other"), f"node {NODE}", "node other"),
    "attestation_was_secure": (
        lambda: builtin_facts(
            record=replace(builders.record(), identity=AttestedIdentity("insecure", "x", Security.INSECURE))
        ),
        "insecure (insecure)",
        "secure",
    ),
    "attestor_is_still_authorized": (
        lambda: builtin_facts(operator_allows=False),
        "tpm",
        "this controller does not allow it here",
    ),
    "recorded_attestor_is_accepted_for_the_role": (
        lambda: builtin_facts(policy=replace(builders.policy(), required_attestors=GCP_FOR_WORKERS)),
        "tpm",
        "gcp",
    ),
    "machine_is_the_attested_one": (
        lambda: builtin_facts(machine=builders.machine_view(uid="m-2")),
        "UID m-2; the Cluster was created at 1970-01-01",
        "UID m-1 since 2026-03-01 12:00:00",
    ),
    "reservation_stands": (lambda: builtin_facts(pair=PairState.NOT_RESERVED), "not reserved", "ek:1"),
    "client_certificate_is_valid": (
        lambda: builtin_facts(now=NOW + timedelta(days=30)),
        "none",
        "one that is valid at",
    ),
    "no_former_credential_is_valid": (
        lambda: builtin_facts(record=replace(builders.record(), first_attestation=NOW + timedelta(hours=1))),
        "of former nodes: valid until",
        "none",
    ),
    "posted_since_attested": (
        lambda: builtin_facts(created=NOW - timedelta(seconds=2)),
        "created at 2026-03-01 11:59:58",
        "not before 2026-03-01 11:59:59",
    ),
    "credential_is_attested": (
        lambda: builtin_facts(credential=CertificateCredential("ab" * 32)),
        "ab" * 32,
        "ef" * 32,
    ),
    "alternative_names_are_the_machines": (lambda: builtin_facts(dns_names=("kubernetes",)), "kubernetes", NODE),
    "identity_is_still_allowed": (
        lambda: StandingFacts(builders.record(), "chip:1", Denied("EndorsementKeyDenied", "on the deny list")),
        "ek:1 and chip:1: EndorsementKeyDenied",
        "attestor tpm does not deny",
    ),
    "machine_is_of_this_cluster": (
        lambda: builders.machine_facts(machine=builders.machine_view(cluster=replace(builders.CLUSTER, name="else"))),
        "/else",
        "prod",
    ),
}


def test_every_check_is_among_them() -> None:
    assert {check.run.__name__ for check, _ in EVERY} == set(STOPPED)


@pytest.mark.parametrize("name", STOPPED)
def test_what_is_wrong_shows_on_the_side_that_is_wrong(name: str) -> None:
    make, found, expected = STOPPED[name]
    facts = make()
    (check, *_) = [check for check, made in EVERY if check.run.__name__ == name and type(made()) is type(facts)]
    with pytest.raises(Exception, match=r"\w"):
        check.run(facts)
    shown = check.compares(facts)
    assert found in shown.found
    assert expected in shown.expected


def test_each_side_is_bounded_and_printable() -> None:
    shown = Comparison(HOSTILE, HOSTILE)
    for side in (shown.found, shown.expected):
        assert len(side) <= MAXIMUM_SIDE_CHARACTERS
        assert side.isprintable()
        assert side.endswith("...")
    assert Comparison("short", "").found == "short"


def test_of_many_a_few_are_listed() -> None:
    assert listed(range(8)) == "0, 1, 2, 3, 4, 5, and 2 more"
    assert listed(range(6)) == "0, 1, 2, 3, 4, 5"
    assert listed([]) == "none"


def test_the_steps() -> None:
    machine = builders.machine_view()
    owner = TokenOwner(machine.cluster.namespace, "Machine", "other")
    compared = step_comparisons
    assert "challenge" in compared.answer(ChallengeIssued("secret text"), PROVIDER_ID).found
    assert "secret text" not in str(compared.answer(ChallengeIssued("secret text"), PROVIDER_ID))
    assert compared.answer(Denied("No", "why"), PROVIDER_ID).found == "No: why"
    assert compared.answer(builders.verified(), PROVIDER_ID).found == f"proves ek:1 on {PROVIDER_ID}"
    assert compared.answer(AssertedIdentity(PROVIDER_ID, "x"), "").found.startswith("asserts x")
    assert compared.token(NodeAsks(), machine).found == "a node, no token"
    assert "Machine team-a/other" in compared.token(TokenAsks(TracedTo(frozenset({owner}))), machine).found
    assert "no KubeadmConfig" in compared.token(TokenAsks(Untraceable()), machine).found
    assert "not traced: why" in compared.token(TokenAsks(TracingOff("why")), machine).found
    unmatched = MatchFacts(PROVIDER_ID, "n1", machine.cluster, (), NodeAsks(), NotConsidered())
    assert compared.claim(unmatched).found == compared.match(unmatched).found == "none"
    assert compared.claim(replace(unmatched, machines=(machine,))).found == str(machine)
    unidentified = replace(machine, provider_id="")
    asks = TokenAsks(TracedTo(frozenset({owner})))
    led = replace(unmatched, asks=asks, lead=OtherLead(unidentified, NoRecord(), ()))
    assert compared.claim(led).found == f"none, and the bootstrap token leads to {machine}, which shows none"
    led = replace(unmatched, lead=OtherLead(MachineGone(), NoRecord(), ()))
    assert compared.match(led).found == "none, and the record leads to none"
    assert compared.unchanged(machine.cluster).found == "unchanged"
    assert compared.records_listed(machine.cluster).expected == f"the records of Cluster {machine.cluster}"
    own, former = MachineKey.of(machine), builders.record(builders.machine_view(name="former"))
    assert compared.former_machine(own, NoRecord()).found == "no other Machine"
    assert compared.former_machine(own, builders.record()).found == "no other Machine"
    assert compared.former_machine(own, former).found == str(former.machine)
    assert compared.match(replace(unmatched, machines=(machine,))).found == str(machine)
    assert "until 2" in compared.authority("sha256:x", NOW, NOW).found
    assert compared.policy(builders.policy()).found.endswith("mode Observe")
    assert compared.attestor("aws", builders.policy()) == Comparison("aws", "one of the policy's: tpm")
    pair = Pair(MachineKey.of(machine), builders.attested_identity())
    assert compared.pair(pair, "reserved") == Comparison("reserved", f"{machine} for ek:1")
    assert recorded_machine(NoRecord(), MachineGone()).found == "no record of that name"
    assert recorded_machine(builders.record(), MachineGone()).found.endswith("which is gone")
    assert recorded_machine(builders.record(), machine).found.endswith("which exists")
