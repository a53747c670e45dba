"""Between aiohttp and the client: bounded reading, and what aiohttp's failures mean."""

from __future__ import annotations

import asyncio.sslproto
import socket
import ssl
from typing import Any

import aiohttp
import msgspec

from signer.kube.allowances import Allowances, NoRoom
from signer.kube.errors import (
    AnswerTooLarge,
    ApiError,
    Cause,
    UnexpectedAnswer,
    Unreachable,
    error_for_status,
    retry_after_seconds,
)

MAXIMUM_ERROR_BODY_BYTES = 64 * 1024
TLS_READ_BUFFER_BYTES = 32 * 1024
KEEPALIVE_IDLE_SECONDS = 30
KEEPALIVE_INTERVAL_SECONDS = 10
KEEPALIVE_PROBES = 3


class _Details(msgspec.Struct):
    retry_after_seconds: int | None = msgspec.field(default=None, name="retryAfterSeconds")


class _Status(msgspec.Struct):
    """The parts of ``metav1.Status`` that are used; a body in which one has another type is no Status."""

    kind: str = ""
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_decode_status = msgspec.json.Decoder(_Status).decode


def shrink_tls_buffers() -> None:
    """Let each TLS connection of this process opened from now on have a read buffer of 32 KiB instead of 256.

    For a process with many idle watches: 0.10 MB for each instead of 0.33 (measured), at the same speed. It changes a
    class attribute of asyncio, so the program calls it, never a library; where asyncio has no such attribute it does
    nothing.
    """
    if hasattr(asyncio.sslproto.SSLProtocol, "max_size"):
        asyncio.sslproto.SSLProtocol.max_size = TLS_READ_BUFFER_BYTES


def keepalive_socket(address: tuple[Any, ...]) -> socket.socket:
    """A TCP socket that notices within a minute that the peer of a silent watch is gone (tcp(7))."""
    family, kind, protocol = address[:3]
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ):
        if hasattr(socket, option):
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return opened


def check_is_json(response: aiohttp.ClientResponse) -> None:
    """Raise UnexpectedAnswer for a body that is not plain JSON: another content type, or compressed unasked."""
    content_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise UnexpectedAnswer("the answer is not application/json", status=response.status)
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise UnexpectedAnswer("the answer is compressed, which was not asked for", status=response.status)


async def read_bounded(response: aiohttp.ClientResponse, maximum_bytes: int, allowances: Allowances) -> bytes:
    """The body; AnswerTooLarge as soon as it is, or says it will be, larger than ``maximum_bytes``; or than there is
    room for beside what others read.
    """
    # No error is a local variable here: its traceback would hold the frame, and the frame what was read, until Python's
    # collector of cycles comes by, which is seldom.
    if (response.content_length or 0) > maximum_bytes:
        raise _too_large(response, maximum_bytes)
    chunks: list[bytes] = []
    size = 0
    with allowances.room() as room:
        while chunk := await response.content.readany():
            size += len(chunk)
            if size > maximum_bytes:
                raise _too_large(response, maximum_bytes)
            try:
                room.hold(size)
            except NoRoom:
                raise AnswerTooLarge("too many large answers are being read", status=response.status) from None
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(response: aiohttp.ClientResponse, maximum_bytes: int) -> AnswerTooLarge:
    return AnswerTooLarge(f"the answer is larger than {maximum_bytes} bytes", status=response.status)


async def error_from_answer(response: aiohttp.ClientResponse, allowances: Allowances) -> ApiError:
    """The error that an answer outside 2xx means, with the Kubernetes Status of its body where there is one."""
    status = response.status
    if 300 <= status < 400:
        return UnexpectedAnswer("the server redirects, which is never followed", status=status)
    details = _Status()
    try:
        check_is_json(response)
        parsed = _decode_status(await read_bounded(response, MAXIMUM_ERROR_BODY_BYTES, allowances))
        if parsed.kind == "Status":
            details = parsed
    except (UnexpectedAnswer, msgspec.DecodeError, ValueError, RecursionError):
        pass  # no Status, so its text is not believed; the HTTP status alone still says what happened
    pause = retry_after_seconds(response.headers.get("Retry-After"))
    if pause is None and details.details is not None:
        pause = retry_after_seconds(details.details.retry_after_seconds)
    return error_for_status(status, reason=details.reason, message=details.message, retry_after_seconds=pause)


def unreachable(error: aiohttp.ClientError | OSError) -> ApiError:
    """What a failure below HTTP means. Raised ``from None``: aiohttp's texts repeat what the server sent.

    ``error`` loses its traceback: aiohttp's readers keep the error, and its frames the reader and all that was read.
    """
    error.__traceback__ = None
    if isinstance(error, TimeoutError):
        return Unreachable("timeout: the server did not answer in time", cause=Cause.TIMEOUT)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Unreachable("name resolution failed: the server's name has no address", cause=Cause.NAME_RESOLUTION)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        verification = error.certificate_error
        text = verification.verify_message if isinstance(verification, ssl.SSLCertVerificationError) else ""
        return Unreachable(f"TLS verification failed: {text or 'the server certificate is not valid'}", cause=Cause.TLS)
    if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
        cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
        reason = getattr(cause, "reason", None)
        return Unreachable(f"TLS failed: {reason or 'handshake broken off'}", cause=Cause.TLS)
    if isinstance(error, aiohttp.ClientConnectorError):
        if isinstance(error.os_error, ConnectionRefusedError):
            return Unreachable("connection refused: nothing listens there", cause=Cause.REFUSED)
        return Unreachable(f"connection failed: {error.os_error.strerror or 'network error'}", cause=Cause.NETWORK)
    if isinstance(error, aiohttp.ClientResponseError):
        return UnexpectedAnswer("the answer is not HTTP/1.1 as an API server speaks it")
    if isinstance(error, aiohttp.ClientPayloadError):
        return Unreachable("connection reset: the answer ended before its end", cause=Cause.RESET)
    if isinstance(error, aiohttp.ClientOSError) and isinstance(error.__cause__, ssl.SSLError):
        return Unreachable(f"TLS failed: {error.__cause__.reason}", cause=Cause.TLS)
    return Unreachable("connection reset: the server closed the connection", cause=Cause.RESET)
