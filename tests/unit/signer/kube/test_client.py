from __future__ import annotations

import asyncio
import json
import ssl

import pytest
from aiohttp import web

from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.errors import (
    Cause,
    Unauthorized,
    Unreachable,
)
from tests.unit.signer.kube.support import (
    Authority,
    Pair,
    aiohttp_server,
    server_context,
    status_body,
)

PATH = "/api/v1/namespaces/tenant/secrets/c1-ca"


async def echo(request: web.Request) -> web.Response:
    """Answers with the request."""
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


async def test_the_environment_is_ignored(
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


# Connections


async def test_calls_share_connections_and_keep_to_the_limit(authority: Authority, tls: ssl.SSLContext) -> None:
    running = most = 0
    peers = set()
    full = asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        nonlocal running, most
        peers.add(request.get_extra_info("peername"))
        running += 1
        most = max(most, running)
        if running == 3:
            full.set()
        await full.wait()  # a handshake may take longer than all calls over one connection
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


async def test_a_cancelled_call_releases_its_slot(authority: Authority, tls: ssl.SSLContext) -> None:
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
