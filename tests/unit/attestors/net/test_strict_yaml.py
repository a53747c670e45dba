from __future__ import annotations

import contextlib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from attestors.net.strict_yaml import MAXIMUM_DEPTH, YamlRefused, load_strict_yaml


def test_mappings_lists_and_the_four_scalars() -> None:
    document = b'a: [x, "true", true, false, null, 12, 2026-11-21]\nb: {}\nc:\n'
    assert load_strict_yaml(document) == {
        "a": ["x", "true", True, False, None, "12", "2026-11-21"],
        "b": {},
        "c": None,
    }


def test_json_is_yaml() -> None:
    assert load_strict_yaml(b'{"a": ["b", {"c": "d"}]}') == {"a": ["b", {"c": "d"}]}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_byte_order_mark_names_the_encoding(encoding: str) -> None:
    """PowerShell writes UTF-16."""
    assert load_strict_yaml("a: \u0160koda\r\n".encode(encoding)) == {"a": "\u0160koda"}


def test_an_empty_document_behind_is_no_second_one() -> None:
    assert load_strict_yaml(b"---\na: b\n---\n") == {"a": "b"}
    assert load_strict_yaml(b"---\na: b\n...\n") == {"a": "b"}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (b"", "empty"),
        (b"\xff\xfe", "empty"),
        (b"\xff\xfea", "UTF-8"),
        (b"\xff", "UTF-8"),
        (b"a: &x b", "anchors"),
        (b"a: &x b\nc: *x", "anchors"),
        (b"a: &x [b]\nc: {<<: *x}", "anchors"),
        (b"a: !!python/name:os.system b", "tags"),
        (b"a: !!str 12", "tags"),
        (b"%TAG ! tag:example.org,2026:\n--- \na: b", "tag"),
        (b"a: b\na: c", "twice"),
        (b"a: {b: 1, b: 2}", "twice"),
        (b"a: {<<: {b: c}}", "merge"),
        (b"1: a\nnull: b", "not a string"),
        (b"[a]: b", "not a string"),
        (b"a: b\n---\nc: d", "more than one"),
        (b"---\n---\nc: d", "more than one"),
        (b"a: b\n---\n---\nc", "more than one"),
        (b"a: [", "syntax error at line 2"),
        (b"a: \x00", "characters"),
        (b"[" * (MAXIMUM_DEPTH + 2) + b"]" * (MAXIMUM_DEPTH + 2), "deeper"),
        (b"[" * 60_000, "deeper"),
        (b"{" * 60_000, "deeper"),
        (b"? " * 30_000, "deeper"),
        (b"- " * 30_000, "deeper"),
    ],
)
def test_everything_else_is_refused(document: bytes, why: str) -> None:
    with pytest.raises(YamlRefused, match=why):
        load_strict_yaml(document)


@pytest.mark.parametrize("loader", [yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)])
@pytest.mark.parametrize("escape", ["UFFFFFFFF", "U00110000"])
def test_an_escape_of_no_character(monkeypatch: pytest.MonkeyPatch, loader: type, escape: str) -> None:
    """PyYAML without libyaml, as some distributions have it, raises Python's own errors."""
    monkeypatch.setattr("attestors.net.strict_yaml._LOADER", loader)
    with pytest.raises(YamlRefused):
        load_strict_yaml(f'a: "\\{escape}"'.encode())


def test_a_refusal_does_not_repeat_the_document() -> None:
    with pytest.raises(YamlRefused) as refused:
        load_strict_yaml(b"token: [s3cr3t")
    assert "s3cr3t" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


@given(st.binary(max_size=2000))
def test_arbitrary_bytes_raise_nothing_else(document: bytes) -> None:
    with contextlib.suppress(YamlRefused):
        load_strict_yaml(document)


@given(st.text(alphabet="[]{}:,-?&*!|>'\"%@# \n\tab1~", max_size=200))
def test_arbitrary_punctuation_raises_nothing_else(document: str) -> None:
    with contextlib.suppress(YamlRefused):
        load_strict_yaml(document.encode())
