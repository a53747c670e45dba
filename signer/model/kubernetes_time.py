"""Kubernetes' ``metav1.Time``: RFC 3339 in UTC, whole seconds (``apimachinery/pkg/apis/meta/v1/time.go``).

``MicroTime`` beside it has microseconds.
"""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime
from typing import Final

import msgspec

_WITHOUT_ZONE: Final = len("2026-01-02T03:04:05")
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


def format_time(moment: datetime) -> str:
    """As Kubernetes writes it."""
    # JSON's library writes RFC 3339, with a fraction where there is one: a fifth of what isoformat() takes.
    text: str = msgspec.to_builtins(moment.astimezone(UTC))
    return text[:_WITHOUT_ZONE] + "Z"


def format_micro_time(moment: datetime) -> str:
    """As Kubernetes writes a ``metav1.MicroTime``: always six digits behind the point (``RFC3339Micro``)."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


# A record's times are read again with each of its versions: a dictionary's look-up instead of two parsers.
@functools.lru_cache(maxsize=4096)
def parse_time(text: str) -> datetime:
    """Read a ``metav1.Time``.

    Raises:
        ValueError: of another form.
    """
    if not _TIME.fullmatch(text):
        raise ValueError("a time is of the form 2026-01-02T03:04:05Z")
    return datetime.fromisoformat(text)
