from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.clouds.json_objects import InvalidObject, objects_of, optional_text_of, parse_object, text_of
from tests.unit.attestors.support import PATIENT

_SCALAR = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
_JSON = _SCALAR | st.lists(_SCALAR, max_size=3) | st.dictionaries(st.text(max_size=8), _SCALAR, max_size=3)


@PATIENT
@given(st.dictionaries(st.text(max_size=8), _JSON, max_size=4))
def test_objects_come_back(document: dict[str, Any]) -> None:
    assert parse_object(json.dumps(document).encode()) == document


@PATIENT
@given(st.binary(max_size=200))
def test_bytes_are_an_object_or_refused(content: bytes) -> None:
    with contextlib.suppress(InvalidObject):
        assert isinstance(parse_object(content), dict)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'"text"',
        b"{} {}",
        b'{"a":1,"a":1}',
        b'{"b":{"a":1,"a":2}}',
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b"\xff",
        b'{"a":' * 100_000,
        b"9" * 10_000,
        "\ufeff{}".encode(),
    ],
    ids=range(12),
)
def test_what_is_no_object(content: bytes) -> None:
    with pytest.raises(InvalidObject):
        parse_object(content)


def test_how_much_is_nested_does_not_depend_on_the_callers_stack() -> None:
    def nested(objects_and_lists: int) -> bytes:
        return b'{"a":' + b"[" * (objects_and_lists - 1) + b"]" * (objects_and_lists - 1) + b"}"

    assert parse_object(nested(512))
    with pytest.raises(InvalidObject, match="more than 512 objects and lists"):
        parse_object(nested(513))


@pytest.mark.parametrize("value", [None, 1, "", [], "x" * 11])
def test_a_text_is_there_and_bounded(value: object) -> None:
    with pytest.raises(InvalidObject, match="name is missing, or not a text of at most 10"):
        text_of({"name": value}, "name", maximum_characters=10)
    assert text_of({"name": "x" * 10}, "name", maximum_characters=10) == "x" * 10


def test_an_optional_text_may_be_missing_and_is_nothing_else() -> None:
    assert optional_text_of({}, "name") == ""
    assert optional_text_of({"name": ""}, "name") == ""
    assert optional_text_of({"name": "x"}, "name") == "x"
    others: list[object] = [None, 0, False, [], "x" * 11]
    for value in others:
        with pytest.raises(InvalidObject):
            optional_text_of({"name": value}, "name", maximum_characters=10)


@pytest.mark.parametrize("value", [None, {}, "", [1], [{}, []], [{}] * 3])
def test_a_list_of_objects_is_bounded_and_holds_nothing_else(value: object) -> None:
    with pytest.raises(InvalidObject):
        objects_of({"list": value}, "list", maximum=2)
    assert objects_of({"list": [{}, {}]}, "list", maximum=2) == ({}, {})
    assert objects_of({}, "list", maximum=2) == ()
