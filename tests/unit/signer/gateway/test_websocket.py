from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import ssl

import pytest
from aiohttp import web

from signer.gateway import websocket as websocket_module
from signer.gateway.person import Person, PersonAPI
from signer.gateway.websocket import WebSocketSession
from signer.kube.connection import ClusterConnection
from signer.kube.errors import (
    ApiError,
    Cause,
    Forbidden,
    Invalid,
    NotFound,
    ResourceNotServed,
    ServerError,
    Unauthorized,
    UnexpectedAnswer,
    Unreachable,
)
from tests.unit.signer.kube.support import (
    Authority,
    Pair,
    Server,
    aiohttp_server,
    http_answer,
    raw_server,
    server_context,
    status_body,
)

PATH = "/api/v1/namespaces/default/pods/web-0/exec"
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
ALICE = Person.of_creator("alice")


async def opening(connection: ClusterConnection, session: WebSocketSession, path: str = PATH) -> None:
    async with PersonAPI(connection, ALICE, session) as api:
        opened = await api.websocket(path, (("container", "app"),), PROTOCOLS)
        await opened.end()


async def refusal(connection: ClusterConnection, session: WebSocketSession) -> ApiError:
    with pytest.raises(ApiError) as raised:
        await opening(connection, session)
    return raised.value


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, "BadRequest", Invalid),
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (500, "InternalError", ServerError),
        (200, "Odd", UnexpectedAnswer),
    ],
)
async def test_refusals_of_the_api_server(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession, status: int, reason: str, kind: type[ApiError]
) -> None:
    text = 'container \x1b[31m"nosuch" is not valid for pod web-0'

    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=status_body(status, reason, text), status=status, content_type="application/json")

    async with aiohttp_server(authority, handler, context=tls) as server:
        error = await refusal(server.connection, session)
    assert type(error) is kind
    assert (error.status, error.reason) == (status, reason)
    assert error.message == r'container \x1b[31m"nosuch" is not valid for pod web-0'
    assert server.requests == [f"GET {PATH}?container=app"]


async def test_refusals_of_the_kubelet_are_plain_text(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession
) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text='container not found ("nosuch")\n', status=404)

    async with aiohttp_server(authority, handler, context=tls) as server:
        error = await refusal(server.connection, session)
    assert isinstance(error, NotFound)
    assert error.message == 'container not found ("nosuch")'


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"<html>", "text/html"),
        (b"x" * 100_000, "text/plain"),
        (b"\xff", "text/plain"),
        (b"{", "application/json"),
        (b'{"kind":"Pod","message":"x"}', "application/json"),
        (b'{"kind":"Status","message":["x"]}', "application/json"),
        (b"[" * 50_000, "application/json"),
    ],
)
async def test_a_text_that_is_not_the_servers_is_not_shown(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession, body: bytes, content_type: str
) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=body, status=404, content_type=content_type)

    async with aiohttp_server(authority, handler, context=tls) as server:
        error = await refusal(server.connection, session)
    assert isinstance(error, ResourceNotServed)
    assert error.message == "HTTP status 404, without a Kubernetes Status: this resource is not served there"


async def test_an_endless_refusal_ends(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=500)
        await response.prepare(request)
        while True:
            await response.write(b"x" * 1000)
            await asyncio.sleep(0)  # otherwise, the end of the connection would never be told

    async with aiohttp_server(authority, handler, context=tls) as server:
        assert isinstance(await refusal(server.connection, session), ServerError)


async def test_credentials_in_a_refusal_are_redacted(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession
) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text=f"you sent {request.headers['Authorization']}", status=500)

    async with aiohttp_server(authority, handler, context=tls) as server:
        connection = dataclasses.replace(server.connection, bearer_token="t0ken" * 4)
        error = await refusal(connection, session)
    assert error.message == "you sent [redacted]"


@pytest.mark.parametrize("status", ["301 Moved Permanently", "302 Found", "303 See Other", "307 T", "308 P"])
async def test_a_redirect_is_not_followed(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession, status: str
) -> None:
    async with raw_server(authority, lambda line, writer: asyncio.sleep(0), context=tls) as other:

        async def script(line: str, writer: asyncio.StreamWriter) -> None:
            target = f"Location: https://127.0.0.1:{other.port}{PATH}\r\n"
            writer.write(http_answer(b"", status=status, headers=target))

        async with raw_server(authority, script, context=tls) as server:
            error = await refusal(server.connection, session)
    assert isinstance(error, UnexpectedAnswer)
    assert "redirects" in error.message
    assert (len(server.requests), other.requests) == (1, [])


async def test_a_lost_request_is_not_repeated(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession
) -> None:
    """The command may be running."""
    async with raw_server(authority, lambda line, writer: asyncio.sleep(0), context=tls) as server:
        error = await refusal(server.connection, session)
    assert isinstance(error, Unreachable)
    assert error.cause is Cause.RESET
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\nConnection: Upgrade\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n",
    ],
    ids=["no HTTP", "no upgrade", "another upgrade", "another request's answer"],
)
async def test_an_answer_that_is_no_handshake(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession, answer: bytes
) -> None:
    async def script(line: str, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    async with raw_server(authority, script, context=tls) as server:
        assert isinstance(await refusal(server.connection, session), UnexpectedAnswer)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [http_answer(b"no", status="403 Forbidden"), b"HTTP/1.1 101 Switching Protocols\r\n\r\n"],
    ids=["refused", "no handshake"],
)
async def test_a_server_that_does_not_end_tls_keeps_no_connection(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession, answer: bytes
) -> None:
    """The connection ends, although the server does not answer the end of TLS."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)

        def serve() -> None:
            accepted, _ = listener.accept()
            accepted.settimeout(20)
            with tls.wrap_socket(accepted, server_side=True) as served:
                assert served.recv(65536).startswith(b"GET ")
                served.sendall(answer)
                with socket.socket(fileno=served.detach()) as raw, contextlib.suppress(ConnectionResetError):
                    raw.settimeout(20)
                    while raw.recv(65536):
                        pass

        server = Server(port=listener.getsockname()[1], authority=authority.certificate)
        served = asyncio.create_task(asyncio.to_thread(serve))
        assert isinstance(await refusal(server.connection, session), ApiError)
        await served


async def test_nobody_listens(authority: Authority, session: WebSocketSession, unused_port: int) -> None:
    server = Server(port=unused_port, authority=authority.certificate)
    error = await refusal(server.connection, session)
    assert isinstance(error, Unreachable)
    assert (error.cause, error.message) == (
        Cause.REFUSED,
        f"connection refused: nothing listens there (127.0.0.1:{unused_port})",
    )


async def test_a_server_that_does_not_answer(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket_module, "OPEN_SECONDS", 0.1)

    async def script(line: str, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with raw_server(authority, script, context=tls) as server:
        error = await refusal(server.connection, session)
    assert isinstance(error, Unreachable)
    assert error.cause is Cause.TIMEOUT


async def test_a_server_of_another_authority(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession
) -> None:
    async with aiohttp_server(Authority("another"), never_asked, context=tls) as server:
        error = await refusal(server.connection, session)
    assert isinstance(error, Unreachable)
    assert error.cause is Cause.TLS
    assert server.requests == []


async def test_the_name_that_is_verified(authority: Authority, tls: ssl.SSLContext, session: WebSocketSession) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        websocket = web.WebSocketResponse(protocols=PROTOCOLS)
        await websocket.prepare(request)
        await websocket.close()
        return websocket

    async with aiohttp_server(authority, handler, context=tls) as server:
        await opening(dataclasses.replace(server.connection, tls_server_name="api.example"), session)
        other = dataclasses.replace(server.connection, tls_server_name="other.example")
        error = await refusal(other, session)
    assert isinstance(error, Unreachable)
    assert error.cause is Cause.TLS
    assert len(server.requests) == 1


async def test_credentials_of_the_connection(
    authority: Authority, session: WebSocketSession, client_pair: Pair
) -> None:
    seen: list[tuple[str, bool]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append((request.headers["Authorization"], bool(request.get_extra_info("ssl_object").getpeercert())))
        websocket = web.WebSocketResponse(protocols=PROTOCOLS)
        await websocket.prepare(request)
        await websocket.close()
        return websocket

    context = server_context(authority.issue("server", "127.0.0.1"), authority.certificate)
    async with aiohttp_server(authority, handler, context=context) as server:
        connection = dataclasses.replace(
            server.connection,
            client_certificate=client_pair.certificate,
            client_key=client_pair.key,
            bearer_token="secret",
        )
        await opening(connection, session)
        assert seen == [("Bearer secret", True)]


async def never_asked(request: web.Request) -> web.StreamResponse:
    raise AssertionError


@pytest.mark.parametrize("path", ["/api/../secrets", "/api?x", "/api//x", "api", "/api/%2e%2e"])
async def test_a_path_that_is_no_calls_is_not_asked(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession, path: str
) -> None:
    async with aiohttp_server(authority, never_asked, context=tls) as server:
        with pytest.raises(ValueError, match="an API path"):
            await opening(server.connection, session, path)
    assert server.requests == []


async def test_a_session_is_open() -> None:
    async with WebSocketSession() as session:
        with pytest.raises(RuntimeError, match="once"):
            await session.__aenter__()
    closed = WebSocketSession()
    connection = Server(port=1, authority=b"").connection
    with pytest.raises(RuntimeError, match="not open"):
        await closed.connect(connection, ssl.create_default_context(), PATH, (), PROTOCOLS, ())
