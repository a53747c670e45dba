from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire.names import Purpose
from attestors.wire.statement import PinnedController
from authenticator.model.trust_state import (
    MAXIMUM_LINEAGE,
    Change,
    Direction,
    FormerFile,
    Phase,
    Rejection,
    TrustState,
    UnreadableTrust,
    decode_pin,
    decode_state,
    encode_pin,
    encode_state,
)
from tests.support.statements import IDENTITY, controller
from tests.unit.authenticator.builders import SWIFT

PIN = PinnedController(IDENTITY, controller("d", "c").public, 7)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.integers(0, 2**60)
changes = st.builds(
    Change,
    texts,
    numbers,
    st.lists(st.builds(FormerFile, texts, texts), unique_by=lambda one: one.path, max_size=3).map(tuple),
    numbers,
    st.sampled_from(Direction),
    st.sampled_from(Phase),
    texts,
    numbers,
    numbers,
    texts,
    texts,
)
states = st.builds(
    TrustState,
    numbers,
    numbers,
    st.lists(texts, max_size=3).map(tuple),
    st.dictionaries(st.sampled_from(Purpose), texts).map(lambda found: tuple(found.items())),
    st.none() | changes,
    st.none() | st.builds(Rejection, texts, texts, numbers, numbers, numbers, numbers),
)


def test_a_pin_survives_its_file() -> None:
    assert decode_pin(encode_pin(PIN)) == PIN


@SWIFT
@given(states)
def test_every_state_survives_its_file(state: TrustState) -> None:
    assert decode_state(encode_state(state)) == state


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", '{"format":2}', "[" * 100_000])
def test_other_content_is_unreadable(text: str) -> None:
    for decode in (decode_pin, decode_state):
        with pytest.raises(UnreadableTrust):
            decode(text)


@pytest.mark.parametrize("key", ["format", "cluster", "keys", "sequence"])
def test_each_field_of_a_pin_is_needed(key: str) -> None:
    document = json.loads(encode_pin(PIN))
    for changed in ({**document, key: None}, {name: value for name, value in document.items() if name != key}):
        with pytest.raises(UnreadableTrust):
            decode_pin(json.dumps(changed))


def test_a_pin_without_keys_is_none() -> None:
    with pytest.raises(UnreadableTrust):
        decode_pin(json.dumps(json.loads(encode_pin(PIN)) | {"keys": []}))


def test_the_lineage_is_bounded() -> None:
    state = TrustState()
    for number in range(2 * MAXIMUM_LINEAGE):
        state = state.with_lineage((f"sha256:{number}", f"sha256:{number}"))
    assert len(state.lineage) == MAXIMUM_LINEAGE
    assert state.lineage[-1] == f"sha256:{2 * MAXIMUM_LINEAGE - 1}"
