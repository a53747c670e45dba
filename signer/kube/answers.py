"""Answers of API servers, which may be hostile: reads and decodes within bounds of size, values, depth, memory, time.

This module also turns failures below the Kubernetes API into errors.

A watch sends one event a line (`read_lines`). API servers store objects nested 10,000 levels deep, but Python's
decoders stop at about a thousand. One such object, in a free-form field that any tenant may write, would make a whole
list unreadable and so stop the controller for every cluster: `limit_depth` truncates it first.
"""

from __future__ import annotations

import asyncio
import math
import re
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final

import msgspec

from signer.kube.errors import (
    AnswerTooLarge,
    ApiError,
    Cause,
    UnexpectedAnswer,
    Unreachable,
    error_for_status,
    retry_after_seconds,
)
from signer.kube.http.messages import ConnectionClosed, MalformedAnswer
from signer.kube.http.pool import Response
from signer.kube.resource_limits import MemoryQuota, MemoryQuotaExceeded, ResourceLimits, Throttle

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


class WatchSilent(TimeoutError):
    """A watch sent nothing for the allowed time, and it was not yet due to end."""


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
        WatchSilent: silence for ``idle_seconds``.
        TimeoutError: the event loop's time has passed ``ends_at``.
        MalformedAnswer, OSError: the stream broke.
    """
    loop = asyncio.get_running_loop()
    pending = bytearray()
    while True:
        left_seconds = max(0.0, ends_at - loop.time())
        try:
            async with asyncio.timeout(min(idle_seconds, left_seconds)):
                chunk = await answer.read(WATCH_READ_BYTES)
        except TimeoutError:
            raise (WatchSilent if idle_seconds < left_seconds else TimeoutError) from None
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


MAXIMUM_ERROR_BODY_BYTES = 64 * 1024
TOO_MANY_ANSWERS = "too many large answers are being read"


class _Details(msgspec.Struct):
    retry_after_seconds: int | None = msgspec.field(default=None, name="retryAfterSeconds")


class _Status(msgspec.Struct):
    """The used fields of ``metav1.Status``; a body in which one has another type is no Status."""

    kind: str = ""
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_decode_status = msgspec.json.Decoder(_Status).decode


def check_is_json(answer: Response, media_type: str) -> None:
    """Raise UnexpectedAnswer if the body is not plain JSON of a stated length: another content type, compressed without
    request, or without a length, so that a truncated body would go unnoticed.
    """
    head = answer.head
    if head.content_type.partition(";")[0].strip().lower() != media_type:
        raise UnexpectedAnswer(f"the answer is not {media_type}", status=head.status)
    if head.content_encoding not in {"", "identity"}:
        raise UnexpectedAnswer("the answer is compressed, which was not asked for", status=head.status)
    if head.ends_with_connection:
        raise UnexpectedAnswer("the answer does not say where it ends", status=head.status)


async def read_bounded(
    answer: Response,
    maximum_bytes: int,
    memory_quota: MemoryQuota,
    after_chunk: Callable[[], Awaitable[object]] | None = None,
) -> bytes:
    """The body, held in ``memory_quota``; ``after_chunk`` is awaited after each chunk.

    Raises:
        AnswerTooLarge: the body is, or its stated length is, larger than ``maximum_bytes``, or the memory quota is
            exceeded.
    """
    # No error is a local variable here: its traceback would hold the frame, and the frame the data that was read, until
    # Python's cyclic garbage collector runs, which is rare.
    if (answer.head.content_length or 0) > maximum_bytes:
        raise _too_large(answer, maximum_bytes)
    chunks: list[bytes] = []
    size = 0
    while chunk := await answer.read():
        size += len(chunk)
        if size > maximum_bytes:
            raise _too_large(answer, maximum_bytes)
        try:
            memory_quota.hold(size)
        except MemoryQuotaExceeded:
            raise AnswerTooLarge(TOO_MANY_ANSWERS, status=answer.head.status) from None
        chunks.append(chunk)
        if after_chunk is not None:
            await after_chunk()
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(answer: Response, maximum_bytes: int) -> AnswerTooLarge:
    return AnswerTooLarge(f"the answer is larger than {maximum_bytes} bytes", status=answer.head.status)


async def error_from_answer(answer: Response, resource_limits: ResourceLimits) -> ApiError:
    """The error for a response outside 2xx, with the Kubernetes Status of its body if there is one."""
    status = answer.head.status
    if 300 <= status < 400:
        return UnexpectedAnswer("the server redirects, which is never followed", status=status)
    details = _Status()
    try:
        check_is_json(answer, "application/json")
        with resource_limits.memory_quota() as memory_quota:
            parsed = _decode_status(await read_bounded(answer, MAXIMUM_ERROR_BODY_BYTES, memory_quota))
        if parsed.kind == "Status":
            details = parsed
    except (UnexpectedAnswer, msgspec.DecodeError, ValueError, RecursionError):
        pass  # no Status: the text is not used, and the HTTP status alone determines the error
    pause = retry_after_seconds(answer.head.retry_after)
    if pause is None and details.details is not None:
        pause = retry_after_seconds(details.details.retry_after_seconds)
    return error_for_status(status, reason=details.reason, message=details.message, retry_after_seconds=pause)


def unreachable(error: OSError | MalformedAnswer, authority: str) -> ApiError:
    """The error for a failure below the Kubernetes API, with host and port. Raise it ``from None``.

    ``error`` loses its traceback, whose frames hold data that was read.
    """
    error.__traceback__ = None
    if isinstance(error, MalformedAnswer):
        return UnexpectedAnswer(f"the answer is not HTTP/1.1 as an API server speaks it ({authority})")
    what, cause = _connection_closed(error) if isinstance(error, ConnectionClosed) else _not_connected(error)
    return Unreachable(f"{what} ({authority})", cause=cause)


def _connection_closed(error: ConnectionClosed) -> tuple[str, Cause]:
    if error.tls_reason is not None:
        return f"TLS failed: {error.tls_reason}", Cause.TLS
    what = "the answer ended before its end" if error.within_answer else "the server closed the connection"
    return f"connection reset: {what}", Cause.RESET


def _not_connected(error: OSError) -> tuple[str, Cause]:
    if isinstance(error, WatchSilent):
        return "timeout: the watch was silent for too long", Cause.SILENCE
    if isinstance(error, TimeoutError):
        return "timeout: the server did not answer in time", Cause.TIMEOUT
    if isinstance(error, socket.gaierror):
        return "name resolution failed: the server's name has no address", Cause.NAME_RESOLUTION
    if isinstance(error, ssl.SSLCertVerificationError):
        text = getattr(error, "verify_message", None) or "the server certificate is not valid"
        return f"TLS verification failed: {text}", Cause.TLS
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {getattr(error, 'reason', None) or 'handshake broken off'}", Cause.TLS
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: nothing listens there", Cause.REFUSED
    return f"connection failed: {error.strerror or 'network error'}", Cause.NETWORK
