"""Between HTTP and the client: bounded reading, and what failures below the Kubernetes API mean."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable

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
from signer.kube.resource_limits import MemoryQuota, MemoryQuotaExceeded, ResourceLimits

MAXIMUM_ERROR_BODY_BYTES = 64 * 1024
TOO_MANY_ANSWERS = "too many large answers are being read"


class _Details(msgspec.Struct):
    retry_after_seconds: int | None = msgspec.field(default=None, name="retryAfterSeconds")


class _Status(msgspec.Struct):
    """The parts of ``metav1.Status`` that are used; a body in which one has another type is no Status."""

    kind: str = ""
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_decode_status = msgspec.json.Decoder(_Status).decode


def check_is_json(answer: Response) -> None:
    """Raise UnexpectedAnswer for a body that is not plain JSON: another content type, compressed unasked, or of no
    length that the server says: it may have been cut off.
    """
    head = answer.head
    if head.content_type.partition(";")[0].strip().lower() != "application/json":
        raise UnexpectedAnswer("the answer is not application/json", status=head.status)
    if head.content_encoding not in {"", "identity"}:
        raise UnexpectedAnswer("the answer is compressed, which was not asked for", status=head.status)
    if head.ends_with_connection:
        raise UnexpectedAnswer("the answer does not say where it ends", status=head.status)


async def read_bounded(
    answer: Response, maximum_bytes: int, memory_quota: MemoryQuota, rest: Callable[[], Awaitable[object]] | None = None
) -> bytes:
    """The body, held in ``memory_quota``; AnswerTooLarge as soon as it is, or says it will be, larger than
    ``maximum_bytes``, or than there is room for beside what others read. ``rest`` is awaited after each piece.
    """
    # No error is a local variable here: its traceback would hold the frame, and the frame what was read, until Python's
    # collector of cycles comes by, which is seldom.
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
        if rest is not None:
            await rest()
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(answer: Response, maximum_bytes: int) -> AnswerTooLarge:
    return AnswerTooLarge(f"the answer is larger than {maximum_bytes} bytes", status=answer.head.status)


async def error_from_answer(answer: Response, resource_limits: ResourceLimits) -> ApiError:
    """The error that an answer outside 2xx means, with the Kubernetes Status of its body where there is one."""
    status = answer.head.status
    if 300 <= status < 400:
        return UnexpectedAnswer("the server redirects, which is never followed", status=status)
    details = _Status()
    try:
        check_is_json(answer)
        with resource_limits.memory_quota() as memory_quota:
            parsed = _decode_status(await read_bounded(answer, MAXIMUM_ERROR_BODY_BYTES, memory_quota))
        if parsed.kind == "Status":
            details = parsed
    except (UnexpectedAnswer, msgspec.DecodeError, ValueError, RecursionError):
        pass  # no Status, so its text is not believed; the HTTP status alone still says what happened
    pause = retry_after_seconds(answer.head.retry_after)
    if pause is None and details.details is not None:
        pause = retry_after_seconds(details.details.retry_after_seconds)
    return error_for_status(status, reason=details.reason, message=details.message, retry_after_seconds=pause)


def unreachable(error: OSError | MalformedAnswer, authority: str) -> ApiError:
    """What a failure below the Kubernetes API means, and where it was: host and port. Raised ``from None``.

    ``error`` loses its traceback, whose frames hold what was read.
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
