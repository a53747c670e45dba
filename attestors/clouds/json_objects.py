"""Strict parsing of JSON objects from clouds and from operators' files: no repeated keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn

_MAXIMUM_NESTED: Final = 512
"""Limit for objects and lists in total: more than any answer has, and below the nesting limit of Python's parser on any
stack. The parser's own limit depends on the stack, so the same hostile token could pass in one place and fail in
another."""


class InvalidObject(ValueError):
    """Not one JSON object in UTF-8 with unique keys, or a value in it is missing or of another type."""


def parse_object(content: bytes) -> Mapping[str, Any]:
    """Parse one JSON object (RFC 8259).

    Raises:
        InvalidObject: anything else, repeated keys at any depth, NaN or infinity, or more than :data:`_MAXIMUM_NESTED`
            objects and lists.
    """
    if content.count(b"{") + content.count(b"[") > _MAXIMUM_NESTED:
        raise InvalidObject(f"more than {_MAXIMUM_NESTED} objects and lists")
    try:
        document = json.loads(content.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse)
    except ValueError:
        raise InvalidObject("not JSON in UTF-8, or a key is repeated") from None
    if not isinstance(document, dict):
        raise InvalidObject("not a JSON object")
    return document


def text_of(document: Mapping[str, Any], name: str, *, maximum_characters: int = 1024) -> str:
    """A required text.

    Raises:
        InvalidObject: missing, not a text, empty or too long.
    """
    value = document.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= maximum_characters:
        raise InvalidObject(f"{name} is missing, or not a text of at most {maximum_characters} characters")
    return value


def optional_text_of(document: Mapping[str, Any], name: str, *, maximum_characters: int = 1024) -> str:
    """An optional text; empty if missing.

    Raises:
        InvalidObject: not a text, or too long.
    """
    return text_of(document, name, maximum_characters=maximum_characters) if document.get(name, "") != "" else ""


def objects_of(document: Mapping[str, Any], name: str, *, maximum: int) -> tuple[Mapping[str, Any], ...]:
    """An optional list of objects; empty if missing.

    Raises:
        InvalidObject: not a list, too long, or an item is not an object.
    """
    value = document.get(name, [])
    if not isinstance(value, list) or len(value) > maximum or not all(isinstance(one, dict) for one in value):
        raise InvalidObject(f"{name} is not a list of at most {maximum} objects")
    return tuple(value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key is repeated")
    return document


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
