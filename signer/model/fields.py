"""Reads fields of untrusted JSON objects. A missing field, or one of another type, reads as empty or is an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MAXIMUM_NAME_CHARACTERS: Final = 253
"""Maximum length of an object's name (Kubernetes ``apimachinery/pkg/util/validation``)."""


def items_of(parent: Mapping[str, Any], key: str) -> list[Any]:
    """The list at ``key``; empty if there is none."""
    value = parent.get(key)
    return value if isinstance(value, list) else []


def mapping_of(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object at ``key``; empty if there is none."""
    value = parent.get(key)
    if type(value) is dict:  # the usual case; isinstance() with an abstract class takes three times as long
        return value
    return value if isinstance(value, Mapping) else {}


def text_of(parent: Mapping[str, Any], key: str) -> str:
    """The string at ``key``; empty if there is none."""
    value = parent.get(key)
    return value if isinstance(value, str) else ""


def short_text_of(parent: Mapping[str, Any], key: str, maximum: int = MAXIMUM_NAME_CHARACTERS) -> str:
    """The string at ``key``; empty if there is none or it is longer than ``maximum`` characters.

    Tenants write these objects, v1beta1's schema does not limit all strings, and the caches hold the views in memory.
    """
    text = text_of(parent, key)
    return text if len(text) <= maximum else ""


def required_text(parent: Mapping[str, Any], key: str) -> str:
    """The string at ``key``.

    Raises:
        KeyError: it is missing.
        TypeError: it is not a string, or ``parent`` is not an object.
        ValueError: it is empty, or not valid Unicode.
    """
    value = parent[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is not a string")
    if not value:
        raise ValueError(f"{key} is empty")
    if not value.isascii():
        value.encode("utf-8")  # raises for a lone surrogate, which has no UTF-8 and so no digest
    return value
