from __future__ import annotations

import ssl
import time
from typing import Any

import pytest
from aiohttp import web

from signer.kube.client import LIST_BYTES_PER_BODY, THROTTLED_ANSWER_BYTES, Client
from signer.kube.errors import (
    AnswerTooLarge,
    Gone,
    UnexpectedAnswer,
)
from signer.kube.http import tls_transport
from signer.kube.listing import EMPTY_PAGES
from signer.kube.resource_limits import RateLimiter
from tests.unit.signer.kube.support import (
    Authority,
    aiohttp_server,
    status_body,
)

PATH = "/api/v1/namespaces/tenant/secrets/c1-ca"


@pytest.fixture
def only_handshakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU time of TLS: on a busy machine, reading may take long by chance."""
    monkeypatch.setattr(tls_transport, "READ_SECONDS", 3600.0)


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


async def test_a_page_that_is_too_large_is_requested_again_in_smaller_ones(
    authority: Authority, tls: ssl.SSLContext
) -> None:
    """CSRs of a megabyte each must not stop the service of a cluster."""
    large = "x" * 1000

    async def handler(request: web.Request) -> web.Response:
        first, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        event_history = first + limit
        token = str(event_history) if event_history < 20 else ""
        return web.json_response({"metadata": {"continue": token}, "items": [large] * (min(event_history, 20) - first)})

    async with aiohttp_server(authority, handler, context=tls) as server:
        async with Client(server.connection, maximum_body_bytes=8000) as client:
            assert [len(page["items"]) async for page in client.list_pages("/api/v1/secrets")] == [7, 7, 6]
        assert [request.partition("limit=")[2] for request in server.requests] == [
            "500",
            "62",
            "7",
            "7&continue=7",
            "7&continue=14",
        ]
        async with Client(server.connection, maximum_body_bytes=500) as client:
            with pytest.raises(AnswerTooLarge):
                async for _ in client.list_pages("/api/v1/secrets"):
                    pass
    assert server.requests[-1] == "GET /api/v1/secrets?limit=1"


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
async def test_responses_that_are_no_list(
    authority: Authority, tls: ssl.SSLContext, pages: list[dict[str, Any]]
) -> None:
    async with aiohttp_server(authority, _pages(*pages), context=tls) as server, Client(server.connection) as client:
        with pytest.raises(UnexpectedAnswer):
            async for _ in client.list_pages("/api/v1/secrets"):
                pass


async def test_all_pages_together_are_bounded(authority: Authority, tls: ssl.SSLContext) -> None:
    async def endless(request: web.Request) -> web.Response:
        token = str(int(request.query.get("continue", "0")) + 1)
        return web.json_response({"metadata": {"continue": token}, "items": ["y" * 900]})

    async with (
        aiohttp_server(authority, endless, context=tls) as server,
        Client(server.connection, maximum_body_bytes=1000) as client,
    ):
        with pytest.raises(UnexpectedAnswer, match="together"):
            async for _ in client.list_pages("/api/v1/secrets"):
                pass
    # Each page has a little more than 940 of the 1000 bytes that one body may have.
    assert LIST_BYTES_PER_BODY < len(server.requests) <= LIST_BYTES_PER_BODY * 1000 // 940 + 1


async def test_a_list_of_empty_pages_has_an_end(authority: Authority, tls: ssl.SSLContext) -> None:
    async def endless(request: web.Request) -> web.Response:
        token = str(int(request.query.get("continue", "0")) + 1)
        return web.json_response({"metadata": {"continue": token}, "items": []})

    async with aiohttp_server(authority, endless, context=tls) as server, Client(server.connection) as client:
        with pytest.raises(UnexpectedAnswer, match="no end"):
            async for _ in client.list_pages("/api/v1/secrets"):
                pass
    assert len(server.requests) == EMPTY_PAGES + 1


async def test_a_list_takes_no_longer_than_its_time(
    authority: Authority, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def endless(request: web.Request) -> web.Response:
        token = str(int(request.query.get("continue", "0")) + 1)
        return web.json_response({"metadata": {"continue": token}, "items": [{}]})

    monkeypatch.setattr("signer.kube.listing.LIST_SECONDS", 0.05)
    async with aiohttp_server(authority, endless, context=tls) as server, Client(server.connection) as client:
        with pytest.raises(UnexpectedAnswer, match="no end"):
            async for _ in client.list_pages("/api/v1/secrets"):
                pass


@pytest.mark.slow
async def test_throttled_time_does_not_count_against_the_list(
    authority: Authority, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the owner of many hostile servers could prevent an honest one's long list from being read."""
    monkeypatch.setattr("signer.kube.listing.LIST_SECONDS", 2.0)
    monkeypatch.setattr(RateLimiter, "pause_after", lambda self, cpu_seconds: 0.55)
    handler = _pages(*({"metadata": {"continue": token}, "items": [{}]} for token in ("a", "b", "c", "d", "")))
    async with aiohttp_server(authority, handler, context=tls) as server, Client(server.connection) as client:
        assert len([page async for page in client.list_pages("/api/v1/secrets")]) == 5


@pytest.mark.usefixtures("only_handshakes")
async def test_a_list_of_many_pages_leaves_the_event_loop_to_others(
    authority: Authority, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def pause(self: RateLimiter, cpu_seconds: float) -> float:
        asked.append(cpu_seconds)
        return 0.001

    monkeypatch.setattr(RateLimiter, "pause_after", pause)
    handler = _pages(*({"metadata": {"continue": str(number)}, "items": [{}]} for number in range(1, 5)), {"items": []})
    async with aiohttp_server(authority, handler, context=tls) as server, Client(server.connection) as client:
        with pytest.raises(UnexpectedAnswer):
            async for _ in client.list_pages("/api/v1/secrets"):
                pass
    assert len(asked) == 1 + 4, "the handshake, too"
    assert all(seconds > 0 for seconds in asked)


@pytest.mark.usefixtures("only_handshakes")
async def test_handling_a_page_is_charged(authority: Authority, tls: ssl.SSLContext, asked: list[float]) -> None:
    """Handling one item may take a thousand times as long as another."""
    handler = _pages({"metadata": {"continue": "1"}, "items": [{}]}, {"metadata": {}, "items": [{}]})
    async with aiohttp_server(authority, handler, context=tls) as server, Client(server.connection) as client:
        async for _ in client.list_pages("/api/v1/secrets"):
            began = time.thread_time()
            while time.thread_time() < began + 0.02:
                pass
    assert len(asked) == 1 + 2, "the handshake, too"
    assert all(seconds > 0.02 for seconds in asked[1:])


async def test_a_page_with_more_items_than_requested_is_refused(authority: Authority, tls: ssl.SSLContext) -> None:
    """Each is handled before the event loop runs other tasks."""
    handler = _pages(*[{"metadata": {}, "items": [{}] * 3}] * 2)
    async with aiohttp_server(authority, handler, context=tls) as server, Client(server.connection) as client:
        assert [len(page["items"]) async for page in client.list_pages("/api/v1/secrets", limit=3)] == [3]
        with pytest.raises(UnexpectedAnswer, match="more items than were asked for"):
            async for _ in client.list_pages("/api/v1/secrets", limit=2):
                pass


@pytest.mark.usefixtures("only_handshakes")
async def test_all_calls_to_one_server_share_one_throttle(
    authority: Authority, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The burst of a watch or list does not start again with the next; large responses to calls count too."""
    asked: list[tuple[RateLimiter, float]] = []

    def pause(self: RateLimiter, cpu_seconds: float) -> float:
        asked.append((self, cpu_seconds))
        return 0.0

    async def handler(request: web.Request) -> web.Response:
        if "watch" in request.query:
            return web.json_response({"type": "BOOKMARK", "object": {}})
        padding = "x" * THROTTLED_ANSWER_BYTES if "large" in request.path else ""
        return web.json_response({"metadata": {}, "items": [], "padding": padding})

    monkeypatch.setattr(RateLimiter, "pause_after", pause)
    async with aiohttp_server(authority, handler, context=tls) as server, Client(server.connection) as client:
        await client.get("/api/v1/small")
        assert len(asked) == 1, "the handshake"
        asked.clear()
        await client.get("/api/v1/small")
        assert asked == []
        await client.get("/api/v1/large")
        assert len(asked) == 1
        for _ in range(2):
            assert len([page async for page in client.list_pages("/api/v1/secrets")]) == 1
        assert len(asked) == 3, "a list of one page counts"
        for _ in range(2):
            with pytest.raises(UnexpectedAnswer, match="within an event"):
                async for _ in client.watch("/api/v1/secrets", timeout_seconds=5):
                    pass
    assert len(asked) == 5
    assert len({id(rate_limiter) for rate_limiter, _ in asked}) == 1
    assert all(seconds > 0 for _, seconds in asked)


async def test_a_caller_may_bound_all_pages_more_narrowly(authority: Authority, tls: ssl.SSLContext) -> None:
    handler = _pages(*({"metadata": {"continue": str(number)}, "items": ["y" * 900]} for number in range(5)))
    async with aiohttp_server(authority, handler, context=tls) as server, Client(server.connection) as client:
        with pytest.raises(UnexpectedAnswer, match="together"):
            async for _ in client.list_pages("/api/v1/secrets", maximum_bytes=2000):
                pass
    assert len(server.requests) == 3
