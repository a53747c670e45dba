from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from signer.kube.client import Client
from signer.kube.errors import ApiError, Cause, Forbidden, Gone, UnexpectedAnswer, Unreachable
from signer.kube.resource_limits import RateLimiter, ResourceLimits
from tests.unit.signer.kube.support import (
    Authority,
    Server,
    aiohttp_server,
    http_answer,
    raw_server,
    status_body,
)

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _event(version: int, size: int = 0) -> bytes:
    item = {"metadata": {"resourceVersion": str(version)}, "pad": "x" * size}
    return json.dumps({"type": "ADDED", "object": item}).encode() + b"\n"


async def _events(client: Client, **options: Any) -> list[str]:
    """The resourceVersions of all events of one watch."""
    options.setdefault("timeout_seconds", 60.0)
    async with contextlib.aclosing(client.watch(PATH, {"resourceVersion": "1"}, **options)) as events:
        return [event["object"]["metadata"]["resourceVersion"] async for event in events]


Write = Callable[[asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def _watched(
    authority: Authority, tls: ssl.SSLContext, *parts: bytes | Write, **options: Any
) -> AsyncIterator[tuple[Client, Server]]:
    """A client of a server that answers each request with ``parts``, flushed one by one, and then hangs up."""

    async def script(line: str, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            if isinstance(part, bytes):
                writer.write(part)
            else:
                await part(writer)
            await writer.drain()
            await asyncio.sleep(0)

    async with raw_server(authority, script, context=tls) as server, Client(server.connection, **options) as client:
        yield client, server


async def test_events_arrive_whole_in_any_fragmentation(authority: Authority, tls: ssl.SSLContext) -> None:
    stream = _event(1) + _event(2, 300_000) + _event(3) + _event(4)
    pieces = [stream[i : i + 7001] for i in range(0, len(stream), 7001)]
    async with _watched(authority, tls, HEAD, *map(_chunk, pieces), b"0\r\n\r\n") as (client, server):
        assert await _events(client, timeout_seconds=289.6) == ["1", "2", "3", "4"]
    assert server.requests == [f"GET {PATH}?resourceVersion=1&watch=true&timeoutSeconds=290"]


async def test_events_arrive_byte_by_byte(authority: Authority, tls: ssl.SSLContext) -> None:
    stream = _event(1) + _event(2)
    pieces = [stream[i : i + 1] for i in range(len(stream))]
    async with _watched(authority, tls, HEAD, *map(_chunk, pieces), b"0\r\n\r\n") as (client, _):
        assert await _events(client) == ["1", "2"]


async def test_a_clean_end_without_events(authority: Authority, tls: ssl.SSLContext) -> None:
    async with _watched(authority, tls, HEAD, b"0\r\n\r\n") as (client, _):
        accepted: list[str] = []
        assert await _events(client, accepted=lambda: accepted.append("yes")) == []
    assert accepted == ["yes"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (http_answer(status_body(410, "Expired"), status="410 Gone"), Gone),
        (http_answer(status_body(403, "Forbidden"), status="403 Forbidden"), Forbidden),
        (http_answer(b"", status="302 Found", headers="Location: /\r\n"), UnexpectedAnswer),
        (http_answer(b"{}\n", headers="Content-Type: text/plain\r\n"), UnexpectedAnswer),
        (http_answer(b"", status="204 No Content"), UnexpectedAnswer),
    ],
)
async def test_a_response_that_is_no_stream(
    authority: Authority, tls: ssl.SSLContext, answer: bytes, expected: type[ApiError]
) -> None:
    async with _watched(authority, tls, answer) as (client, _):
        with pytest.raises(expected):
            await _events(client, accepted=lambda: pytest.fail("nothing was accepted"))


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (b"\n", "no JSON object"),
        (b"garbage\n", "no JSON object"),
        (b"[]\n", "no JSON object"),
        (b'{"type":"ADDED"}{}\n', "no JSON object"),
        (b'{"type":"ADD', "within an event"),
    ],
)
async def test_malformed_events(authority: Authority, tls: ssl.SSLContext, stream: bytes, message: str) -> None:
    async with _watched(authority, tls, HEAD, _chunk(_event(1)), _chunk(stream), b"0\r\n\r\n") as (client, _):
        with pytest.raises(UnexpectedAnswer, match=message):
            await _events(client)


async def _endless_line(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(_chunk(b"x" * 50_000))
        await writer.drain()
        await asyncio.sleep(0)


async def test_an_endless_line_is_cut_off(authority: Authority, tls: ssl.SSLContext) -> None:
    async with _watched(authority, tls, HEAD, _endless_line, maximum_event_bytes=400_000) as (client, _):
        with pytest.raises(UnexpectedAnswer, match="too large"):
            await _events(client)


async def test_the_bound_holds_for_an_event_in_one_piece(authority: Authority, tls: ssl.SSLContext) -> None:
    fits, too_large = _event(1), _event(2, 1)
    parts = (HEAD, _chunk(fits + too_large), b"0\r\n\r\n")
    async with (
        _watched(authority, tls, *parts, maximum_event_bytes=len(fits) - 1) as (client, _),
        contextlib.aclosing(client.watch(PATH, timeout_seconds=60)) as events,
    ):
        assert (await anext(events))["object"]["metadata"]["resourceVersion"] == "1"
        with pytest.raises(UnexpectedAnswer, match="too large"):
            await anext(events)


async def test_a_stream_without_pause_leaves_the_event_loop_to_others(
    authority: Authority, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signer.kube.answers.WATCH_READ_BYTES", len(_event(1)))
    asked: list[float] = []

    def pause(self: RateLimiter, cpu_seconds: float) -> float:
        asked.append(cpu_seconds)
        return 0.001

    monkeypatch.setattr(RateLimiter, "pause_after", pause)
    events = _chunk(b"".join(_event(number) for number in range(20)))
    async with _watched(authority, tls, HEAD, events, b"0\r\n\r\n") as (client, _):
        others = 0

        async def other() -> None:
            nonlocal others
            while True:
                others += 1
                await asyncio.sleep(0)

        running = asyncio.create_task(other())
        assert len(await _events(client)) == 20
        running.cancel()
    assert len(asked) >= 20
    assert all(seconds >= 0 for seconds in asked)
    assert others >= 20


async def test_large_events_of_many_servers_are_bounded_together(authority: Authority, tls: ssl.SSLContext) -> None:
    resource_limits = ResourceLimits(large_bytes=100_000)
    async with _watched(authority, tls, HEAD, _endless_line, resource_limits=resource_limits) as (client, _):
        with pytest.raises(UnexpectedAnswer, match="too many large events"):
            await _events(client)
    assert resource_limits.bytes_left == 100_000


async def test_a_broken_stream_is_unreachable(authority: Authority, tls: ssl.SSLContext) -> None:
    async with _watched(authority, tls, HEAD, _chunk(_event(1))) as (client, _):
        with pytest.raises(Unreachable) as raised:
            await _events(client)
    assert raised.value.cause is Cause.RESET


async def test_silence_is_bounded(authority: Authority, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    never = asyncio.Event()

    async def silence(writer: asyncio.StreamWriter) -> None:
        await never.wait()

    async with _watched(authority, tls, HEAD, silence) as (client, _):
        with pytest.raises(Unreachable, match="timeout") as silent:
            await _events(client, idle_seconds=0.05)
        monkeypatch.setattr("signer.kube.client.WATCH_GRACE_SECONDS", 0.1)
        with pytest.raises(Unreachable, match="timeout") as overdue:
            await _events(client, idle_seconds=60.0, timeout_seconds=0.0)
        never.set()
    assert (silent.value.cause, overdue.value.cause) == (Cause.SILENCE, Cause.TIMEOUT)


async def test_a_stream_may_not_outlive_its_time(
    authority: Authority, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signer.kube.client.WATCH_GRACE_SECONDS", 0.1)

    async def drip(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(_chunk(_event(1)))
            await writer.drain()
            await asyncio.sleep(0.002)

    async with _watched(authority, tls, HEAD, drip) as (client, _):
        with pytest.raises(Unreachable, match="timeout"):
            await _events(client, timeout_seconds=0.1)


async def test_headers_that_never_come_meet_the_call_timeout(authority: Authority, tls: ssl.SSLContext) -> None:
    never = asyncio.Event()

    async def silence(writer: asyncio.StreamWriter) -> None:
        await never.wait()

    async with _watched(authority, tls, silence, timeout_seconds=0.1) as (client, _):
        with pytest.raises(Unreachable, match="timeout"):
            await _events(client)
        never.set()


@pytest.mark.parametrize("how", ["cancel", "close", "break"])
async def test_leaving_a_watch_closes_its_connection(authority: Authority, tls: ssl.SSLContext, how: str) -> None:
    gone = asyncio.Event()
    seen = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(_event(1))
        try:
            await asyncio.sleep(3600)
        finally:
            gone.set()  # aiohttp cancels the handler when the client is gone
        return response

    async with aiohttp_server(authority, handler, context=tls) as server, Client(server.connection) as client:
        watch = client.watch(PATH, timeout_seconds=60)

        async def consume() -> None:
            async with contextlib.aclosing(watch):
                async for _ in watch:
                    seen.set()
                    if how == "break":
                        break

        if how == "close":
            await anext(watch)
            await watch.aclose()
        else:
            task = asyncio.create_task(consume())
            await seen.wait()
            if how == "cancel":
                task.cancel()
            await asyncio.wait([task])
        await asyncio.wait_for(gone.wait(), 5)


async def test_watches_use_no_slot_of_calls(authority: Authority, tls: ssl.SSLContext) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"ok": True})
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(_event(1))
        await asyncio.sleep(3600)
        return response

    async with (
        aiohttp_server(authority, handler, context=tls) as server,
        Client(server.connection, connection_limit=1) as client,
        contextlib.AsyncExitStack() as stack,
    ):
        for _ in range(3):
            watch = await stack.enter_async_context(
                contextlib.aclosing(client.watch(PATH, timeout_seconds=60)),
            )
            await anext(watch)
        assert await client.get(PATH) == {"ok": True}
