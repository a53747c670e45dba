"""The Machine without provider ID to which a token or a record leads: each condition, and what it stops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.contract import AttestorDescription, Freshness, MachineMatch, Security
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
from signer.model.cluster import ClusterKey, MachineView
from signer.model.decision import Defer, Deferred
from signer.model.reasons import Reason
from signer.model.record import MachineKey, unidentified
from signer.rules.claim import TokenFacts, token_is_the_machines
from signer.rules.machine import MachineGone, NoRecord
from signer.rules.machine_match import (
    FoundMachine,
    MatchFacts,
    NotConsidered,
    OtherLead,
    considers_leads,
    found_machine,
    require_found_as_before,
)
from tests.unit.signer.builders import CLUSTER, NODE, TPM, machine_view, policy, record
from tests.unit.signer.outcomes import deferred

CLAIMED = "metal3://team-a/node-0/prod-md-0"
LATE = machine_view(provider_id="")
OWNER = TokenOwner(CLUSTER.namespace, "Machine", LATE.name, LATE.uid)
OTHER = TokenOwner(CLUSTER.namespace, "Machine", "other", "m-2")
TPM_BY_HOST = replace(TPM, attests_without_provider_id=True)
WITHOUT = {"bootstrapTokens": {"matchMachines": "WithoutProviderID"}}


def by_token(
    machine: MachineView | MachineGone = LATE, trace: Trace | None = None, holders: tuple[str, ...] = ()
) -> MatchFacts:
    asks = TokenAsks(trace or TracedTo(frozenset({OWNER})))
    return MatchFacts(CLAIMED, NODE, CLUSTER, (), asks, OtherLead(machine, NoRecord(), holders))


def by_record(now: MachineView | MachineGone = LATE, **changes: Any) -> MatchFacts:
    recorded = replace(record(LATE.claiming(CLAIMED)), **changes)
    return MatchFacts(CLAIMED, NODE, CLUSTER, (), NodeAsks(), OtherLead(now, recorded, ()))


def waits(facts: MatchFacts, reason: Reason) -> Defer:
    error = deferred(found_machine, facts)
    assert error.reason is reason, error
    return error


def test_token_leads_to_its_machine() -> None:
    assert found_machine(by_token()) == FoundMachine(LATE.claiming(CLAIMED), MachineMatch.BOOTSTRAP_TOKEN)


def test_record_leads_to_its_machine() -> None:
    assert found_machine(by_record()) == FoundMachine(LATE.claiming(CLAIMED), MachineMatch.RECORD)


def test_machine_that_shows_the_provider_id_comes_first() -> None:
    shows = machine_view(provider_id=CLAIMED)
    facts = replace(by_token(), machines=(shows,))
    assert found_machine(facts) == FoundMachine(shows, MachineMatch.PROVIDER_ID)
    waits(replace(facts, machines=(shows, replace(shows, name="other"))), Reason.MACHINE_AMBIGUOUS)


def test_nothing_else_is_considered() -> None:
    waits(replace(by_token(), lead=NotConsidered()), Reason.MACHINE_NOT_FOUND)


@pytest.mark.parametrize(
    ("trace", "reason", "part"),
    [
        (TracedTo(frozenset({OWNER, OTHER})), Reason.MACHINE_NOT_FOUND, "made for 2 owners"),
        (TracedTo(frozenset({OTHER})), Reason.MACHINE_NOT_FOUND, "made for Machine team-a/other"),
        (TracedTo(frozenset({OWNER}), held_elsewhere=True), Reason.MACHINE_NOT_FOUND, "without an owner"),
        (TracedTo(frozenset({replace(OWNER, uid="m-0")})), Reason.MACHINE_NOT_FOUND, "made for a former Machine"),
        (Untraceable(), Reason.MACHINE_NOT_FOUND, "no KubeadmConfig"),
        (TracingOff("no grant"), Reason.MACHINE_NOT_FOUND, "no grant"),
        (TracingInterrupted("a moment"), Reason.MANAGEMENT_CLUSTER_UNREACHABLE, "a moment"),
    ],
)
def test_token_that_is_not_of_the_machine_alone(trace: Trace, reason: Reason, part: str) -> None:
    error = waits(by_token(trace=trace), reason)
    assert part in error.message


def test_token_whose_owner_is_gone() -> None:
    waits(by_token(MachineGone()), Reason.MACHINE_NOT_FOUND)


@pytest.mark.parametrize("facts", [by_token, by_record])
@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (machine_view(provider_id="metal3://team-a/node-0/another"), Reason.PROVIDER_ID_DISAGREES),
        (replace(LATE, provider_id_is_unreadable=True), Reason.PROVIDER_ID_DISAGREES),
        (replace(LATE, of_a_pool=True), Reason.MACHINE_NOT_FOUND),
        (replace(LATE, kind="MachinePool"), Reason.MACHINE_NOT_FOUND),
        (replace(LATE, cluster=ClusterKey(CLUSTER.namespace, "another")), Reason.MACHINE_NOT_FOUND),
        (replace(LATE, uid="m-9"), Reason.MACHINE_NOT_FOUND),
    ],
)
def test_machine_that_cannot_be_claimed_for(
    facts: Callable[[MachineView], MatchFacts], machine: MachineView, reason: Reason
) -> None:
    waits(facts(machine), reason)


def test_machine_that_changes_wakes_the_request() -> None:
    error = waits(by_record(machine_view(provider_id="metal3://x/y/z")), Reason.PROVIDER_ID_DISAGREES)
    assert unidentified(LATE.name) in error.waits_for


_ANOTHER = ClusterKey(CLUSTER.namespace, "another")


@pytest.mark.parametrize(
    "changes",
    [
        {"node_name": "other"},
        {"machine": MachineKey(CLUSTER, "Machine", LATE.name, CLAIMED)},
        {"machine": MachineKey(_ANOTHER, "Machine", LATE.name, CLAIMED, LATE.uid)},
        {"machine": MachineKey(CLUSTER, "MachinePool", LATE.name, CLAIMED, LATE.uid)},
    ],
)
def test_record_that_claims_nothing_for_the_node(changes: dict[str, Any]) -> None:
    """The answer is that of a node without a record."""
    error = waits(by_record(**changes), Reason.MACHINE_NOT_FOUND)
    assert error.message == f"no Machine has provider ID {CLAIMED} yet"


def test_record_of_another_provider_id() -> None:
    waits(replace(by_record(), provider_id="metal3://x/y/z"), Reason.MACHINE_NOT_FOUND)


def test_machine_of_the_record_is_gone() -> None:
    waits(by_record(MachineGone()), Reason.MACHINE_NOT_FOUND)


def test_provider_id_of_another() -> None:
    error = waits(by_token(holders=("Machine team-a/other",)), Reason.PROVIDER_ID_TAKEN)
    assert "Machine team-a/other" in error.message


def test_policy_and_attestor_must_allow_it() -> None:
    assert considers_leads(policy(**WITHOUT), TPM_BY_HOST)
    assert not considers_leads(policy(), TPM_BY_HOST)
    assert not considers_leads(policy(**WITHOUT), TPM)


def test_insecure_attestor_cannot_declare_it() -> None:
    with pytest.raises(ValueError, match="which Machine"):
        AttestorDescription("insecure", Security.INSECURE, ("v1",), Freshness.NONE, attests_without_provider_id=True)


def test_match_that_changes_meanwhile_is_decided_again() -> None:
    found = found_machine(by_token())
    require_found_as_before(MachineMatch.BOOTSTRAP_TOKEN, found)
    error = deferred(partial(require_found_as_before, MachineMatch.PROVIDER_ID), found)
    assert error.reason is Reason.RESERVATION_PENDING


def test_token_is_checked_again_before_the_reservation() -> None:
    """With a policy that allows untraceable tokens, too."""
    machine = LATE.claiming(CLAIMED)
    token_is_the_machines(TokenFacts(TokenAsks(TracedTo(frozenset({OWNER}))), machine, policy(**WITHOUT)))
    for trace in (Untraceable(), TracedTo(frozenset({OWNER, OTHER}))):
        facts = TokenFacts(TokenAsks(trace), machine, policy(**WITHOUT))
        assert deferred(token_is_the_machines, facts).reason is Reason.MACHINE_NOT_FOUND


OWNERS = st.frozensets(
    st.builds(
        TokenOwner,
        st.sampled_from([CLUSTER.namespace, "team-b"]),
        st.sampled_from(["Machine", "MachinePool"]),
        st.sampled_from([LATE.name, "other"]),
        st.sampled_from([LATE.uid, "m-2", ""]),
    ),
    min_size=1,
    max_size=3,
)


@given(OWNERS, st.booleans(), st.sampled_from([LATE, replace(LATE, uid="m-2"), replace(LATE, name="other")]))
def test_only_the_sole_owner_is_ever_found(
    owners: frozenset[TokenOwner], held_elsewhere: bool, machine: MachineView
) -> None:
    """Whatever KubeadmConfigs a tenant writes, a token leads to the one Machine that owns every one of them."""
    trace = TracedTo(owners, held_elsewhere)
    own = TokenOwner(machine.cluster.namespace, "Machine", machine.name, machine.uid)
    try:
        found = found_machine(by_token(machine, trace))
    except Deferred:
        assert owners != {own} or held_elsewhere
    else:
        assert (owners, held_elsewhere, found.machine) == (frozenset({own}), False, machine.claiming(CLAIMED))


class TestKeys:
    """The key of a Machine whose provider ID is claimed, before and after the Machine shows it."""

    def test_key_stays_the_same(self) -> None:
        claimed = MachineKey.of(LATE.claiming(CLAIMED))
        shown = MachineKey.of(replace(LATE, provider_id=CLAIMED))
        assert (claimed, claimed.digest, hash(claimed)) == (shown, shown.digest, hash(shown))
        assert (claimed.claimed_by, shown.claimed_by) == (LATE.uid, "")

    def test_machine_that_shows_one_claims_nothing(self) -> None:
        shown = machine_view()
        assert shown.claiming(CLAIMED) is shown

    @pytest.mark.parametrize(
        "other",
        [
            replace(LATE, uid="m-2"),
            replace(LATE, name="other"),
            replace(LATE, provider_id=CLAIMED),
            replace(LATE, provider_id_is_unreadable=True),
            replace(LATE, of_a_pool=True),
        ],
    )
    def test_of_which_machine_it_is(self, other: MachineView) -> None:
        key = MachineKey.of(LATE.claiming(CLAIMED))
        assert key.is_of_unidentified(LATE)
        assert not key.is_of_unidentified(other)

    def test_record_that_the_machine_disproves(self) -> None:
        claim = record(LATE.claiming(CLAIMED))
        assert not claim.is_disproven_by(LATE)
        assert not claim.is_disproven_by(replace(LATE, provider_id=CLAIMED))
        assert claim.is_disproven_by(replace(LATE, provider_id="metal3://x/y/z"))
        assert not claim.is_disproven_by(replace(LATE, provider_id="metal3://x/y/z", uid="m-2"))
