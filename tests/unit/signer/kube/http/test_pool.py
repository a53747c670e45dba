"""Connections: which request uses which, which response belongs to which, and what a hostile server can do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from signer.kube.client import Client
from signer.kube.errors import Cause, ServerError, UnexpectedAnswer, Unreachable
from signer.kube.http import pool as pool_module
from signer.kube.http.dial import Dialer
from signer.kube.http.messages import ConnectionClosed, Origin, RequestWriter
from signer.kube.http.pool import MAXIMUM_HELD_BYTES, HttpConnection, Pool
from signer.kube.tls import client_context
from tests.unit.signer.kube.http.conversation import Conversation, Talkative, conversations
from tests.unit.signer.kube.support import Authority, http_answer, status_body

PATH = "/api/v1/secrets"
EVIL = http_answer(b'{"evil":true}')
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
Script = Callable[[Conversation], Awaitable[None]]


@contextlib.asynccontextmanager
async def client_of(
    authority: Authority, tls: ssl.SSLContext, script: Script
) -> AsyncIterator[tuple[Client, Talkative]]:
    async with conversations(authority, tls, script) as server, Client(server.connection) as client:
        yield client, server


async def answering(conversation: Conversation) -> None:
    """A permanent identity of the connection."""
    while True:
        await conversation.hear()
        await conversation.say(http_answer(b'{"connection":%d}' % conversation.number))


async def test_a_connection_is_reused(authority: Authority, tls: ssl.SSLContext) -> None:
    async with client_of(authority, tls, answering) as (client, server):
        for _ in range(3):
            assert await client.get(PATH) == {"connection": 0}
            assert await client.create(PATH, {"a": 1}) == {"connection": 0}
        with pytest.raises(UnexpectedAnswer):  # a refusal that was read whole does not cost the connection
            await anext(client.watch(PATH, timeout_seconds=1))
        assert server.opened == 1
    assert server.asked[1].body == b'{"a":1}'


@pytest.mark.parametrize(
    "response",
    [
        http_answer(b"{}", headers="Content-Type: application/json\r\nConnection: close\r\n"),
        http_answer(b"{}").replace(b"HTTP/1.1", b"HTTP/1.0"),
        http_answer(b"{}") + EVIL,
        http_answer(b"{}") + b"x",
    ],
    ids=["close", "older", "with another behind", "with a byte behind"],
)
async def test_a_connection_that_is_not_reused(authority: Authority, tls: ssl.SSLContext, response: bytes) -> None:
    async def script(conversation: Conversation) -> None:
        while True:
            await conversation.hear()
            await conversation.say(response)

    async with client_of(authority, tls, script) as (client, server):
        for _ in range(3):
            assert await client.get(PATH) == {}
    assert [number for number, _ in server.lines] == [0, 1, 2]


@pytest.mark.parametrize("later", [EVIL, b"\r\n", b"x"])
@pytest.mark.parametrize("seen", [True, False], ids=["seen by the event loop", "not seen yet"])
async def test_unrequested_data_is_never_taken_for_a_response(
    authority: Authority, tls: ssl.SSLContext, later: bytes, seen: bool
) -> None:
    got, said = asyncio.Event(), asyncio.Event()

    async def script(conversation: Conversation) -> None:
        await conversation.hear()
        await conversation.say(http_answer(b"{}"))
        if conversation.number == 0:
            await got.wait()
            await conversation.say(later)
            said.set()
        await conversation.hear()
        await conversation.say(EVIL)

    async with client_of(authority, tls, script) as (client, server):
        await client.get(PATH)
        got.set()
        await said.wait()
        if seen:
            await asyncio.wait_for(server.gone[0].wait(), 5)
        assert await client.get(PATH) == {}
    assert [number for number, _ in server.lines] == [0, 1]


@pytest.mark.parametrize("seen", [True, False], ids=["seen by the event loop", "not seen yet"])
async def test_a_connection_closed_by_the_server_is_not_reused(
    authority: Authority, tls: ssl.SSLContext, seen: bool
) -> None:
    """Even if the request could not be repeated."""
    closed = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        await conversation.hear()
        await conversation.say(http_answer(b"{}"))
        conversation.writer.transport.abort()
        closed.set()

    async with client_of(authority, tls, script) as (client, server):
        for _ in range(3):
            assert await client.create(PATH, {}) == {}
            await closed.wait()
            closed.clear()
            for _ in range(20 * seen):
                await asyncio.sleep(0)
    assert [number for number, _ in server.lines] == [0, 1, 2]


async def _get(client: Client) -> object:
    return await client.get(PATH)


async def _create(client: Client) -> object:
    return await client.create(PATH, {})


async def _replace(client: Client) -> object:
    return await client.replace(PATH, {})


async def _patch(client: Client) -> object:
    return await client.patch(PATH, {})


async def _delete(client: Client) -> object:
    return await client.delete(PATH)


async def _hang_up_on_the_second(conversation: Conversation) -> None:
    await conversation.hear()
    await conversation.say(http_answer(b'{"connection":%d}' % conversation.number))
    await conversation.hear()


async def test_a_repeatable_request_is_sent_again_once(authority: Authority, tls: ssl.SSLContext) -> None:
    async with client_of(authority, tls, _hang_up_on_the_second) as (client, server):
        assert [await client.get(PATH) for _ in range(3)] == [{"connection": number} for number in range(3)]
    assert [number for number, _ in server.lines] == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("call", [_create, _replace, _patch, _delete])
async def test_a_request_that_may_have_taken_effect_is_not_sent_again(
    authority: Authority, tls: ssl.SSLContext, call: Callable[[Client], Awaitable[object]]
) -> None:
    async with client_of(authority, tls, _hang_up_on_the_second) as (client, server):
        await client.get(PATH)
        with pytest.raises(Unreachable, match="the server closed the connection") as raised:
            await call(client)
        assert raised.value.cause is Cause.RESET
    assert [number for number, _ in server.lines] == [0, 0]


async def test_on_a_new_connection_nothing_is_sent_again(authority: Authority, tls: ssl.SSLContext) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.hear()

    async with client_of(authority, tls, script) as (client, server):
        with pytest.raises(Unreachable):
            await client.get(PATH)
    assert server.opened == 1


async def test_nothing_is_sent_again_after_the_response_began(authority: Authority, tls: ssl.SSLContext) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.hear()
        await conversation.say(http_answer(b"{}"))
        await conversation.hear()
        await conversation.say(b"H")

    async with client_of(authority, tls, script) as (client, server):
        await client.get(PATH)
        with pytest.raises(Unreachable, match="ended before its end"):
            await client.get(PATH)
    assert server.opened == 1


async def test_the_response_to_a_cancelled_call_is_dropped(authority: Authority, tls: ssl.SSLContext) -> None:
    heard, release = asyncio.Event(), asyncio.Event()

    async def script(conversation: Conversation) -> None:
        await conversation.hear()
        if conversation.number == 0:
            heard.set()
            await release.wait()
            await conversation.say(EVIL)
            await conversation.hear()
        await conversation.say(http_answer(b"{}"))

    async with client_of(authority, tls, script) as (client, server):
        call = asyncio.create_task(client.get(PATH))
        await heard.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        release.set()
        assert await client.get(PATH) == {}
        await asyncio.wait_for(server.gone[0].wait(), 5)
    assert [number for number, _ in server.lines] == [0, 1]


async def test_a_connection_with_unread_data_is_not_kept(authority: Authority, tls: ssl.SSLContext) -> None:
    """An error that is no JSON is not read. If all of it has arrived the connection is reused, else closed."""

    async def script(conversation: Conversation) -> None:
        await conversation.hear()
        await conversation.say(b"HTTP/1.1 502 X\r\nContent-Type: text/html\r\nContent-Length: 100\r\n\r\n<p>")
        await conversation.hear()

    async with client_of(authority, tls, script) as (client, server):
        with pytest.raises(ServerError):
            await client.get(PATH)
        await asyncio.wait_for(server.gone[0].wait(), 5)


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
async def test_a_response_must_state_its_length(authority: Authority, tls: ssl.SSLContext, version: str) -> None:
    """An attacker that can cut the connection could truncate it, and asyncio does not report whether TLS ended in
    order.
    """
    status = ["200 OK", "503 X"]

    async def script(conversation: Conversation) -> None:
        await conversation.hear()
        head = f"{version} {status.pop(0)}\r\nContent-Type: application/json\r\nRetry-After: 3\r\n\r\n"
        await conversation.say(head.encode() + status_body(503, "ServiceUnavailable"))

    async with client_of(authority, tls, script) as (client, _):
        with pytest.raises(UnexpectedAnswer, match="does not say where it ends"):
            await client.get(PATH)
        with pytest.raises(ServerError, match="without a Kubernetes Status") as raised:
            await client.get(PATH)
    assert raised.value.retry_after_seconds == 3


@pytest.mark.parametrize(
    ("begin", "again"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 100),
        (b"HTTP/1.1 200 OK\r\nX: ", b"y" * 1000),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
        (CHUNKED + b"1;", b"x" * 1000),
        (CHUNKED + b"0\r\n", b"X: y\r\n" * 100),
    ],
    ids=["head", "field", "informational", "chunk extension", "trailers"],
)
async def test_an_endless_response_is_cut_off(
    authority: Authority, tls: ssl.SSLContext, begin: bytes, again: bytes
) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.hear()
        await conversation.say(begin)
        while True:
            await conversation.say(again)
            await asyncio.sleep(0)

    async with client_of(authority, tls, script) as (client, server):
        with pytest.raises(UnexpectedAnswer, match="not HTTP"):
            await client.get(PATH)
        await asyncio.wait_for(server.gone[0].wait(), 5)


async def test_a_response_before_the_request_is_sent(authority: Authority, tls: ssl.SSLContext) -> None:
    """It counts. The rest of the request is not sent: the next one uses another connection."""

    async def script(conversation: Conversation) -> None:
        if conversation.number == 0:
            assert await conversation.reader.read(1) == b"P"
            await conversation.say(http_answer(status_body(413, "RequestEntityTooLarge"), status="413 X"))
        await conversation.hear()
        await conversation.say(http_answer(b"{}"))

    async with client_of(authority, tls, script) as (client, server):
        with pytest.raises(UnexpectedAnswer) as raised:
            await client.create(PATH, {"a": "x" * (16 << 20)})
        assert raised.value.status == 413
        assert await client.get(PATH) == {}
        await asyncio.wait_for(server.gone[0].wait(), 5)
    assert server.lines == [(1, f"GET {PATH}")]


async def test_a_server_that_responds_and_reads_nothing(authority: Authority, tls: ssl.SSLContext) -> None:
    """Requests would pile up in memory, each with a continue token of any length."""

    async def script(conversation: Conversation) -> None:
        assert await conversation.reader.read(1) in {b"P", b"G"}
        await conversation.say(http_answer(b'{"connection":%d}' % conversation.number))
        await conversation.hear()

    async with client_of(authority, tls, script) as (client, server):
        assert await client.create(PATH, {"a": "x" * (16 << 20)}) == {"connection": 0}
        assert await client.get(PATH) == {"connection": 1}
        await asyncio.wait_for(server.gone[0].wait(), 5)
    assert server.opened == 2


async def test_a_server_that_ends_and_reads_nothing(authority: Authority, tls: ssl.SSLContext) -> None:
    """The rest of the request keeps neither the call nor the connection."""

    async def script(conversation: Conversation) -> None:
        assert await conversation.reader.read(1) == b"P"
        conversation.writer.transport.get_extra_info("socket").shutdown(socket.SHUT_WR)
        await released.wait()

    released = asyncio.Event()
    async with conversations(authority, tls, script) as server:
        async with Client(server.connection, timeout_seconds=5) as client:
            with pytest.raises(Unreachable, match="the server closed the connection"):
                await client.create(PATH, {"a": "x" * (16 << 20)})
            assert client._pool is not None
            assert not client._pool._open
        released.set()


# Memory


@contextlib.asynccontextmanager
async def pool_of(server: Talkative) -> AsyncIterator[tuple[Pool, bytes]]:
    """A pool, and a request."""
    origin = Origin.of(server.connection.server)
    async with Pool(origin, client_context(server.connection)) as pool:
        yield pool, RequestWriter(origin, ()).write("GET", PATH, {}, None)


async def test_unread_data_stays_with_the_server(authority: Authority, tls: ssl.SSLContext) -> None:
    total = 16 << 20
    sent = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        await conversation.hear()
        await conversation.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        for _ in range(total >> 16):
            await conversation.say(b" " * (1 << 16))
        sent.set()
        await conversation.hear()

    async with conversations(authority, tls, script) as server, pool_of(server) as (pool, request):
        response = await pool.send(request, repeatable=True)
        connection = response._connection
        assert connection is not None
        async with asyncio.timeout(30):
            while not connection._paused:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.001)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sent.wait(), 0.3)
        assert connection._answer is not None
        assert 0 < connection._answer.held < MAXIMUM_HELD_BYTES + (1 << 20)
        read = 0
        while chunk := await response.read(1 << 20):
            read += len(chunk)
            assert len(chunk) <= 1 << 20
        assert read == total
        response.close()
        assert len(pool._idle) == 1


async def test_idle_connections_are_closed_after_a_while(
    authority: Authority, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "IDLE_SECONDS", 0.05)
    async with client_of(authority, tls, answering) as (client, server):
        await asyncio.gather(*(client.get(PATH) for _ in range(4)))
        opened = server.opened
        await asyncio.wait_for(asyncio.gather(*(server.gone[number].wait() for number in range(opened))), 5)
        assert await client.get(PATH) == {"connection": opened}


# The end


async def test_closing_ends_calls_and_watches(authority: Authority, tls: ssl.SSLContext) -> None:
    heard = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        asked = await conversation.hear()
        if "watch" in asked.line:
            await conversation.say(CHUNKED)
        if len(server.asked) == 2:
            heard.set()
        await conversation.hear()

    async def watch() -> None:
        async with contextlib.aclosing(client.watch(PATH, timeout_seconds=60)) as events:
            async for _ in events:
                pass

    async with conversations(authority, tls, script) as server:
        client = await Client(server.connection).__aenter__()
        running = [asyncio.create_task(client.get(PATH)), asyncio.create_task(watch())]
        await heard.wait()
        await client.close()
        await client.close()
        for task in running:
            with pytest.raises(Unreachable) as raised:
                await task
            assert raised.value.cause is Cause.RESET
        await asyncio.gather(*(gone.wait() for gone in server.gone.values()))
        assert server.opened == 2, "the GET was not sent again"


async def test_a_pool_that_is_closed_connects_no_more(authority: Authority, tls: ssl.SSLContext) -> None:
    async with conversations(authority, tls, answering) as server, pool_of(server) as (pool, request):
        connecting = asyncio.create_task(pool.send(request, repeatable=True))
        await asyncio.sleep(0)
        await pool.close()
        with pytest.raises(ConnectionClosed):
            await connecting
        opened = server.opened
        with pytest.raises(ConnectionClosed):
            await pool.send(request, repeatable=True)
        assert server.opened == opened
    assert server.asked == []


async def test_a_connection_that_is_lost_at_once_is_not_waited_for(
    authority: Authority, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dial(self: Dialer, make: Callable[[], HttpConnection]) -> HttpConnection:
        connection = make()
        connection.connection_lost(ssl.SSLError(1, "alert"))
        return connection

    monkeypatch.setattr(Dialer, "dial", dial)
    async with conversations(authority, tls, answering) as server, pool_of(server) as (pool, request):
        with pytest.raises(ConnectionClosed):
            await pool.send(request, repeatable=True)
        assert not pool._open
