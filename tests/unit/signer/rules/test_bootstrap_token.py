"""The bootstrap token's check, and how long tokens of MachinePools live."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from signer.model.bootstrap_token import (
    Extension,
    NeverExpires,
    NodeAsks,
    TokenAsks,
    TokenOwner,
    TokenSecret,
    Trace,
    TracedTo,
    TracingInterrupted,
    TracingOff,
    Untraceable,
)
from signer.model.cluster import MachineView
from signer.model.reasons import Reason
from signer.rules.bootstrap_token import (
    EXTEND_BELOW,
    EXTEND_TO,
    SHORTEN_TO,
    Extend,
    NoChange,
    RemoveAnnotation,
    Shorten,
    TokenFacts,
    token_change,
    token_is_the_machines,
)
from tests.unit.signer.builders import NOW, machine_view, policy
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


# How long tokens live


def secret(left: timedelta = timedelta(minutes=15), **changes: Any) -> TokenSecret:
    made = TokenSecret("bootstrap-token-abc123", "abc123", "7", True, NOW + left, Extension.NONE)
    return replace(made, **changes)


def test_how_long_is_what_the_documents_say() -> None:
    hours = timedelta(hours=1)
    assert (12 * hours, 24 * hours, hours / 4) == (EXTEND_BELOW, EXTEND_TO, SHORTEN_TO)


def test_a_pools_token_is_extended_before_its_provider_rotates_it() -> None:
    assert token_change(secret(), wanted=True, now=NOW) == Extend(NOW + EXTEND_TO)
    assert token_change(secret(EXTEND_BELOW - timedelta(seconds=1)), wanted=True, now=NOW) == Extend(NOW + EXTEND_TO)
    assert token_change(secret(EXTEND_BELOW), wanted=True, now=NOW) == NoChange()


def test_one_that_has_run_out_is_not_brought_back() -> None:
    assert token_change(secret(timedelta(0)), wanted=True, now=NOW) == NoChange()


def test_one_that_authenticates_nobody_is_not_extended() -> None:
    assert token_change(secret(authenticates=False), wanted=True, now=NOW) == NoChange()


def test_one_without_an_end_is_left() -> None:
    for wanted in (True, False):
        assert token_change(secret(expiration=NeverExpires()), wanted=wanted, now=NOW) == NoChange()


def test_what_was_extended_is_cut_back() -> None:
    long = secret(timedelta(hours=20), extension=Extension.OURS)
    assert token_change(long, wanted=False, now=NOW) == Shorten(NOW + SHORTEN_TO)
    assert token_change(replace(long, authenticates=False), wanted=False, now=NOW) == Shorten(NOW + SHORTEN_TO)


def test_what_ends_soon_anyway_only_loses_its_mark() -> None:
    assert token_change(secret(SHORTEN_TO, extension=Extension.OURS), wanted=False, now=NOW) == RemoveAnnotation()
    assert (
        token_change(secret(extension=Extension.OURS), wanted=False, now=NOW + timedelta(days=1)) == RemoveAnnotation()
    )


def test_what_others_extended_is_theirs() -> None:
    assert token_change(secret(timedelta(days=30)), wanted=False, now=NOW) == NoChange()
    overwritten = secret(timedelta(days=30), extension=Extension.OVERWRITTEN)
    assert token_change(overwritten, wanted=False, now=NOW) == RemoveAnnotation()
    unending = replace(overwritten, expiration=NeverExpires())
    assert token_change(unending, wanted=False, now=NOW) == RemoveAnnotation()
    assert token_change(unending, wanted=True, now=NOW) == NoChange(), "it would be marked again at once"
