"""Reading fields of JSON objects that others wrote: what is missing, or of another type, is empty, or an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MAXIMUM_NAME_CHARACTERS: Final = 253
"""Of an object's name (Kubernetes ``apimachinery/pkg/util/validation``)."""


def items_of(parent: Mapping[str, Any], key: str) -> list[Any]:
    """The list at ``key``; empty where there is none."""
    value = parent.get(key)
    return value if isinstance(value, list) else []


def mapping_of(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object at ``key``; empty where there is none."""
    value = parent.get(key)
    if type(value) is dict:  # what JSON gives; asking an abstract class costs three times as much
        return value
    return value if isinstance(value, Mapping) else {}


def text_of(parent: Mapping[str, Any], key: str) -> str:
    """The text at ``key``; empty where there is none."""
    value = parent.get(key)
    return value if isinstance(value, str) else ""


def short_text_of(parent: Mapping[str, Any], key: str, maximum: int = MAXIMUM_NAME_CHARACTERS) -> str:
    """The text at ``key``; empty where there is none, or one that is too long to be what it should be.

    Tenants write these objects, and v1beta1's schema does not limit all of their texts: views are kept in memory.
    """
    text = text_of(parent, key)
    return text if len(text) <= maximum else ""


def required_text(parent: Mapping[str, Any], key: str) -> str:
    """The text at ``key``.

    Raises:
        KeyError: missing.
        TypeError: not text, or ``parent`` is no object.
        ValueError: empty, or no Unicode.
    """
    value = parent[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is not text")
    if not value:
        raise ValueError(f"{key} is empty")
    if not value.isascii():
        value.encode("utf-8")  # a lone surrogate has no UTF-8, and so no digest
    return value
