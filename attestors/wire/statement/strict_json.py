"""Canonical JSON: one text for each value, so that what is signed cannot be written in two ways."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from attestors.wire.statement.errors import MalformedStatement

_LARGEST_NUMBER: Final = 2**53 - 1
"""The largest integer that every JSON reader represents exactly (RFC 8259 section 6)."""


def canonical(value: object) -> str:
    """``value`` in ASCII, without spaces, keys in the order given."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)


def load(data: bytes, *, maximum_bytes: int) -> dict[str, Any]:
    """Parse one JSON object. The caller compares the result's canonical form with ``data``.

    Raises:
        MalformedStatement: larger, not ASCII, not JSON, or not an object.
    """
    if len(data) > maximum_bytes:
        raise MalformedStatement(f"larger than {maximum_bytes} bytes")
    try:
        found = json.loads(data.decode("ascii"))
    except (ValueError, RecursionError):
        raise MalformedStatement("not JSON in ASCII") from None
    return object_of(found, "the statement")


def object_of(value: object, where: str) -> dict[str, Any]:
    """``value`` as an object.

    Raises:
        MalformedStatement: it is none.
    """
    if not isinstance(value, dict):
        raise MalformedStatement(f"{where} is not an object")
    return value


def list_of(value: object, where: str, *, maximum: int) -> list[Any]:
    """``value`` as a list of at most ``maximum`` items.

    Raises:
        MalformedStatement: it is none, or longer.
    """
    if not isinstance(value, list) or len(value) > maximum:
        raise MalformedStatement(f"{where} is not a list of at most {maximum}")
    return value


def expect_keys(found: dict[str, Any], where: str, *names: str) -> None:
    """Require exactly these keys.

    Raises:
        MalformedStatement: one is missing or unknown.
    """
    for name in names:
        if name not in found:
            raise MalformedStatement(f"{where}: {name} is missing")
    if len(found) != len(names):
        raise MalformedStatement(f"{where}: there are unknown keys beside {', '.join(names)}")


def text_of(value: object, where: str, form: re.Pattern[str]) -> str:
    """``value`` as a text that ``form`` matches as a whole.

    Raises:
        MalformedStatement: it is none.
    """
    if not isinstance(value, str) or not form.fullmatch(value):
        raise MalformedStatement(f"{where} is not of its form")
    return value


def number_of(value: object, where: str, *, minimum: int = 0, maximum: int = _LARGEST_NUMBER) -> int:
    """``value`` as an integer within bounds.

    Raises:
        MalformedStatement: it is none, or out of bounds.
    """
    if type(value) is not int or not minimum <= value <= maximum:
        raise MalformedStatement(f"{where} is not an integer from {minimum} to {maximum}")
    return value
