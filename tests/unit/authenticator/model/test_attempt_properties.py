"""Attempts of every kind, and files that hold none."""

from __future__ import annotations

import contextlib
import json

from hypothesis import given
from hypothesis import strategies as st

from authenticator.model.attempt import (
    Attempt,
    Pause,
    PendingRequest,
    Sent,
    Step,
    Subject,
    UnreadableAttempt,
    decode_attempt,
    encode_attempt,
)
from authenticator.model.failures import ExitCode
from tests.unit.authenticator.builders import SWIFT

texts = st.text(max_size=20)
lists = st.lists(texts, max_size=3).map(tuple)
subjects = st.builds(Subject, texts, texts, texts, texts, lists, lists)
pending = st.builds(
    PendingRequest, subjects, texts, st.sampled_from(Step), texts, lists, texts, texts, st.sampled_from(Sent), texts
)
pauses = st.builds(
    Pause, st.integers(0, 253402300799), st.integers(min_value=1), st.sampled_from(ExitCode), texts, texts
)
attempts = st.builds(Attempt, st.none() | pending, st.none() | pauses)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@SWIFT
@given(attempts)
def test_every_attempt_is_read_back(attempt: Attempt) -> None:
    text = encode_attempt(attempt)
    assert text.isascii()
    assert decode_attempt(text) == attempt


@SWIFT
@given(attempts, st.data())
def test_a_changed_file_is_read_or_refused(attempt: Attempt, data: st.DataObject) -> None:
    text = encode_attempt(attempt)
    position = data.draw(st.integers(0, len(text) - 1))
    changed = text[:position] + data.draw(st.text(max_size=3)) + text[position + data.draw(st.integers(0, 9)) :]
    with contextlib.suppress(UnreadableAttempt):
        assert isinstance(decode_attempt(changed), Attempt)


@SWIFT
@given(attempts, json_values, st.data())
def test_another_value_anywhere_is_read_or_refused(attempt: Attempt, value: object, data: st.DataObject) -> None:
    document = json.loads(encode_attempt(attempt))
    place = document
    while True:
        name = data.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[name], dict) or data.draw(st.booleans()):
            place[name] = value
            break
        place = place[name]
    with contextlib.suppress(UnreadableAttempt):
        assert isinstance(decode_attempt(json.dumps(document)), Attempt)


@SWIFT
@given(
    texts
    | json_values.map(json.dumps)
    | st.dictionaries(texts, json_values).map(lambda one: json.dumps(one | {"format": 1}))
)
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(UnreadableAttempt):
        assert isinstance(decode_attempt(text), Attempt)
