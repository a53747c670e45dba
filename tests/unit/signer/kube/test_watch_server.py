from __future__ import annotations

import asyncio
import json
import ssl

import pytest
from aiohttp import web

from signer.kube.client import Client, JsonObject
from signer.kube.errors import (
    Gone,
    ServerError,
    TooManyRequests,
    UnexpectedAnswer,
)
from signer.kube.watch import list_and_watch
from tests.unit.signer.kube.support import Authority, aiohttp_server, status_body
from tests.unit.signer.kube.watching import LEAST_DELAY, Recorder, error_event, event, page

PATH = "/api/v1/secrets"


# Against a real server, with only the sleeps cut short


async def _against(
    authority: Authority,
    tls: ssl.SSLContext,
    *answers: bytes | tuple[int, bytes, dict[str, str]],
) -> tuple[list[str], Recorder, list[float]]:
    """Answer lists with one Secret and each watch with the next of ``answers``: a stream, or a status and body."""
    remaining = list(answers)
    sink = Recorder()
    slept: list[float] = []
    over = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response(page(1, "a"))
        if not remaining:
            over.set()
            await asyncio.sleep(3600)
        answer = remaining.pop(0)
        if isinstance(answer, tuple):
            status, body, headers = answer
            return web.Response(status=status, body=body, headers={"Content-Type": "application/json", **headers})
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(answer)
        return response

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    async with aiohttp_server(authority, handler, context=tls) as server, Client(server.connection) as client:
        task = asyncio.create_task(list_and_watch(client, PATH, sink=sink, sleep=sleep))
        await asyncio.wait([task, asyncio.create_task(over.wait())], timeout=5, return_when=asyncio.FIRST_COMPLETED)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    kinds = ["watch" if "watch=true" in request else "list" for request in server.requests]
    return kinds, sink, slept


def _lines(*events: JsonObject) -> bytes:
    return b"".join(json.dumps(e).encode() + b"\n" for e in events)


async def test_real_gone_in_the_stream_and_by_http(authority: Authority, tls: ssl.SSLContext) -> None:
    kinds, sink, slept = await _against(
        authority,
        tls,
        _lines(event("ADDED", "b", 2), error_event(410, reason="Expired")),
        (410, status_body(410, "Expired"), {}),
    )
    assert kinds == ["list", "watch", "list", "watch", "list", "watch"]
    assert [type(error) for error, _ in sink.failures] == [Gone, Gone]
    assert min(slept) >= LEAST_DELAY


async def test_real_clean_ends_in_a_row(authority: Authority, tls: ssl.SSLContext) -> None:
    kinds, _, slept = await _against(authority, tls, *[b""] * 6)
    assert kinds == ["list"] + ["watch"] * 7
    assert len(slept) == 6
    assert min(slept) >= LEAST_DELAY
    assert slept[-1] > 3


async def test_real_errors(authority: Authority, tls: ssl.SSLContext) -> None:
    kinds, sink, slept = await _against(
        authority,
        tls,
        (429, status_body(429, "TooManyRequests"), {"Retry-After": "33"}),
        (500, b"", {}),
        (302, b"", {"Location": "/"}),
        b"garbage\n",
    )
    assert [type(error) for error, _ in sink.failures] == [
        TooManyRequests,
        ServerError,
        UnexpectedAnswer,
        UnexpectedAnswer,
    ]
    assert kinds == ["list", "watch", "watch", "watch", "list", "watch", "list", "watch"]
    assert slept[0] == 33
