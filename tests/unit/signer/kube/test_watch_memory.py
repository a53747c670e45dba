"""No data of an API server is held while waiting for more."""

from __future__ import annotations

import asyncio
import ssl
import weakref
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from aiohttp import web

from signer.kube.client import Client, JsonObject, Parameters
from signer.kube.errors import UnexpectedAnswer
from signer.kube.resource_limits import ResourceLimits
from signer.kube.watch import list_and_watch
from tests.unit.signer.kube.support import Authority, aiohttp_server, http_answer, raw_server
from tests.unit.signer.kube.watching import PATH, Recorder, event, page

VALUES = "[" + "{}," * 30_000 + "{}]"
"""Six megabytes of memory, by the quota's count."""


class Forgotten(dict[str, Any]):
    """A weakly referenceable object."""


class Watched:
    """A source that checks what is left of a page or event when the next is requested."""

    def __init__(self) -> None:
        self.left: list[JsonObject] = []
        self.looked = 0
        self.done = asyncio.Event()

    async def _say(self, *make: Callable[[], JsonObject]) -> AsyncGenerator[JsonObject, None]:
        for one in make:
            said = Forgotten(one())
            about = [weakref.ref(said)]
            if "items" in said:
                said["items"] = [Forgotten(one) for one in said["items"]]
                about += map(weakref.ref, said["items"])
            else:
                said["object"] = Forgotten(said["object"])
                about.append(weakref.ref(said["object"]))
            yield said
            del said
            self.left += [known for known in (reference() for reference in about) if known is not None]
            self.looked += len(about)
            if self.looked == 8:
                self.done.set()

    def list_pages(
        self, path: str, params: Parameters | None = None, limit: int = 500, **options: Any
    ) -> AsyncGenerator[JsonObject, None]:
        return self._say(lambda: page(1, "a", "b"), lambda: page(1))

    def watch(
        self,
        path: str,
        params: Parameters | None = None,
        *,
        timeout_seconds: float,
        idle_seconds: float = 0.0,
        accepted: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[JsonObject, None]:
        return self._say(lambda: event("ADDED", "a", 2), lambda: event("DELETED", "a", 3))


async def test_nothing_is_held_while_waiting_for_the_next() -> None:
    source = Watched()
    watching = asyncio.create_task(list_and_watch(source, PATH, sink=Recorder(), keep=lambda item: False))
    await source.done.wait()
    watching.cancel()
    assert source.left == []


async def test_a_page_counts_against_the_quota_while_it_is_handled(authority: Authority, tls: ssl.SSLContext) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(
            text=f'{{"metadata":{{"resourceVersion":"1"}},"items":[{{"a":{VALUES}}}]}}', content_type="application/json"
        )

    resource_limits = ResourceLimits(large_bytes=6 << 20)
    async with (
        aiohttp_server(authority, handler, context=tls) as server,
        Client(server.connection, resource_limits=resource_limits) as client,
    ):
        async for _ in client.list_pages(PATH):
            assert resource_limits.bytes_left < 1 << 20
            with pytest.raises(UnexpectedAnswer, match="too many large answers"):
                await client.get(PATH)
        assert resource_limits.bytes_left == 6 << 20
        await client.get(PATH)


async def test_an_event_counts_with_its_size_in_memory(authority: Authority, tls: ssl.SSLContext) -> None:
    text = f'{{"type":"ADDED","object":{{"a":{VALUES}}}}}\n'

    async def script(line: str, writer: asyncio.StreamWriter) -> None:
        writer.write(http_answer(text.encode()))

    async def watched(megabytes: int) -> int:
        resource_limits = ResourceLimits(large_bytes=megabytes << 20)
        try:
            async with (
                raw_server(authority, script, context=tls) as server,
                Client(server.connection, resource_limits=resource_limits) as client,
            ):
                return len([event async for event in client.watch(PATH, timeout_seconds=5)])
        finally:
            assert resource_limits.bytes_left == megabytes << 20

    assert await watched(7) == 1
    with pytest.raises(UnexpectedAnswer, match="too many large events"):
        await watched(1)
