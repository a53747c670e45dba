"""Decoding of JSON from API servers, which may be hostile: bounds for values, depth, memory and time.

A watch sends one event a line (`read_lines`). API servers store objects nested 10,000 levels deep, but Python's
decoders stop at about a thousand. One such object, in a free-form field that any tenant may write, would make a whole
list unreadable and so stop the controller for every cluster: `limit_depth` truncates it first.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec

from signer.kube.errors import AnswerTooLarge, UnexpectedAnswer
from signer.kube.http.pool import Response
from signer.kube.resource_limits import MemoryQuota, MemoryQuotaExceeded, Throttle

MAXIMUM_VALUES: Final = 500_000
"""In one response or event: three bytes of JSON may take twenty times as much memory when decoded."""
VALUE_BYTES: Final = 100
"""Approximate memory for each value besides its text: ``{"a":{}},`` takes 85 bytes, ``"ab",`` 54 (measured)."""
_FOUR_BYTES: Final = (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4")
_FOUR_BYTES_ESCAPED: Final = (b"\\ud", b"\\uD")
"""First bytes of characters for which Python stores a text with four bytes a character; others take at most two."""
_COUNTED_BYTES: Final = 64 * 1024
"""Values of smaller texts, which nearly all events are, are not counted: they take at most four megabytes, for a
moment."""


def _number(text: str) -> float:
    """Python's float parser: msgspec's takes a hundred times as long for some numbers, such as
    ``8.9999999999999e-300``.
    """
    value = float(text)
    if math.isinf(value):
        raise ValueError("a number that is out of range")
    return value


read_object: Final = msgspec.json.Decoder(dict[str, Any], float_hook=_number).decode
"""Decode a JSON object. Raises msgspec.DecodeError, ValueError, or RecursionError."""


def decoded(raw: bytes, message: str, memory_quota: MemoryQuota) -> dict[str, Any]:
    """The JSON object in ``raw``; ``memory_quota`` then holds it instead of the previous amount.

    Raises:
        AnswerTooLarge: it holds more than ``MAXIMUM_VALUES`` values.
        MemoryQuotaExceeded: the quota has no memory for it now.
        UnexpectedAnswer: it is no JSON object; the error has ``message``.
    """
    if len(raw) > _COUNTED_BYTES:
        values = count_values(raw)
        if values > MAXIMUM_VALUES:
            raise AnswerTooLarge(f"the answer holds more than {MAXIMUM_VALUES} values", status=200)
        memory_quota.hold(_width(raw) * len(raw) + VALUE_BYTES * values)
    try:
        try:
            return read_object(raw)
        except RecursionError:
            return read_object(limit_depth(raw))
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise UnexpectedAnswer(message, status=200) from None


def _width(raw: bytes) -> int:
    is_ascii, is_escaped = raw.isascii(), b"\\u" in raw
    if not is_ascii and any(beginning in raw for beginning in _FOUR_BYTES):
        return 4
    if is_escaped and any(beginning in raw for beginning in _FOUR_BYTES_ESCAPED):
        return 4
    return 1 if is_ascii and not is_escaped else 2


def count_values(raw: bytes) -> int:
    """An upper bound of the number of values, without decoding."""
    # Each value follows a comma, except the first of an array or object, which follows an opening bracket.
    return sum(map(raw.count, (b",", b"[", b"{")))


MAXIMUM_DEPTH: Final = 128
"""Deeper values are read as null. No field that the controller reads is deeper than ten levels."""

# One match for each bracket, with all text before it. Strings are skipped whole, with the brackets in them. The pattern
# cannot backtrack. An unterminated string extends to the end of the text; otherwise each escaped quote in it would be
# tried as the start of another string.
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
_TOKEN: Final = re.compile(rb'(?:[^"\[\]{}]++|%b)*+([\[\]{}]|\Z)' % _STRING, re.DOTALL)
_OPENING: Final = frozenset({b"[", b"{"})
_CLOSING: Final = frozenset({b"]", b"}"})


def limit_depth(raw: bytes) -> bytes:
    """``raw`` with every value below :data:`MAXIMUM_DEPTH` replaced by ``null``; iterative, in linear time.

    Text that is not JSON stays invalid: the decoder refuses it afterwards.
    """
    kept: list[bytes] = []
    depth = 0
    copied_to = 0
    for match in _TOKEN.finditer(raw):
        token = match[1]
        if token in _OPENING:
            depth += 1
            if depth == MAXIMUM_DEPTH + 1:
                kept.append(raw[copied_to : match.start(1)])
        elif token in _CLOSING:
            depth -= 1
            if depth == MAXIMUM_DEPTH:
                kept.append(b"null")
                copied_to = match.end()
    if depth <= MAXIMUM_DEPTH:
        kept.append(raw[copied_to:])
    return b"".join(kept)


WATCH_READ_BYTES = 16 * 1024
"""Bytes of a watch that are read at once: at most about ten milliseconds of work before the event loop runs other
tasks."""
TOO_MANY_EVENTS = "too many large events are being read"


async def read_lines(
    answer: Response,
    throttle: Throttle,
    memory_quota: MemoryQuota,
    idle_seconds: float,
    ends_at: float,
    *,
    maximum_bytes: int,
) -> AsyncGenerator[bytes, None]:
    """Complete lines of a watch. The caller handles a line before it requests the next; its time counts too.

    Raises:
        UnexpectedAnswer: a line is too large or truncated, or the memory quota is exceeded.
        TimeoutError: silence for ``idle_seconds``, or the event loop's time has passed ``ends_at``.
        MalformedAnswer, OSError: the stream broke.
    """
    loop = asyncio.get_running_loop()
    pending = bytearray()
    while True:
        async with asyncio.timeout(min(idle_seconds, max(0.0, ends_at - loop.time()))):
            chunk = await answer.read(WATCH_READ_BYTES)
        if loop.time() > ends_at:  # a stream that never pauses would never meet the timeout above
            raise TimeoutError
        if not chunk:
            break
        began = time.thread_time()
        *complete, rest = chunk.split(b"\n")
        for line in complete:
            if len(pending) + len(line) > maximum_bytes:
                raise UnexpectedAnswer("the watch holds an event that is too large", status=200)
            yield bytes(pending + line) if pending else line
            pending.clear()
        pending += rest
        if len(pending) > maximum_bytes:
            raise UnexpectedAnswer("the watch holds an event that is too large", status=200)
        try:
            memory_quota.hold(len(pending))
        except MemoryQuotaExceeded:
            raise UnexpectedAnswer(TOO_MANY_EVENTS, status=200) from None
        await throttle.after(time.thread_time() - began)
    if pending:
        raise UnexpectedAnswer("the watch ended within an event", status=200)
