"""JSON of API servers, which may be hostile: to objects, within bounds of values, memory and time."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from signer.kube.depth_limit import shallow
from signer.kube.errors import AnswerTooLarge, UnexpectedAnswer
from signer.kube.resource_limits import MemoryQuota

MAXIMUM_VALUES: Final = 500_000
"""In one answer or event: what takes three bytes of JSON takes twenty times as much when it is read."""
VALUE_BYTES: Final = 100
"""Of memory for each value, about, beside its text: each of ``{"a":{}},`` takes 85, of ``"ab",`` 54 (measured)."""
_FOUR_BYTES: Final = (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4")
_FOUR_BYTES_ESCAPED: Final = (b"\\ud", b"\\uD")
"""What a character begins with for which Python takes four bytes for each of its text; for others at most two."""
_COUNTED_BYTES: Final = 64 * 1024
"""Of what is smaller, as nearly all events are, nothing is counted: it takes four megabytes at most, for a moment."""


def _number(text: str) -> float:
    """Python's own reading: msgspec's takes a hundred times as long over some, ``8.9999999999999e-300`` for one."""
    value = float(text)
    if math.isinf(value):
        raise ValueError("a number that is out of range")
    return value


read_object: Final = msgspec.json.Decoder(dict[str, Any], float_hook=_number).decode
"""A JSON object. Raises msgspec.DecodeError, ValueError, or RecursionError."""


def decoded(raw: bytes, message: str, memory_quota: MemoryQuota) -> dict[str, Any]:
    """The JSON object in ``raw``; it is held in ``memory_quota`` afterwards, instead of what was.

    Raises:
        AnswerTooLarge: it holds more than ``MAXIMUM_VALUES`` values.
        MemoryQuotaExceeded: there is no memory for it just now.
        UnexpectedAnswer: it is no JSON object, of which ``message`` is said.
    """
    if len(raw) > _COUNTED_BYTES:
        values = values_in(raw)
        if values > MAXIMUM_VALUES:
            raise AnswerTooLarge(f"the answer holds more than {MAXIMUM_VALUES} values", status=200)
        memory_quota.hold(_width(raw) * len(raw) + VALUE_BYTES * values)
    try:
        try:
            return read_object(raw)
        except RecursionError:
            return read_object(shallow(raw))
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise UnexpectedAnswer(message, status=200) from None


def _width(raw: bytes) -> int:
    is_ascii, is_escaped = raw.isascii(), b"\\u" in raw
    if not is_ascii and any(beginning in raw for beginning in _FOUR_BYTES):
        return 4
    if is_escaped and any(beginning in raw for beginning in _FOUR_BYTES_ESCAPED):
        return 4
    return 1 if is_ascii and not is_escaped else 2


def values_in(raw: bytes) -> int:
    """How many there are at most, without reading them."""
    # Each value but the first of its array or object follows a comma, and each array and object begins once.
    return sum(map(raw.count, (b",", b"[", b"{")))
