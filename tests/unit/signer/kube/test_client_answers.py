from __future__ import annotations

import asyncio
import gc
import json
import ssl
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from signer.kube.answers import MAXIMUM_VALUES
from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.errors import (
    AlreadyExists,
    AnswerTooLarge,
    ApiError,
    Cause,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ResourceNotServed,
    ServerError,
    TooManyRequests,
    Unauthorized,
    UnexpectedAnswer,
    Unreachable,
)
from signer.kube.resource_limits import SMALL_BYTES, ResourceLimits
from tests.unit.signer.kube.support import (
    Authority,
    aiohttp_server,
    http_answer,
    raw_server,
    status_body,
)

PATH = "/api/v1/namespaces/tenant/secrets/c1-ca"


async def _answers(authority: Authority, tls: ssl.SSLContext, answer: bytes, **options: Any) -> dict[str, Any]:
    """The result of a Client for these bytes as the response to a GET."""

    async def script(line: str, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    async with raw_server(authority, script, context=tls) as server, Client(server.connection, **options) as client:
        return await client.get(PATH)


async def test_no_date_keeps_a_connection_from_being_closed(authority: Authority, tls: ssl.SSLContext) -> None:
    """A hostile server could occupy the controller's file descriptors and memory, one connection for each call."""

    async def handler(request: web.Request) -> web.Response:
        return web.json_response({}, headers={"Date": "Fri, 31 Dec 9999 23:59:59 -0100"})

    connected: list[object] = []
    async with (
        aiohttp_server(authority, handler, context=tls) as server,
        Client(server.connection, on_connect=connected.append) as client,
    ):
        for _ in range(3):
            assert await client.get(PATH) == {}
        assert len(connected) == 1


# What comes back


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", Invalid),
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Expired", Gone),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooManyRequests),
        (500, "InternalError", ServerError),
        (503, "ServiceUnavailable", ServerError),
        (418, "Teapot", UnexpectedAnswer),
    ],
)
async def test_a_status_becomes_its_error(
    authority: Authority, tls: ssl.SSLContext, code: int, reason: str, expected: type[ApiError]
) -> None:
    answer = http_answer(status_body(code, reason, "line\nbreak"), status=f"{code} X")
    with pytest.raises(ApiError) as raised:
        await _answers(authority, tls, answer)
    assert type(raised.value) is expected
    assert (raised.value.status, raised.value.reason) == (code, reason)
    assert raised.value.message == "line\\nbreak"


async def test_retry_after_comes_from_the_header_or_the_details(authority: Authority, tls: ssl.SSLContext) -> None:
    headers = "Content-Type: application/json\r\nRetry-After: 7\r\n"
    body = status_body(429, "TooManyRequests", retryAfterSeconds=9)
    with pytest.raises(TooManyRequests) as raised:
        await _answers(authority, tls, http_answer(body, status="429 X", headers=headers))
    assert raised.value.retry_after_seconds == 7
    with pytest.raises(TooManyRequests) as raised:
        await _answers(authority, tls, http_answer(body, status="429 X"))
    assert raised.value.retry_after_seconds == 9
    with pytest.raises(ServerError) as server_error:
        await _answers(authority, tls, http_answer(b"", status="503 X", headers="Retry-After: 99999\r\n"))
    assert server_error.value.retry_after_seconds == 300


@pytest.mark.parametrize(
    "answer",
    [
        http_answer(b"<html>evil\x1b[31m</html>", status="404 X", headers="Content-Type: text/html\r\n"),
        http_answer(b"{}", status="404 X"),
        http_answer(b"[1]", status="404 X"),
        http_answer(b'{"kind":"Status","message":{}}', status="404 X"),
        http_answer(b'{"kind":"Status","message":"\xff"}', status="404 X"),
        http_answer(b'{"kind":"Secret","message":"evil"}', status="404 X"),
        http_answer(b'{"kind":"Status","message":"evil","pad":"' + b"x" * 70_000 + b'"}', status="404 X"),
    ],
)
async def test_an_error_without_a_status_keeps_its_class_and_none_of_its_text(
    authority: Authority, tls: ssl.SSLContext, answer: bytes
) -> None:
    with pytest.raises(
        ResourceNotServed, match="without a Kubernetes Status: this resource is not served there"
    ) as raised:
        await _answers(authority, tls, answer)
    assert "evil" not in str(raised.value)


@pytest.mark.parametrize("code", [300, 301, 302, 303, 304, 307, 308])
async def test_redirects_are_not_followed(authority: Authority, tls: ssl.SSLContext, code: int) -> None:
    requests = []

    async def redirect(request: web.Request) -> web.Response:
        requests.append(request.path)
        return web.Response(status=code, headers={"Location": "/elsewhere"})

    async with aiohttp_server(authority, redirect, context=tls) as server:
        connection = ClusterConnection(server.connection.server, server.authority, bearer_token="t0k3n")
        async with Client(connection) as client:
            with pytest.raises(UnexpectedAnswer, match="redirect") as raised:
                await client.get(PATH)
    assert raised.value.status == code
    assert requests == [PATH]


GZIP = "Content-Type: application/json\r\nContent-Encoding: gzip\r\n"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (http_answer(b"{}", headers="Content-Type: text/html\r\n"), "not application/json"),
        (http_answer(b"{}", headers=""), "not application/json"),
        (http_answer(b"{}", headers=GZIP), "compressed"),
        (http_answer(b""), "no JSON object"),
        (http_answer(b"[]"), "no JSON object"),
        (http_answer(b"null"), "no JSON object"),
        (http_answer(b'{"a":'), "no JSON object"),
        (http_answer(b'{"a":1} {}'), "no JSON object"),
        (http_answer(b'{"a":"\xff\xfe"}'), "no JSON object"),
        (http_answer(b'{"a":' + b"[" * 200_000), "no JSON object"),
        (b"220 smtp.example ESMTP\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 20_000 + b"\r\n\r\n", "not HTTP"),
    ],
)
async def test_responses_that_are_not_of_an_api_server(
    authority: Authority, tls: ssl.SSLContext, answer: bytes, message: str
) -> None:
    with pytest.raises(UnexpectedAnswer, match=message):
        await _answers(authority, tls, answer)


async def test_a_content_type_with_a_charset_is_json(authority: Authority, tls: ssl.SSLContext) -> None:
    headers = "Content-Type: Application/JSON; charset=utf-8\r\n"
    assert await _answers(authority, tls, http_answer(b'{"a": 1}', headers=headers)) == {"a": 1}


async def test_a_body_with_a_too_large_stated_length_is_not_read(authority: Authority, tls: ssl.SSLContext) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n"
    with pytest.raises(UnexpectedAnswer, match="larger than"):
        await _answers(authority, tls, answer)


async def test_an_endless_body_is_cut_off(authority: Authority, tls: ssl.SSLContext) -> None:
    async def endless(line: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0)

    async with (
        raw_server(authority, endless, context=tls) as server,
        Client(server.connection, maximum_body_bytes=1024 * 1024) as client,
    ):
        with pytest.raises(UnexpectedAnswer, match="larger than 1048576"):
            await client.get(PATH)


async def test_large_responses_of_many_servers_are_bounded_together(authority: Authority, tls: ssl.SSLContext) -> None:
    resource_limits = ResourceLimits(large_bytes=1000)
    body = json.dumps({"a": "x" * (SMALL_BYTES + 2000)}).encode()
    with pytest.raises(AnswerTooLarge, match="too many"):
        await _answers(authority, tls, http_answer(body), resource_limits=resource_limits)
    assert resource_limits.bytes_left == 1000
    body = json.dumps({"a": "x" * (SMALL_BYTES - 100)}).encode()
    answer = await _answers(authority, tls, http_answer(body), resource_limits=resource_limits)
    assert len(answer["a"]) == SMALL_BYTES - 100


async def _watched(client: Client) -> None:
    async for _ in client.watch(PATH, timeout_seconds=5):
        pass


async def _got(client: Client) -> None:
    await client.get(PATH)


@pytest.mark.parametrize(
    ("call", "maximum_bytes"),
    [(_got, 2 << 20), (_got, 1 << 19), (_watched, 2 << 20)],
    ids=["cut off", "too large", "cut off watch"],
)
async def test_no_data_outlives_its_failure(
    authority: Authority, tls: ssl.SSLContext, call: Callable[[Client], Awaitable[None]], maximum_bytes: int
) -> None:
    """No reference cycle keeps it until the garbage collector runs, which counts objects and not bytes."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n400000\r\n"
    megabyte = b" " * (1 << 20)

    async def script(line: str, writer: asyncio.StreamWriter) -> None:
        writer.write(head + megabyte)
        await writer.drain()

    async with (
        raw_server(authority, script, context=tls) as server,
        Client(server.connection, maximum_body_bytes=maximum_bytes) as client,
    ):

        async def fail() -> None:
            with pytest.raises(ApiError):
                await call(client)

        await fail()
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(8):
                await fail()
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
    assert kept < 2 << 20


async def test_a_response_with_too_many_values_is_not_decoded(authority: Authority, tls: ssl.SSLContext) -> None:
    for value in (b"{}", b"[]", b"1"):
        body = b'{"a":[%b]}' % b",".join([value] * (MAXIMUM_VALUES + 1))
        with pytest.raises(AnswerTooLarge, match="values"):
            await _answers(authority, tls, http_answer(body))
    fits = b'{"a":[%b]}' % b",".join([b"1"] * (MAXIMUM_VALUES - 10))
    assert len((await _answers(authority, tls, http_answer(fits)))["a"]) == MAXIMUM_VALUES - 10


async def test_a_dripping_body_meets_the_total_timeout(authority: Authority, tls: ssl.SSLContext) -> None:
    """A busy machine may need all of a short timeout for the handshake."""
    dripped = 0

    async def drip(line: str, writer: asyncio.StreamWriter) -> None:
        nonlocal dripped
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            writer.write(b" ")
            dripped += 1
            await writer.drain()
            await asyncio.sleep(0.005)

    async with raw_server(authority, drip, context=tls) as server:
        for seconds in (0.25, 1.0, 5.0):
            async with Client(server.connection, timeout_seconds=seconds) as client:
                with pytest.raises(Unreachable, match="timeout") as raised:
                    await client.get(PATH)
            assert raised.value.cause is Cause.TIMEOUT
            if dripped > 1:
                break
    assert dripped > 1


async def test_silence_meets_the_total_timeout(authority: Authority, tls: ssl.SSLContext) -> None:
    never = asyncio.Event()

    async def silent(line: str, writer: asyncio.StreamWriter) -> None:
        await never.wait()

    async with raw_server(authority, silent, context=tls) as server:
        async with Client(server.connection, timeout_seconds=0.1) as client:
            with pytest.raises(Unreachable, match="timeout"):
                await client.get(PATH)
        never.set()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"a"',
        b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n',
    ],
)
async def test_a_connection_closed_within_the_response(
    authority: Authority, tls: ssl.SSLContext, answer: bytes
) -> None:
    with pytest.raises(Unreachable) as raised:
        await _answers(authority, tls, answer)
    assert raised.value.cause is Cause.RESET


async def test_nothing_listens(authority: Authority, unused_port: int) -> None:
    async with Client(ClusterConnection(f"https://127.0.0.1:{unused_port}", authority.certificate)) as client:
        with pytest.raises(Unreachable, match="refused") as raised:
            await client.get(PATH)
    assert raised.value.cause is Cause.REFUSED


async def test_a_name_without_address(authority: Authority) -> None:
    async with Client(ClusterConnection("https://api.invalid", authority.certificate)) as client:
        with pytest.raises(Unreachable, match="name resolution") as raised:
            await client.get(PATH)
    assert raised.value.cause is Cause.NAME_RESOLUTION


async def test_a_server_without_tls(authority: Authority) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with listener, Client(ClusterConnection(f"https://127.0.0.1:{port}", authority.certificate)) as client:
        with pytest.raises(Unreachable, match="TLS failed") as raised:
            await client.get(PATH)
    assert raised.value.cause is Cause.TLS
