"""Whose the bootstrap token is: the check."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from signer.model.bootstrap_token import (
    NodeAsks,
    TokenAsks,
    TokenOwner,
    Trace,
    TracedTo,
    TracingInterrupted,
    TracingOff,
    Untraceable,
)
from signer.model.cluster import MachineView
from signer.model.reasons import Reason
from signer.rules.claim import (
    TokenFacts,
    token_is_the_machines,
)
from tests.unit.signer.builders import machine_view, policy
from tests.unit.signer.outcomes import deferred, refused

MACHINE = machine_view(name="m1")
OWN = TokenOwner("team-a", "Machine", "m1")
OTHER = TokenOwner("team-a", "Machine", "m2")
POOL = TokenOwner("team-a", "MachinePool", "p1")


def facts(trace: Trace, machine: MachineView = MACHINE, untraceable: str = "Allow") -> TokenFacts:
    return TokenFacts(TokenAsks(trace), machine, policy(bootstrapTokens={"untraceable": untraceable}))


def traced(*owners: TokenOwner) -> TracedTo:
    return TracedTo(frozenset(owners))


def test_own_token() -> None:
    token_is_the_machines(facts(traced(OWN), untraceable="Refuse"))


def test_a_token_that_the_operator_preset_for_several_machines() -> None:
    token_is_the_machines(facts(traced(OTHER, OWN)))


@pytest.mark.parametrize(
    ("trace", "named"),
    [
        (traced(OWN, OTHER), str(OTHER)),
        (traced(OWN, POOL), str(POOL)),
        (replace(traced(OWN), held_elsewhere=True), "without an owner"),
    ],
    ids=["Machine", "pool", "no owner"],
)
def test_a_token_that_others_hold_too_is_the_policys_to_allow(trace: TracedTo, named: str) -> None:
    """The attack: a thief of another's token writes a KubeadmConfig with it for its own Machine, which is this one."""
    token_is_the_machines(facts(trace))
    defer = deferred(token_is_the_machines, facts(trace, untraceable="Refuse"))
    assert defer.reason == Reason.BOOTSTRAP_TOKEN_UNTRACEABLE
    assert named in defer.message


def test_two_configs_of_one_machine_are_one_owner() -> None:
    """It was made anew under its name."""
    token_is_the_machines(facts(traced(OWN, replace(OWN, uid="former")), untraceable="Refuse"))


@pytest.mark.parametrize(
    "machine", [machine_view(kind="MachinePool", name="p1"), machine_view(name="p1-x", owner_pool="p1")]
)
def test_the_pools_token(machine: MachineView) -> None:
    token_is_the_machines(facts(traced(POOL), machine))


@pytest.mark.parametrize("owner", [OTHER, POOL, replace(OWN, namespace="team-b")])
def test_a_token_of_another_machine_or_pool(owner: TokenOwner) -> None:
    """The attack: whoever stole another Machine's token, with good evidence for this one."""
    deny = refused(token_is_the_machines, facts(traced(owner)))
    assert deny.reason == Reason.BOOTSTRAP_TOKEN_MISMATCH
    assert str(owner) in deny.message
    assert str(MACHINE) in deny.message


def test_a_message_about_many_owners_is_short() -> None:
    owners = [TokenOwner("team-a", "Machine", f"other-{number}") for number in range(5)]
    message = refused(token_is_the_machines, facts(traced(*owners))).message
    assert "Machine team-a/other-0 and Machine team-a/other-1 and Machine team-a/other-2 and others" in message
    assert "other-3" not in message
    message = refused(token_is_the_machines, facts(traced(*owners[:3]))).message
    assert "other-1 and Machine team-a/other-2" in message
    assert "others" not in message
    assert "X" not in message


def test_a_message_names_an_owner_once() -> None:
    owners = [TokenOwner("team-a", "Machine", "m2", uid) for uid in ("u1", "u2")]
    assert "made for Machine team-a/m2; the evidence" in refused(token_is_the_machines, facts(traced(*owners))).message


@pytest.mark.parametrize("trace", [Untraceable(), TracingOff("no grant")])
def test_an_untraceable_token_is_the_policys_to_allow(trace: Trace) -> None:
    token_is_the_machines(facts(trace))
    defer = deferred(token_is_the_machines, facts(trace, untraceable="Refuse"))
    assert defer.reason == Reason.BOOTSTRAP_TOKEN_UNTRACEABLE
    assert defer.retry_after == timedelta(minutes=5)
    assert isinstance(trace, Untraceable) or "no grant" in defer.message


@pytest.mark.parametrize("untraceable", ["Allow", "Refuse"])
def test_while_nobody_can_tell_everybody_waits(untraceable: str) -> None:
    """Neither a denial nor a pass may rest on what may be stale."""
    defer = deferred(token_is_the_machines, facts(TracingInterrupted("cannot be watched"), untraceable=untraceable))
    assert (defer.reason, defer.message) == (Reason.MANAGEMENT_CLUSTER_UNREACHABLE, "cannot be watched")
    assert defer.retry_after == timedelta(seconds=10), "nobody is woken when it can be watched again"


def test_a_node_brings_no_token() -> None:
    token_is_the_machines(TokenFacts(NodeAsks(), MACHINE, policy(bootstrapTokens={"untraceable": "Refuse"})))
