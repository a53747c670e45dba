"""Label and field selectors."""

from __future__ import annotations

from typing import Any

import pytest

from signer.testing.api.selectors import Selector, parse_field_selector, parse_label_selector
from signer.testing.api.status import APIError


def _fields(value: dict[str, Any]) -> dict[str, str]:
    return {"metadata.name": value["metadata"]["name"]}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("a=1", True),
        ("a==1,b", True),
        ("a!=1", False),
        ("c!=1", True),
        ("!c", True),
        ("!a", False),
        ("c", False),
        ("a in (1, 2)", True),
        ("a notin (1,2)", False),
        ("c notin (1)", True),
        ("a in (1),b=2", False),
        ("e=", True),
    ],
)
def test_label_selector(text: str, matches: bool) -> None:
    item = {"metadata": {"name": "n", "labels": {"a": "1", "b": "x", "e": ""}}}
    assert Selector(labels=parse_label_selector(text)).matches(item, _fields) is matches


@pytest.mark.parametrize("text", ["a=1=2", "a in 1", "(a)", "=x", "a,,b"])
def test_label_selector_that_does_not_parse(text: str) -> None:
    with pytest.raises(APIError) as caught:
        parse_label_selector(text)
    assert caught.value.code == 400


def test_field_selector() -> None:
    supported = frozenset({"metadata.name"})
    selector = Selector(fields=parse_field_selector("metadata.name=n", supported))
    assert selector.matches({"metadata": {"name": "n"}}, _fields)
    assert not selector.matches({"metadata": {"name": "m"}}, _fields)
    assert selector.single_name() == "n"
    assert Selector(fields=parse_field_selector("metadata.name!=n", supported)).single_name() == ""
    for text in ("spec.x=1", "metadata.name"):
        with pytest.raises(APIError):
            parse_field_selector(text, supported)
