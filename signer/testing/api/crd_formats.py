"""Formats of texts in schemas. A format that is not here restricts nothing.

Follows k8s.io/kube-openapi ``pkg/validation/strfmt`` as far as Python's own parsers agree with Go's.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from ipaddress import IPv4Address, IPv6Address, ip_interface
from typing import Final

MICRO_TIME: Final = "kubernetes micro time"
"""Not a format of OpenAPI: metav1.MicroTime of built-in types, which has six digits behind the second, always."""
_LABEL: Final = "[a-zA-Z0-9](?:[-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?"


def format_matches(value: str, wanted: str) -> bool:
    """Whether a text has this format."""
    if (pattern := _PATTERNS.get(wanted)) is not None:
        return pattern.fullmatch(value) is not None
    if (parse := _PARSERS.get(wanted)) is None:
        return True
    try:
        parse(value)
    except ValueError:
        return False
    return True


def _date_time(value: str) -> None:
    if "T" not in value.upper() or datetime.fromisoformat(value.upper()).tzinfo is None:
        raise ValueError


def _date(value: str) -> None:
    if len(value) != len("2006-01-02"):
        raise ValueError
    date.fromisoformat(value)


def _cidr(value: str) -> None:
    if not value.rpartition("/")[2].isdecimal() or "/" not in value:
        raise ValueError
    ip_interface(value)


_PATTERNS: Final[Mapping[str, re.Pattern[str]]] = {
    MICRO_TIME: re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(?:Z|[+-]\d\d:\d\d)", re.ASCII),
    "duration": re.compile(r"[+-]?(?:\d+(?:\.\d*)?(?:ns|us|µs|ms|s|m|h))+|0", re.ASCII),
    "uuid": re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}", re.ASCII | re.IGNORECASE),
    "hostname": re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?"),
    "mac": re.compile(r"[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4}(?:(?:[0-9a-f]{2}\1){2})?[0-9a-f]{2}", re.IGNORECASE),
    "email": re.compile(r"[^@]+@[^@]+"),
    "uri": re.compile(r"(?:[a-z][-a-z0-9+.]*:|/)\S*", re.IGNORECASE),
}
_PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    "date-time": _date_time,
    "date": _date,
    "byte": lambda value: base64.b64decode(value, validate=True),
    "ipv4": IPv4Address,
    "ipv6": IPv6Address,
    "cidr": _cidr,
}
