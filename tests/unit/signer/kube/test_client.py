from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any

import pytest
from aiohttp import web

from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.errors import (
    AlreadyExists,
    ApiError,
    Cause,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    UnexpectedAnswer,
    Unreachable,
)
from tests.unit.signer.kube.support import (
    Authority,
    Pair,
    aiohttp_server,
    http_answer,
    raw_server,
    server_context,
    status_body,
)

PATH = "/api/v1/namespaces/tenant/secrets/c1-ca"


async def echo(request: web.Request) -> web.Response:
    """What was asked, as the answer."""
    body = await request.read()
    ssl_object = request.get_extra_info("ssl_object")
    certificate = ssl_object.getpeercert() if ssl_object else None
    return web.json_response(
        {
            "method": request.method,
            "target": request.raw_path,
            "headers": {name.lower(): value for name, value in request.headers.items()},
            "body": json.loads(body) if body else None,
            "subject": [value for part in certificate["subject"] for _, value in part] if certificate else None,
            "alpn": ssl_object.selected_alpn_protocol() if ssl_object else None,
        }
    )


async def _answers(authority: Authority, tls: ssl.SSLContext, answer: bytes, **options: Any) -> dict[str, Any]:
    """What a Client makes of these bytes as answer to a GET."""

    async def script(line: str, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    async with raw_server(authority, script, context=tls) as server, Client(server.connection, **options) as client:
        return await client.get(PATH)


# What is sent


async def test_each_method_sends_what_it_should(authority: Authority, tls: ssl.SSLContext) -> None:
    async with aiohttp_server(authority, echo, context=tls) as server, Client(server.connection) as client:
        got = await client.get(PATH, {"fieldSelector": "metadata.name=a&b", "pretty": False, "limit": 3})
        assert got["method"] == "GET"
        assert got["target"] == f"{PATH}?fieldSelector=metadata.name%3Da%26b&pretty=false&limit=3"
        assert got["headers"]["accept"] == "application/json"
        assert got["headers"]["accept-encoding"] == "identity"
        assert got["headers"]["user-agent"] == "node-attestation-controller"
        assert "authorization" not in got["headers"]
        assert "content-type" not in got["headers"]

        created = await client.create("/api/v1/namespaces/tenant/events", {"a": "ä"}, {"dryRun": "All"})
        assert (created["method"], created["body"]) == ("POST", {"a": "ä"})
        assert created["target"].endswith("/events?dryRun=All")
        assert created["headers"]["content-type"] == "application/json"

        assert (await client.replace(PATH, {"b": 1}))["method"] == "PUT"

        patched = await client.patch(PATH, {"c": None})
        assert (patched["method"], patched["body"]) == ("PATCH", {"c": None})
        assert patched["headers"]["content-type"] == "application/merge-patch+json"
        patched = await client.patch(PATH, [{"op": "test"}], "application/json-patch+json", {"fieldManager": "x"})
        assert patched["headers"]["content-type"] == "application/json-patch+json"
        assert patched["body"] == [{"op": "test"}]

        deleted = await client.delete(PATH, uid="u", resource_version="7", propagation_policy="Foreground")
        assert deleted["method"] == "DELETE"
        assert deleted["body"] == {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {"uid": "u", "resourceVersion": "7"},
            "propagationPolicy": "Foreground",
        }
        assert (await client.delete(PATH))["body"] == {"kind": "DeleteOptions", "apiVersion": "v1"}


async def test_encoded_names_arrive_as_encoded(authority: Authority, tls: ssl.SSLContext) -> None:
    async with aiohttp_server(authority, echo, context=tls) as server, Client(server.connection) as client:
        assert (await client.get("/api/v1/namespaces/a%3Fb:c%20d"))["target"] == "/api/v1/namespaces/a%3Fb:c%20d"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "api/v1",
        "//evil.example/x",
        "/api/../x",
        "/api/./x",
        "/api/..",
        "/a//b",
        "/a/",
        "/a?x=y",
        "/a#b",
        "/a b",
        "/a\r\nb",
        "/a%2e%2e",
        "/a/%2E%2E/b",
        "/a%2fb",
        "/a%",
        "/a%zz",
        "/ä",
        "https://evil.example/",
        "/a\\b",
    ],
)
async def test_a_path_that_leads_elsewhere_is_never_sent(authority: Authority, tls: ssl.SSLContext, path: str) -> None:
    async with aiohttp_server(authority, echo, context=tls) as server, Client(server.connection) as client:
        with pytest.raises(ValueError, match="path"):
            await client.get(path)
        assert server.requests == []


async def test_a_path_prefix_of_the_server_is_kept(authority: Authority, tls: ssl.SSLContext) -> None:
    async with aiohttp_server(authority, echo, context=tls) as server:
        prefixed = ClusterConnection(f"{server.connection.server}/k8s/clusters/c1/", server.authority)
        async with Client(prefixed) as client:
            assert (await client.get(PATH))["target"] == f"/k8s/clusters/c1{PATH}"


async def test_the_environment_has_no_say(
    authority: Authority, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with aiohttp_server(authority, echo, context=tls) as server, Client(server.connection) as client:
        assert (await client.get(PATH))["method"] == "GET"


async def test_cookies_are_not_kept(authority: Authority, tls: ssl.SSLContext) -> None:
    async def set_cookie(request: web.Request) -> web.Response:
        answer = await echo(request)
        answer.set_cookie("a", "b", domain="127.0.0.1")
        return answer

    async with aiohttp_server(authority, set_cookie, context=tls) as server, Client(server.connection) as client:
        await client.get(PATH)
        assert "cookie" not in (await client.get(PATH))["headers"]


# Who we are


async def test_bearer_token(authority: Authority, tls: ssl.SSLContext) -> None:
    async with aiohttp_server(authority, echo, context=tls) as server:
        connection = ClusterConnection(server.connection.server, server.authority, bearer_token="t0k3n")
        async with Client(connection) as client:
            assert (await client.get(PATH))["headers"]["authorization"] == "Bearer t0k3n"


async def test_client_certificate(authority: Authority, client_pair: Pair) -> None:
    context = server_context(authority.issue("server", "127.0.0.1"), client_authority=authority.certificate)
    async with aiohttp_server(authority, echo, context=context) as server:
        connection = ClusterConnection(
            server.connection.server,
            server.authority,
            client_certificate=client_pair.certificate,
            client_key=client_pair.key,
        )
        async with Client(connection) as client:
            assert (await client.get(PATH))["subject"] == ["c1-admin"]


async def test_a_server_that_wants_another_client_certificate(authority: Authority) -> None:
    context = server_context(authority.issue("server", "127.0.0.1"), client_authority=authority.certificate)
    async with aiohttp_server(authority, echo, context=context) as server, Client(server.connection) as client:
        with pytest.raises(Unreachable) as raised:
            await client.get(PATH)
        assert raised.value.cause in {Cause.TLS, Cause.RESET}


class Tokens:
    def __init__(self, *tokens: str | None) -> None:
        self.tokens = list(tokens)
        self.rejections = 0

    async def token(self) -> str | None:
        return self.tokens[0]

    def rejected(self) -> None:
        self.rejections += 1
        self.tokens.pop(0)


async def test_tokens_come_from_the_source_and_a_401_is_reported_to_it(
    authority: Authority, tls: ssl.SSLContext
) -> None:
    async def guarded(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer new":
            return web.Response(status=401, body=status_body(401, "Unauthorized"), content_type="application/json")
        return await echo(request)

    tokens = Tokens("old", "new")
    async with aiohttp_server(authority, guarded, context=tls) as server:
        async with Client(server.connection, token_source=tokens) as client:
            with pytest.raises(Unauthorized):
                await client.get(PATH)
            assert tokens.rejections == 1
            assert (await client.get(PATH))["headers"]["authorization"] == "Bearer new"
        async with Client(server.connection, token_source=Tokens(None)) as client:
            with pytest.raises(Unauthorized):
                await client.get(PATH)


async def test_a_token_that_no_header_can_carry_is_refused(authority: Authority, tls: ssl.SSLContext) -> None:
    hostile = "a\r\nX-Remote-User: admin"
    async with aiohttp_server(authority, echo, context=tls) as server:
        async with Client(server.connection, token_source=Tokens(hostile)) as client:
            with pytest.raises(Unauthorized) as raised:
                await client.get(PATH)
        assert "admin" not in str(raised.value)
        with pytest.raises(Unauthorized):
            Client(ClusterConnection(server.connection.server, server.authority, bearer_token=hostile))
        assert server.requests == []


# Who they are


async def test_another_authority_is_not_trusted(authority: Authority, tls: ssl.SSLContext) -> None:
    async with aiohttp_server(authority, echo, context=tls) as server:
        connection = ClusterConnection(server.connection.server, Authority("other").certificate)
        async with Client(connection) as client:
            with pytest.raises(Unreachable, match="TLS verification failed") as raised:
                await client.get(PATH)
        assert raised.value.cause is Cause.TLS
        assert server.requests == []


async def test_another_name_is_not_accepted(authority: Authority) -> None:
    context = server_context(authority.issue("server", "other.example"))
    async with aiohttp_server(authority, echo, context=context) as server, Client(server.connection) as client:
        with pytest.raises(Unreachable, match=r"TLS verification failed: .*mismatch") as raised:
            await client.get(PATH)
        assert raised.value.cause is Cause.TLS


async def test_tls_server_name_is_verified_instead_of_the_host(authority: Authority, tls: ssl.SSLContext) -> None:
    async with aiohttp_server(authority, echo, context=tls) as server:
        good = ClusterConnection(server.connection.server, server.authority, tls_server_name="api.example")
        async with Client(good) as client:
            assert (await client.get(PATH))["alpn"] in {None, "http/1.1"}
        bad = ClusterConnection(server.connection.server, server.authority, tls_server_name="other.example")
        async with Client(bad) as client:
            with pytest.raises(Unreachable, match="TLS verification failed"):
                await client.get(PATH)


async def test_an_intermediate_certificate_may_be_the_anchor(authority: Authority) -> None:
    pair = authority.issue("server", "127.0.0.1")
    async with (
        aiohttp_server(authority, echo, context=server_context(pair)) as server,
        Client(ClusterConnection(server.connection.server, pair.certificate)) as client,
    ):
        assert (await client.get(PATH))["method"] == "GET"


async def test_plain_http_is_not_spoken(authority: Authority) -> None:
    with pytest.raises(ValueError, match="https"):
        Client(ClusterConnection("http://127.0.0.1:1", authority.certificate))


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
    with pytest.raises(NotFound, match="without a Kubernetes Status") as raised:
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
        (http_answer(b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"), "no JSON object"),
        (b"220 smtp.example ESMTP\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 20_000 + b"\r\n\r\n", "not HTTP"),
    ],
)
async def test_what_is_no_answer_of_an_api_server(
    authority: Authority, tls: ssl.SSLContext, answer: bytes, message: str
) -> None:
    with pytest.raises(UnexpectedAnswer, match=message):
        await _answers(authority, tls, answer)


async def test_a_content_type_with_a_charset_is_json(authority: Authority, tls: ssl.SSLContext) -> None:
    headers = "Content-Type: Application/JSON; charset=utf-8\r\n"
    assert await _answers(authority, tls, http_answer(b'{"a": 1}', headers=headers)) == {"a": 1}


async def test_a_body_that_says_it_is_too_large_is_not_read(authority: Authority, tls: ssl.SSLContext) -> None:
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


async def test_a_dripping_body_meets_the_total_timeout(authority: Authority, tls: ssl.SSLContext) -> None:
    dripped = 0

    async def drip(line: str, writer: asyncio.StreamWriter) -> None:
        nonlocal dripped
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            writer.write(b" ")
            dripped += 1
            await writer.drain()
            await asyncio.sleep(0.005)

    async with (
        raw_server(authority, drip, context=tls) as server,
        Client(server.connection, timeout_seconds=0.25) as client,
    ):
        with pytest.raises(Unreachable, match="timeout") as raised:
            await client.get(PATH)
    assert raised.value.cause is Cause.TIMEOUT
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
async def test_a_connection_closed_within_the_answer(authority: Authority, tls: ssl.SSLContext, answer: bytes) -> None:
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


# Connections


async def test_calls_share_connections_and_keep_to_the_limit(authority: Authority, tls: ssl.SSLContext) -> None:
    running = most = 0
    peers = set()

    async def slow(request: web.Request) -> web.Response:
        nonlocal running, most
        peers.add(request.get_extra_info("peername"))
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        return await echo(request)

    async with (
        aiohttp_server(authority, slow, context=tls) as server,
        Client(server.connection, connection_limit=3) as client,
    ):
        await asyncio.gather(*(client.get(PATH) for _ in range(12)))
    assert most == 3
    assert len(peers) == 3


async def test_a_cancelled_call_gives_its_slot_back(authority: Authority, tls: ssl.SSLContext) -> None:
    arrived = asyncio.Event()
    released = asyncio.Event()

    async def held(request: web.Request) -> web.Response:
        arrived.set()
        await released.wait()
        return await echo(request)

    async with (
        aiohttp_server(authority, held, context=tls) as server,
        Client(server.connection, connection_limit=1) as client,
    ):
        call = asyncio.create_task(client.get(PATH))
        await arrived.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        released.set()
        assert (await client.get(PATH))["method"] == "GET"


async def test_a_closed_client_is_unreachable(authority: Authority) -> None:
    client = Client(ClusterConnection("https://127.0.0.1:1", authority.certificate))
    with pytest.raises(Unreachable, match="closed"):
        await client.get(PATH)
    async with client:
        pass
    with pytest.raises(Unreachable, match="closed"):
        await client.get(PATH)
    with pytest.raises(RuntimeError):
        await client.__aenter__()


# Lists


def _pages(*pages: dict[str, Any]) -> Any:
    remaining = list(pages)

    async def handler(request: web.Request) -> web.Response:
        page = remaining.pop(0)
        if "code" in page:
            body = status_body(page["code"], "Expired")
            return web.Response(status=page["code"], body=body, content_type="application/json")
        return web.json_response(page)

    return handler


async def test_pages_follow_the_continue_token(authority: Authority, tls: ssl.SSLContext) -> None:
    handler = _pages(
        {"metadata": {"continue": "a b", "resourceVersion": "5"}, "items": [1]},
        {"metadata": {"continue": "c", "resourceVersion": "5"}, "items": [2]},
        {"metadata": {"continue": "", "resourceVersion": "5"}, "items": [3]},
    )
    async with aiohttp_server(authority, handler, context=tls) as server, Client(server.connection) as client:
        pages = [page["items"] async for page in client.list_pages("/api/v1/secrets", {"labelSelector": "x"}, limit=1)]
    assert pages == [[1], [2], [3]]
    assert server.requests == [
        "GET /api/v1/secrets?labelSelector=x&limit=1",
        "GET /api/v1/secrets?labelSelector=x&limit=1&continue=a+b",
        "GET /api/v1/secrets?labelSelector=x&limit=1&continue=c",
    ]


async def test_an_expired_continue_token_is_gone(authority: Authority, tls: ssl.SSLContext) -> None:
    handler = _pages({"metadata": {"continue": "a"}, "items": []}, {"code": 410})
    async with aiohttp_server(authority, handler, context=tls) as server, Client(server.connection) as client:
        with pytest.raises(Gone):
            async for _ in client.list_pages("/api/v1/secrets"):
                pass


@pytest.mark.parametrize(
    "pages",
    [
        [{"items": []}],
        [{"metadata": {}}],
        [{"metadata": {}, "items": {}}],
        [{"metadata": [], "items": []}],
        [{"metadata": {"continue": 7}, "items": []}],
        [{"metadata": {"continue": "a\nb"}, "items": []}],
        [{"metadata": {"continue": "a"}, "items": []}] * 2,
    ],
)
async def test_what_is_no_list(authority: Authority, tls: ssl.SSLContext, pages: list[dict[str, Any]]) -> None:
    async with aiohttp_server(authority, _pages(*pages), context=tls) as server, Client(server.connection) as client:
        with pytest.raises(UnexpectedAnswer):
            async for _ in client.list_pages("/api/v1/secrets"):
                pass


async def test_all_pages_together_are_bounded(authority: Authority, tls: ssl.SSLContext) -> None:
    async def endless(request: web.Request) -> web.Response:
        token = str(len(request.query.get("continue", "")) * "x" + "x")
        return web.json_response({"metadata": {"continue": token}, "items": ["y" * 900]})

    async with (
        aiohttp_server(authority, endless, context=tls) as server,
        Client(server.connection, maximum_body_bytes=1000) as client,
    ):
        with pytest.raises(UnexpectedAnswer, match="together"):
            async for _ in client.list_pages("/api/v1/secrets"):
                pass
    assert len(server.requests) == 9
