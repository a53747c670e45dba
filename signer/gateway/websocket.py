"""WebSockets (RFC 6455) to API servers, which may be hostile: opened, or refused as an error of signer.kube.errors.

aiohttp speaks the protocol. It would follow redirects, repeat a request whose connection was lost, and drop the text of
a refusal; a middleware prevents all three. Nothing here reads a proxy, a cookie or a credential of the environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self, TypeAlias
from urllib.parse import urlencode

import msgspec
from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientError,
    ClientHandlerType,
    ClientRequest,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ClientWebSocketResponse,
    ClientWSTimeout,
    DummyCookieJar,
    ServerDisconnectedError,
    TCPConnector,
)
from aiohttp.connector import Connection
from aiohttp.tracing import Trace
from multidict import CIMultiDict
from yarl import URL

from signer.kube.answers import MAXIMUM_ERROR_BODY_BYTES, unreachable
from signer.kube.connection import ClusterConnection
from signer.kube.errors import ApiError, Cause, UnexpectedAnswer, Unreachable, error_for_status
from signer.kube.http.messages import Origin, target

OPEN_SECONDS: Final = 30.0
"""From the connection to the answer; the API server asks the kubelet before it answers."""
CLOSE_SECONDS: Final = 2.0
"""For data that is still to be sent, and for the server's answer to the close message."""
MAXIMUM_MESSAGE_BYTES: Final = 1024 * 1024
"""Of one message with its channel. Kubelets send at most 32 KiB of data (Go's ``io.Copy``)."""
MAXIMUM_QUERY_BYTES: Final = 128 * 1024
"""API servers take 1 MiB for the head of a request (Go's ``net/http``), balancers before them often less."""

QueryFields: TypeAlias = Sequence[tuple[str, str]]
HeaderFields: TypeAlias = Sequence[tuple[str, str]]


class Upgraded(ClientWebSocketResponse):
    """An open WebSocket. One task at a time may receive; any task may send or end it."""

    async def end(self, within_seconds: float = CLOSE_SECONDS) -> None:
        """Send what is buffered and a close message, and wait for the server's; then drop the connection."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_seconds):
                    await self.close()
        finally:
            self._response.close()


class _Connector(TCPConnector):
    """Drops each connection that aiohttp gives back. To close it would wait, for up to 30 seconds, for a server that
    neither reads nor ends TLS (asyncio's ``SSL_SHUTDOWN_TIMEOUT``).
    """

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:  # noqa: ASYNC109
        connection = await super().connect(req, traces, timeout)
        if connection.transport is not None:
            connection.add_callback(connection.transport.abort)
        return connection


class WebSocketSession:
    """Opens WebSockets to any number of servers: ``async with WebSocketSession() as session``, in the event loop."""

    def __init__(self) -> None:
        self._session: ClientSession | None = None

    async def __aenter__(self) -> Self:
        if self._session is not None:
            raise RuntimeError("a session is opened once")
        self._session = ClientSession(
            connector=_Connector(limit=0, force_close=True),
            cookie_jar=DummyCookieJar(),
            timeout=ClientTimeout(total=None),
            auto_decompress=False,
            trust_env=False,
            middlewares=(_only_upgrade,),
            ws_response_class=Upgraded,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def connect(
        self,
        connection: ClusterConnection,
        tls: ssl.SSLContext,
        path: str,
        params: QueryFields,
        protocols: Sequence[str],
        fields: HeaderFields,
    ) -> Upgraded:
        """Open one at an absolute API path. ``params`` may repeat a name. ``fields`` are header fields.

        Raises:
            ApiError: the server refused, could not be reached, or chose none of ``protocols``.
            ValueError: no API call can have this path, or so many parameters.
        """
        if self._session is None:
            raise RuntimeError("the session is not open")
        origin = Origin.of(connection.server)
        query = urlencode(params)
        if len(query) > MAXIMUM_QUERY_BYTES:
            raise ValueError(f"the parameters of the call are longer than {MAXIMUM_QUERY_BYTES} bytes")
        address = f"https://{origin.authority}{origin.path_prefix}{target(path, None)}?{query}"
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                opened = await self._session.ws_connect(
                    URL(address, encoded=True),
                    protocols=tuple(protocols),
                    headers=CIMultiDict(fields),
                    ssl=tls,
                    server_hostname=connection.tls_server_name,
                    timeout=ClientWSTimeout(),  # ``end`` has one
                    autoping=False,
                    autoclose=False,
                    max_msg_size=MAXIMUM_MESSAGE_BYTES + 1,  # the first size that is refused
                )
        except TimeoutError as error:
            raise unreachable(error, origin.authority) from None
        except ClientError:
            raise UnexpectedAnswer(f"the answer is no WebSocket handshake ({origin.authority})") from None
        assert isinstance(opened, Upgraded)  # the session's class for them
        if opened.protocol is None:
            await opened.end()
            raise UnexpectedAnswer(f"the server speaks none of {', '.join(protocols)}", status=101)
        return opened


async def _only_upgrade(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """Let the answer 101 through. All else becomes an ApiError, which aiohttp neither follows nor repeats."""
    authority = request.url.authority
    try:
        response = await handler(request)
    except (ClientError, OSError) as error:  # TimeoutError is an OSError
        raise _not_answered(error, authority) from None
    if response.status == 101:
        return response
    try:
        raise await _refusal(response)
    finally:
        response.close()


def _not_answered(error: ClientError | OSError, authority: str) -> ApiError:
    if isinstance(error, ClientConnectorCertificateError) and isinstance(error.certificate_error, OSError):
        return unreachable(error.certificate_error, authority)
    if isinstance(error, ClientConnectorError):
        return unreachable(error.os_error, authority)
    if isinstance(error, ServerDisconnectedError) and not isinstance(error, TimeoutError):
        return Unreachable(f"connection reset: the server closed the connection ({authority})", cause=Cause.RESET)
    if isinstance(error, OSError):
        return unreachable(error, authority)
    return UnexpectedAnswer(f"the answer is not HTTP/1.1 as an API server speaks it ({authority})")


class _Status(msgspec.Struct):
    """The used fields of ``metav1.Status``; a body in which one has another type is no Status."""

    kind: str = ""
    reason: str = ""
    message: str = ""


_decode_status = msgspec.json.Decoder(_Status).decode


async def _refusal(response: ClientResponse) -> ApiError:
    """The error for an answer other than 101. The API server states it as a Kubernetes Status, a kubelet, whose answer
    the API server passes on, as plain text.
    """
    if 300 <= response.status < 400:
        return UnexpectedAnswer("the server redirects, which is never followed", status=response.status)
    reason, message = _stated(response.content_type, await _beginning(response))
    return error_for_status(response.status, reason=reason, message=message)


def _stated(content_type: str, body: bytes) -> tuple[str, str]:
    """Reason and message; both empty for a body that is neither a Status nor plain text."""
    try:
        if content_type == "application/json":
            status = _decode_status(body)
            return (status.reason, status.message) if status.kind == "Status" else ("", "")
        return "", body.decode().strip() if content_type == "text/plain" else ""
    except (msgspec.DecodeError, ValueError, RecursionError):
        return "", ""


async def _beginning(response: ClientResponse) -> bytes:
    """The body; empty if it is too large or incomplete, so that half a text is never taken for the whole."""
    body = bytearray()
    try:
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > MAXIMUM_ERROR_BODY_BYTES:
                return b""
    except (ClientError, OSError):
        return b""
    return bytes(body)
