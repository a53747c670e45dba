"""What is written is read back the same, and nothing else is read."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import Ed25519Key
from signer.audit.decision_inputs import (
    MOST_OWNERS,
    Answer,
    AnswerStage,
    Asks,
    BuiltinStage,
    ClaimStage,
    DecisionInputs,
    MachineStage,
    RequestStage,
    SnapshotStage,
    StandingStage,
)
from signer.audit.values import InvalidValue, read, write
from signer.model.access_policy import AccessRules, BastionRules
from signer.model.bootstrap_token import NodeAsks, TokenAsks, TokenOwner, TracedTo
from signer.model.cluster import ClusterView
from signer.model.policy import AuthorizedAttestor
from signer.model.record import AttestedNode, JournalEntry
from signer.model.record_object import PackedJournal, entry_line
from signer.model.ssh_access import BreakGlassKey, RevokedByPolicy
from tests.unit.signer.builders import CLUSTER, cluster_view, journal_entry, machine_view, record

MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
st.register_type_strategy(datetime, MOMENTS)
st.register_type_strategy(timedelta, st.timedeltas(timedelta(days=-400), timedelta(days=400)))
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
st.register_type_strategy(str, TEXTS)
SETTINGS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
KEY_LINES = st.binary(min_size=32, max_size=32).map(lambda seed: key_line(Ed25519Key(seed)))
st.register_type_strategy(
    BreakGlassKey,
    st.builds(
        BreakGlassKey,
        KEY_LINES,
        TEXTS,
    ),
)
st.register_type_strategy(
    RevokedByPolicy,
    st.builds(
        RevokedByPolicy,
        st.lists(st.text("ab/-", min_size=1, max_size=9), max_size=2).map(tuple),
        st.lists(st.integers(1, 10**19 - 1).map(str), max_size=2).map(tuple),
        st.lists(KEY_LINES, max_size=2).map(tuple),
    ),
)
st.register_type_strategy(BastionRules, st.builds(BastionRules, TEXTS, st.dictionaries(TEXTS, SETTINGS, max_size=2)))
PATTERNS = st.sampled_from(["", "OPS-[0-9]+"])
st.register_type_strategy(AccessRules, st.builds(AccessRules, reason_pattern=PATTERNS, ticket_pattern=PATTERNS))
st.register_type_strategy(
    AuthorizedAttestor, st.builds(AuthorizedAttestor, TEXTS, st.dictionaries(TEXTS, SETTINGS, max_size=2))
)

st.register_type_strategy(
    AttestedNode,
    st.builds(AttestedNode, journal=st.lists(st.from_type(JournalEntry), max_size=3).map(tuple)),
)

ANSWERS = st.builds(Answer, annotations=st.dictionaries(TEXTS, TEXTS, max_size=2))
CALLS = st.lists(st.dictionaries(TEXTS, SETTINGS, max_size=2), max_size=2).map(tuple)
st.register_type_strategy(StandingStage, st.builds(StandingStage, TEXTS, ANSWERS, CALLS))

STAGES = [SnapshotStage, ClaimStage, BuiltinStage, Asks]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_round_trip(stage: type, data: st.DataObject) -> None:
    value = data.draw(st.from_type(stage))
    assert read(stage, json.loads(write(value)), "value") == value


def test_a_journal_that_is_kept_packed_is_written_as_it_is_read() -> None:
    loose = record(journal=tuple(journal_entry(number) for number in range(1, 17)))
    packed = replace(loose, journal=PackedJournal([entry_line(entry) for entry in loose.journal]))
    assert write(packed) == write(loose)
    assert read(AttestedNode, json.loads(write(packed)), "value") == packed


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_same_bytes_each_time(data: st.DataObject) -> None:
    value = data.draw(st.from_type(BuiltinStage))
    assert write(read(BuiltinStage, json.loads(write(value)), "value")) == write(value)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(asks=st.from_type(TokenAsks).filter(lambda asks: _is_written_whole(asks)) | st.builds(NodeAsks))
def test_who_asks(asks: Any) -> None:
    assert read(Asks, json.loads(write(Asks.of(asks))), "asks").asks() == asks


def _is_written_whole(asks: TokenAsks) -> bool:
    return not isinstance(asks.trace, TracedTo) or 0 < len(asks.trace.owners) <= MOST_OWNERS


@pytest.mark.parametrize("name", ["m000", "m500", "other"])
def test_of_a_token_that_thousands_have_the_machine_is_named_and_some_others(name: str) -> None:
    """By all of them a line would be larger than lines may be, and nobody could join."""
    owners = frozenset(TokenOwner(CLUSTER.namespace, "Machine", f"m{number:03}", "u") for number in range(1000))
    machine = machine_view(name=name)
    kept = Asks.of(TokenAsks(TracedTo(owners)), machine).owners
    assert len(kept) == MOST_OWNERS
    assert list(kept) == sorted(kept, key=str)
    assert any(owner.is_owner_of(machine) for owner in kept) == (name != "other")
    assert kept[:3] == tuple(sorted(owners, key=str)[:3]), "whom a denial names"
    assert len(Asks.of(TokenAsks(TracedTo(owners))).owners) == MOST_OWNERS


def test_an_empty_account() -> None:
    assert read(DecisionInputs, json.loads(write(DecisionInputs())), "decision_inputs") == DecisionInputs()


@pytest.mark.parametrize(
    "change",
    [
        {"reserved": 1},
        {"reserved": "true"},
        {"snapshot": None},
        {"snapshot": {"cluster": {}}},
        {"claimed": {"": ""}},
        {"more": {}},
        {"token": {"kind": 1, "owners": [], "cause": ""}},
    ],
)
def test_what_is_of_another_form_is_refused(change: dict[str, Any]) -> None:
    content = json.loads(write(DecisionInputs()))
    with pytest.raises(InvalidValue):
        read(DecisionInputs, {**content, **change}, "decision_inputs")


def test_a_missing_field_is_refused() -> None:
    content = json.loads(write(DecisionInputs()))
    del content["builtin"]
    with pytest.raises(InvalidValue, match="DecisionInputs"):
        read(DecisionInputs, content, "decision_inputs")


def test_a_field_that_a_view_got_later_may_be_missing() -> None:
    view = cluster_view()
    content = json.loads(write(view))
    del content["watch_filter"]
    assert read(ClusterView, content, "cluster") == replace(view, watch_filter="")
    del content["paused"]
    with pytest.raises(InvalidValue, match="ClusterView"):
        read(ClusterView, content, "cluster")


def test_an_unknown_kind_of_requester() -> None:
    with pytest.raises(InvalidValue):
        Asks("Everybody").asks()
    with pytest.raises(InvalidValue):
        replace(Asks("TracedTo"), owners=()).asks()


def test_stages_are_told_apart_by_their_fields() -> None:
    """Two with the same fields would be read back as each other."""
    kinds = [SnapshotStage, RequestStage, ClaimStage, AnswerStage, MachineStage, BuiltinStage]
    names = [frozenset(field.name for field in fields(kind)) for kind in kinds]
    assert len(set(names)) == len(kinds)
