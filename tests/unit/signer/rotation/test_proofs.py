"""Each proof: the facts that prove its step, and each fact that alone does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from signer.authority.presented import Presented
from signer.rotation.authorities import AuthorityKind, NotMade
from signer.rotation.facts import (
    Absent,
    Acceptance,
    AuthenticationFacts,
    Facts,
    HeldCertificate,
    NotObserved,
    Publication,
    RenewalFacts,
    RootCAFacts,
    ServerFacts,
    Unusable,
)
from signer.rotation.operations import Gate
from signer.rotation.phases import BACK, Step
from signer.rotation.proofs import (
    AGAIN,
    PROOF_OF,
    NotKnown,
    NotProven,
    Proof,
    Proven,
    all_of,
    clients_have_returned,
    named,
    servers_trust,
    switch_is_safe,
)
from signer.rotation.record import Moment, RotationRecord, SkippedGate
from tests.unit.signer.rotation.model_world import START, reference
from tests.unit.signer.rotation.situations import (
    HASH,
    NEW,
    NOW,
    OLD,
    facts_at,
    node,
    pair,
    record_at,
    server,
    with_machine,
    with_pair,
    with_secret,
    with_servers,
    without,
)

CA, ETCD = AuthorityKind.CLUSTER, AuthorityKind.ETCD
UNKNOWN = NotObserved("timeout")
SKIPS = {gate: (SkippedGate(gate, START),) for gate in Gate}


def proof(step: Step, facts: Facts | None = None, record: RotationRecord | None = None) -> Proof:
    return PROOF_OF[step](record or record_at(step), facts or facts_at(step))


def not_proven(result: Proof, *members: str, match: str = "") -> None:
    assert isinstance(result, NotProven), result
    assert result.members == members
    assert match in result.message, result.message


def not_known(result: Proof, *members: str, match: str = "") -> None:
    assert isinstance(result, NotKnown), result
    assert result.members == members
    assert match in result.message, result.message


@pytest.mark.parametrize("step", [step for step in Step if step is not Step.PREPARED])
def test_a_cluster_that_is_as_the_step_wants_it_is_proven(step: Step) -> None:
    facts = facts_at(step)
    if step in (Step.FORGET, Step.DISCARD_NEW):
        for kind in AuthorityKind:
            role = OLD if step is Step.FORGET else NEW
            facts = with_pair(facts, kind, role, HeldCertificate(reference(role, kind)))
    assert proof(step, facts) == Proven()


def test_every_step_has_a_proof() -> None:
    assert PROOF_OF.keys() == set(Step)


def test_nothing_but_a_person_completes() -> None:
    not_proven(proof(Step.PREPARED), match="complete-ca-rotation")


def test_what_was_observed_comes_before_what_was_not() -> None:
    seen, unseen = NotProven("seen"), NotKnown("unseen")
    assert all_of() == all_of(Proven(), Proven()) == Proven()
    assert all_of(unseen, Proven(), seen) == seen
    assert all_of(Proven(), unseen) == unseen


def test_at_most_ten_are_named() -> None:
    names = [f"n{number:02}" for number in range(12)]
    assert named(reversed(names[:3])) == "n00, n01, n02"
    assert named(names[:10]).endswith("n09")
    assert named(names).endswith("n09 and 2 more")


# NewAuthority


@pytest.mark.parametrize("role", [OLD, NEW])
@pytest.mark.parametrize("kind", AuthorityKind)
def test_each_pair_must_be_kept(kind: AuthorityKind, role: Any) -> None:
    facts = facts_at(Step.NEW_AUTHORITY)
    not_proven(proof(Step.NEW_AUTHORITY, with_pair(facts, kind, role, Absent())), match=f"{kind.value} is not kept")
    unusable = with_pair(facts, kind, role, Unusable("swapped"))
    not_proven(proof(Step.NEW_AUTHORITY, unusable), match="swapped")
    keyless = with_pair(facts, kind, role, HeldCertificate(reference(role, kind)))
    not_proven(proof(Step.NEW_AUTHORITY, keyless), match="no key any more")


# PublishTrust, WithdrawTrust


@pytest.mark.parametrize("step", [Step.PUBLISH_TRUST, Step.WITHDRAW_TRUST])
def test_what_is_published_is_seen_everywhere(step: Step) -> None:
    facts = facts_at(step)
    not_known(proof(step, replace(facts, cluster_info=UNKNOWN)), match="timeout")
    assert proof(step, replace(facts, cluster_info=Absent())) == Proven()
    not_proven(proof(step, replace(facts, trust=Absent())))
    not_proven(proof(step, replace(facts, trust=Unusable("x"))))
    for kind in AuthorityKind:
        not_proven(proof(step, with_secret(facts, kind, Unusable("x"))), match=kind.value)


def test_nothing_to_withdraw_if_nothing_was_made() -> None:
    record = record_at(Step.WITHDRAW_TRUST, made=False)
    facts = replace(facts_at(Step.WITHDRAW_TRUST), trust=Absent(), cluster_info=UNKNOWN)
    assert proof(Step.WITHDRAW_TRUST, facts, record) == Proven()
    not_known(proof(Step.PUBLISH_TRUST, facts, record_at(Step.PUBLISH_TRUST, made=False)))


# ServersTrust


def test_every_server_accepts_the_new_ca() -> None:
    step = Step.SERVERS_TRUST
    refuses = with_servers(
        facts_at(step), server(Presented.OLD_LINKED), server(Presented.OLD_LINKED, new=False, name="b")
    )
    not_proven(proof(step, refuses), "b", match="refuse client certificates of the new CA: b")


@pytest.mark.parametrize("presented", Presented)
def test_what_every_server_presents_is_linked(presented: Presented) -> None:
    step = Step.SERVERS_TRUST
    result = proof(step, with_servers(facts_at(step), server(presented)))
    if presented in (Presented.OLD_LINKED, Presented.NEW, Presented.NEW_LINKED):
        assert result == Proven()
    else:
        not_proven(result, "control-plane-1", match="link.crt")


@pytest.mark.parametrize(
    "step", [Step.SERVERS_TRUST, Step.SWITCH, Step.SERVERS_PRESENT, Step.DROP_OLD, Step.NODES_RETURN]
)
def test_servers_that_cannot_be_asked_hold_the_step(step: Step) -> None:
    facts = facts_at(step)
    not_known(proof(step, replace(facts, servers=UNKNOWN)), match="timeout")
    assert not isinstance(facts.servers, NotObserved)
    not_known(proof(step, with_servers(facts, *facts.servers.seen, unseen={"c": "refused"})), "c", match="c: refused")
    not_known(proof(step, with_servers(facts)), match="no Machine of the control plane")
    not_known(proof(step, with_servers(facts, unseen={"c": "refused"})), "c", match="c: refused")
    for answers in ((UNKNOWN, facts.servers.seen[0].new), (facts.servers.seen[0].old, UNKNOWN)):
        silent = ServerFacts("d", facts.servers.seen[0].presents, *answers)
        held = proof(step, with_servers(facts, silent))
        assert isinstance(held, NotProven | NotKnown)
        assert held.members == ("d",)


def test_controller_managers_have_started_since() -> None:
    step = Step.SERVERS_TRUST
    facts = facts_at(step)
    not_proven(proof(step, with_machine(facts, started=START)), "control-plane-1", match="kube-controller-managers")
    assert proof(step, with_machine(facts, started=START + timedelta(seconds=1))) == Proven()
    not_known(proof(step, with_machine(facts, started=UNKNOWN)), "control-plane-1", match="timeout")
    both = replace(
        facts,
        control_plane=(
            *with_machine(facts, started=UNKNOWN).control_plane,
            *(replace(one, name="b") for one in with_machine(facts, started=START).control_plane),
        ),
    )
    not_proven(proof(step, both), "b", match="kube-controller-managers")
    record = record_at(step)
    not_proven(proof(step, facts, without(record, Moment.TRUST_WRITTEN)), match="not published")


def test_every_namespace_has_the_new_ca() -> None:
    step = Step.SERVERS_TRUST
    facts = facts_at(step)
    not_proven(proof(step, replace(facts, root_ca=RootCAFacts(4, ("team",), ()))), "team", match="kube-root-ca.crt")
    not_known(proof(step, replace(facts, root_ca=UNKNOWN)), match="timeout")
    not_known(proof(step, replace(facts, root_ca=RootCAFacts(0, (), ()))), match="has no ConfigMap")


@pytest.mark.parametrize("step", [Step.SERVERS_TRUST, Step.SERVERS_PRESENT, Step.DROP_OLD])
def test_older_machines_hold_a_rotation_of_etcds_ca(step: Step) -> None:
    lagging = replace(facts_at(step), renewal=RenewalFacts(("old-machine",), "replace it"))
    not_proven(proof(step, lagging), "old-machine", match="replace it: old-machine")
    assert proof(step, lagging, record_at(step, kinds=(CA,))) == Proven()


def test_the_operators_part_is_named() -> None:
    step = Step.SERVERS_TRUST
    facts = with_servers(facts_at(step, actuator="roll it out"), server(Presented.OLD_LINKED, new=False))
    not_proven(proof(step, facts), "control-plane-1", match="; roll it out")
    result = proof(step, replace(facts, actuator=""))
    assert isinstance(result, NotProven)
    assert result.message.endswith("control-plane-1")


# NodesTrust


def test_every_node_trusts_and_uses_the_new_ca() -> None:
    step = Step.NODES_TRUST
    facts = facts_at(step)
    evidence = replace(facts, nodes=(*facts.nodes, node("b", client=NEW)))
    not_proven(proof(step, evidence), "b", match="as the first one that it trusts: b")
    client = replace(facts, nodes=(*facts.nodes, node("b", evidence=NEW)))
    not_proven(proof(step, client), "b", match="client certificate is by the old CA: b")
    not_proven(proof(step, replace(facts, unattested=("m",))), "m", match="never attested: m")


def test_unreachable_nodes_are_skipped_only_by_order() -> None:
    step = Step.NODES_TRUST
    facts = replace(facts_at(step), nodes=(node(), node("b", evidence=NEW)), unattested=("m",))
    assert proof(step, facts, record_at(step, skipped=SKIPS[Gate.UNREACHABLE_NODES])) == Proven()
    for gate in set(Gate) - {Gate.UNREACHABLE_NODES}:
        assert isinstance(proof(step, facts, record_at(step, skipped=SKIPS[gate])), NotProven)


# Prepared: the moment of completion


def test_a_switch_is_safe_only_while_all_of_its_proofs_hold() -> None:
    record, facts = record_at(Step.PREPARED), facts_at(Step.PREPARED)
    assert switch_is_safe(record, facts) == Proven()
    not_proven(switch_is_safe(record, with_servers(facts, server(Presented.OLD))), "control-plane-1")
    not_proven(switch_is_safe(record, replace(facts, nodes=(node(),))), "worker-1")
    not_proven(switch_is_safe(record, with_machine(facts, joined=False)), "control-plane-1", match="not joined yet")
    early = replace(facts, now=START + record.waits.trust_age - timedelta(seconds=1))
    not_proven(switch_is_safe(record, early), match="10 minutes")
    assert switch_is_safe(replace(record, skipped=SKIPS[Gate.TRUST_AGE]), early) == Proven()
    not_proven(switch_is_safe(replace(record, skipped=SKIPS[Gate.OVERLAP]), early))


# Switch and SERVERS_PRESENT


@pytest.mark.parametrize("kind", AuthorityKind)
def test_every_secret_holds_the_new_authority(kind: AuthorityKind) -> None:
    step = Step.SWITCH
    for held in (pair(OLD, kind), Unusable("x"), Absent()):
        not_proven(proof(step, with_secret(facts_at(step), kind, held)), match=f"authority {kind.value}")


def test_a_switch_needs_servers_that_accept_the_new_kubeconfig() -> None:
    step = Step.SWITCH
    not_proven(proof(step, with_servers(facts_at(step), server(Presented.OLD_LINKED, new=False))), "control-plane-1")


@pytest.mark.parametrize("presented", Presented)
def test_every_server_presents_the_new_ca_and_a_link_does_not_count(presented: Presented) -> None:
    step = Step.SERVERS_PRESENT
    result = proof(step, with_servers(facts_at(step), server(presented)))
    if presented in (Presented.NEW, Presented.NEW_LINKED):
        assert result == Proven()
    else:
        not_proven(result, "control-plane-1")


def test_no_machine_is_about_to_join_with_old_files() -> None:
    step = Step.SERVERS_PRESENT
    not_proven(proof(step, with_machine(facts_at(step), joined=False)), "control-plane-1")


# SignServing: the last step that leads back


def test_serving_certificates_are_by_the_new_ca() -> None:
    step = Step.SIGN_SERVING
    facts = facts_at(step)
    old = replace(facts, nodes=(node("b", evidence=NEW, client=NEW),))
    not_proven(proof(step, old), "b", match="serving certificate is by the old CA")
    assert proof(step, old, record_at(step, skipped=SKIPS[Gate.UNREACHABLE_NODES])) == Proven()
    none = replace(facts, nodes=(replace(facts.nodes[0], serving=""),))
    assert proof(step, none) == Proven()


def test_the_old_ca_stays_for_the_overlap() -> None:
    step = Step.SIGN_SERVING
    record = record_at(step)
    early = replace(facts_at(step), now=START + record.waits.overlap - timedelta(seconds=1))
    not_proven(proof(step, early), match="24 hours")
    assert proof(step, early, replace(record, skipped=SKIPS[Gate.OVERLAP])) == Proven()
    assert proof(step, replace(early, now=START + record.waits.overlap)) == Proven()
    joining = replace(facts_at(step), workers_joining={"m": START})
    not_proven(proof(step, joining, without(record, Moment.SWITCHED)), match="24 hours")


def test_machines_that_were_made_before_the_switch_join_first() -> None:
    step = Step.SIGN_SERVING
    facts = replace(facts_at(step), workers_joining={"m": START, "later": START + timedelta(seconds=1)})
    not_proven(proof(step, facts), "m", match="before the switch")
    assert proof(step, facts, record_at(step, skipped=SKIPS[Gate.MACHINES])) == Proven()
    not_proven(proof(step, facts, record_at(step, skipped=SKIPS[Gate.OVERLAP])), "m")


def test_what_was_proven_before_is_proven_again() -> None:
    step = Step.SIGN_SERVING
    facts = facts_at(step)
    not_proven(proof(step, replace(facts, nodes=(node("b", serving=NEW),))), "b")
    not_proven(proof(step, with_servers(facts, server(Presented.OLD_LINKED))), "control-plane-1")


# DropOld


def test_every_server_refuses_the_old_ca_and_accepts_the_new_one() -> None:
    step = Step.DROP_OLD
    facts = facts_at(step)
    not_proven(proof(step, with_servers(facts, server(Presented.NEW))), "control-plane-1", match="still accept")
    refuses = with_servers(facts, server(Presented.NEW, old=False, new=False))
    not_proven(proof(step, refuses), "control-plane-1", match="refuse client certificates of the new CA")


def test_refusal_is_seen_twice() -> None:
    step = Step.DROP_OLD
    facts = facts_at(step)
    not_proven(proof(step, replace(facts, old_refused_since=UNKNOWN)), match="second time")
    accepts = with_servers(replace(facts, old_refused_since=UNKNOWN), server(Presented.NEW))
    not_proven(proof(step, accepts), "control-plane-1", match="still accept")
    not_proven(proof(step, replace(facts, old_refused_since=NOW - AGAIN + timedelta(seconds=1))), match="second time")
    assert proof(step, with_machine(replace(facts, old_refused_since=NOW - AGAIN))) == Proven()


def test_watches_of_the_old_ca_have_ended() -> None:
    step = Step.DROP_OLD
    record = record_at(step)
    facts = with_machine(replace(facts_at(step), old_refused_since=NOW - AGAIN), created=START)
    not_proven(proof(step, facts), "control-plane-1", match="watches")
    assert proof(step, replace(facts, old_refused_since=NOW - record.waits.open_watches)) == Proven()
    assert proof(step, with_machine(facts, created=START + timedelta(seconds=1))) == Proven()
    later = with_machine(facts, created=NOW)
    not_proven(proof(step, later, without(record, Moment.TRUST_WRITTEN)), "control-plane-1")


# Prune, Forget


@pytest.mark.parametrize("kind", [CA, AuthorityKind.FRONT_PROXY])
def test_no_aggregated_server_is_told_to_trust_the_old_ca(kind: AuthorityKind) -> None:
    step = Step.PRUNE
    old = (reference(OLD, kind).digest,)
    for held in (AuthenticationFacts(old, ()), AuthenticationFacts((), old)):
        not_proven(proof(step, replace(facts_at(step), authentication=held)), match="still names")
    not_known(proof(step, replace(facts_at(step), authentication=UNKNOWN)), match="timeout")
    not_proven(proof(step, replace(facts_at(step), now=START + AGAIN - timedelta(seconds=1))), match="read again")


@pytest.mark.parametrize("kind", AuthorityKind)
@pytest.mark.parametrize(("step", "role"), [(Step.FORGET, OLD), (Step.DISCARD_NEW, NEW)])
def test_keys_are_gone(step: Step, role: Any, kind: AuthorityKind) -> None:
    facts = facts_at(step)
    for other in set(AuthorityKind) - {kind}:
        facts = with_pair(facts, other, role, HeldCertificate(reference(role, other)))
    if (kind, role) == (AuthorityKind.SERVICE_ACCOUNT, OLD):
        assert proof(step, facts) == Proven(), "its tokens are still verified"
    else:
        not_proven(proof(step, facts), kind.value)


# The way back


@pytest.mark.parametrize("kind", AuthorityKind)
def test_every_secret_holds_the_old_authority_again(kind: AuthorityKind) -> None:
    step = Step.RESTORE_OLD
    for held in (pair(NEW, kind), Unusable("x"), Absent()):
        not_proven(proof(step, with_secret(facts_at(step), kind, held)), match=f"authority {kind.value}")


def test_no_node_has_anything_of_the_new_ca() -> None:
    step = Step.NODES_RETURN
    facts = facts_at(step)
    own = node()
    for returned in (replace(own, client=HASH[NEW]), replace(own, serving=HASH[NEW])):
        not_proven(proof(step, replace(facts, nodes=(returned,))), "worker-1", match="newest certificate")
    unknown = proof(step, replace(facts, nodes=(replace(own, is_all=False),)))
    assert isinstance(unknown, NotKnown)
    assert unknown.members == ("worker-1",)
    not_proven(proof(step, replace(facts, nodes=(replace(own, evidence=HASH[NEW]),))), "worker-1", match="attested")


def test_no_server_presents_the_new_ca() -> None:
    step = Step.NODES_RETURN
    facts = facts_at(step)
    for presented in (Presented.NEW, Presented.NEW_LINKED, Presented.FOREIGN):
        not_proven(proof(step, with_servers(facts, server(presented))), "control-plane-1")
    not_proven(proof(step, with_machine(facts, joined=False)), "control-plane-1")


def test_a_rotation_that_made_no_ca_has_no_node_to_return() -> None:
    record = record_at(Step.NODES_RETURN, made=False)
    assert isinstance(record.authority(CA).new, NotMade)
    assert proof(Step.NODES_RETURN, replace(facts_at(Step.NODES_RETURN), servers=UNKNOWN), record) == Proven()


def test_clients_have_returned() -> None:
    record = record_at(Step.SIGN_BY_OLD, held_at=Step.SWITCH)
    facts = facts_at(Step.SERVERS_PRESENT)
    not_proven(clients_have_returned(record, facts), "worker-1")
    assert clients_have_returned(record, replace(facts, nodes=(node(evidence=NEW, serving=NEW),))) == Proven()


# What the workload cluster says


@pytest.mark.parametrize("step", BACK)
def test_the_workload_cluster_cannot_refuse_the_way_back_but_by_its_servers(step: Step) -> None:
    """It only says what it publishes: that may be wrong without an effect on the old CA."""
    facts = replace(facts_at(step), root_ca=UNKNOWN, authentication=UNKNOWN)
    if step is Step.DISCARD_NEW:
        for kind in AuthorityKind:
            facts = with_pair(facts, kind, NEW, HeldCertificate(reference(NEW, kind)))
    assert proof(step, facts) == Proven()


def test_answers_are_three() -> None:
    assert {Acceptance.ACCEPTED, Acceptance.REFUSED} == set(Acceptance)


# The service-account key


@pytest.mark.parametrize("step", [Step.SERVERS_TRUST, Step.PREPARED])
def test_every_server_publishes_the_new_service_account_key(step: Step) -> None:
    def proven(found: Any, record: RotationRecord) -> Proof:
        facts = replace(facts_at(step), published_keys=found)
        return servers_trust(record, facts) if step is Step.SERVERS_TRUST else switch_is_safe(record, facts)

    record, published = record_at(step), Publication.PUBLISHED
    assert proven({"a": published, "b": published}, record) == Proven()
    not_proven(proven({"a": published, "b": Publication.MISSING}, record), "b", match="/openid/v1/jwks")
    not_proven(proven({"a": published, "b": Publication.NOT_SERVED}, record), "b", match="/openid/v1/jwks")
    not_known(proven({"a": published, "b": UNKNOWN}, record), "b", match="b: timeout")
    not_known(proven({}, record), match="no Machine")
    not_known(proven(UNKNOWN, record), match="timeout")
    assert proven(UNKNOWN, record_at(step, kinds=(CA, ETCD))) == Proven(), "the key is not rotated"


def test_a_cluster_that_publishes_no_keys_is_known_by_its_machines() -> None:
    none = {"a": Publication.NOT_SERVED, "b": Publication.NOT_SERVED}
    facts = replace(facts_at(Step.SERVERS_TRUST), published_keys=none)
    assert proof(Step.SERVERS_TRUST, facts) == Proven()
    older = replace(facts, renewal=RenewalFacts(("a",), "older Machines"))
    not_proven(proof(Step.SERVERS_TRUST, older), "a", match="older Machines")
