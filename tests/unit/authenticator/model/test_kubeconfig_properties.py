"""Kubeconfigs with anything in any place: they are used or refused, and nothing else happens."""

from __future__ import annotations

import contextlib
import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authenticator.model.cluster import Bootstrap
from authenticator.model.kubeconfig import UnusableKubeconfig, parse_bootstrap, runs_this_program
from tests.unit.authenticator.builders import SWIFT, as_yaml, bootstrap, kubeconfig

texts = st.text(st.characters(codec="utf-8", exclude_characters="\x85\u2028\u2029"), max_size=12)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | texts
    | st.binary(max_size=9)
    | st.dates(min_value=datetime.date(1000, 1, 1))
    | st.sampled_from(["Config", "bootstrap", "https://[", "https://x:y"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | st.integers(), inner, max_size=3),
    max_leaves=6,
)
# Pieces of YAML in any order: far more of these come near to being read than of arbitrary bytes.
pieces = st.sampled_from(
    [
        "kind: Config",
        "current-context: ",
        "contexts:\n",
        "- name: x",
        "  context: ",
        "&a ",
        "*a",
        "<<: ",
        "!!int ",
        "!!bool ",
        "!!float ",
        "!!binary ",
        "!!timestamp ",
        "!!set ",
        "!!omap ",
        "!!merge ",
        "!!null ",
        "!!value ",
        "? ",
        ": ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        "|\n ",
        ">-\n ",
        "1:60.5",
        "0x",
        "0b2",
        ".inf",
        "2001-13-01",
        "2001-01-01T00:00:00+99:99",
        "'",
        '"',
        "\\",
        "#",
        "---\n",
        "...\n",
        "%YAML 1.1\n",
        "\n",
        "\t",
        "\0",
        " ",
        "=",
        "~",
        "-",
    ]
)
near_misses = st.lists(pieces, max_size=12).map("".join).map(str.encode)


def read_file(path: str) -> bytes:
    raise FileNotFoundError(2, "No such file or directory", path)


def read(data: bytes) -> None:
    with contextlib.suppress(UnusableKubeconfig):
        assert isinstance(parse_bootstrap(data, read_file), Bootstrap)
    assert runs_this_program(data) in (True, False)


def replaced(document: Any, value: object, data: st.DataObject) -> Any:
    """The document with something else in one place."""
    if data.draw(st.integers(0, 3)) == 0 or not document or not isinstance(document, dict | list):
        return value
    copy = document.copy()
    place = data.draw(st.sampled_from(sorted(copy) if isinstance(copy, dict) else range(len(copy))))
    copy[place] = replaced(copy[place], value, data)
    return copy


@SWIFT
@given(st.binary(max_size=60) | near_misses)
def test_any_bytes(data: bytes) -> None:
    read(data)


@SWIFT
@given(near_misses)
def test_anything_as_a_name(data: bytes) -> None:
    read(b"kind: Config\ncurrent-context: " + data)


@SWIFT
@given(values, st.data())
def test_anything_in_any_place(value: object, data: st.DataObject) -> None:
    read(as_yaml(replaced(kubeconfig(), value, data)))


@SWIFT
@given(st.dictionaries(st.sampled_from(["token", "tokenFile", "client-key", "client-certificate-data"]), values))
def test_anything_as_a_credential(user: dict[str, object]) -> None:
    read(as_yaml(kubeconfig(user=user)))


@pytest.mark.parametrize("depth", [1, 10, 600])
@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "!!set {", "&a ["])
def test_any_depth(opening: str, depth: int) -> None:
    read(f"kind: Config\ncurrent-context: {opening * depth}".encode())
    read((opening * depth).encode())


@SWIFT
@given(st.integers(0, 2000))
def test_no_truncation(length: int) -> None:
    data = as_yaml(kubeconfig())
    read(data[: min(length, len(data))])


def test_the_whole_is_read() -> None:
    """What is cut and changed above is good at first."""
    assert parse_bootstrap(as_yaml(kubeconfig()), read_file) == bootstrap()
