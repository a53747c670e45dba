"""Reads fields of untrusted JSON objects. A missing field, or one of another type, reads as empty or is an error.

Times are Kubernetes' ``metav1.Time``: RFC 3339 in UTC, whole seconds (``apimachinery/pkg/apis/meta/v1/time.go``).
``metav1.MicroTime`` has microseconds.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

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


@functools.lru_cache(maxsize=4096)
def shared_text(text: str) -> str:
    """One object for equal texts, of which there are few, and as many holders as Machines.

    Not ``sys.intern``: tenants choose these texts, and early releases of CPython 3.12 never free an interned one
    (python/cpython issue 113993). A tenant that keeps changing a Machine would fill the controller's memory.
    """
    return text


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


_WITHOUT_ZONE: Final = len("2026-01-02T03:04:05")
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


def format_time(moment: datetime) -> str:
    """A ``metav1.Time``. Fractions of a second are dropped."""
    # msgspec writes RFC 3339, with a fraction if there is one, in a fifth of the time of isoformat().
    text: str = msgspec.to_builtins(moment.astimezone(UTC))
    return text[:_WITHOUT_ZONE] + "Z"


def format_micro_time(moment: datetime) -> str:
    """A ``metav1.MicroTime``: always with six decimals (``RFC3339Micro``)."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


# Each version of a record repeats most of its times: the cache replaces two parsers by one look-up.
@functools.lru_cache(maxsize=4096)
def parse_time(text: str) -> datetime:
    """Read a ``metav1.Time``.

    Raises:
        ValueError: it has another form.
    """
    if not _TIME.fullmatch(text):
        raise ValueError("a time must have the form 2026-01-02T03:04:05Z")
    return datetime.fromisoformat(text)


def required_time(parent: Mapping[str, Any], key: str) -> datetime:
    """The time at ``key``.

    Raises:
        KeyError, TypeError, ValueError: it is missing, or not a time in Kubernetes' format.
    """
    return parse_time(required_text(parent, key))
