"""A call that is cancelled at any wait ends, and leaves neither a connection nor a slot behind."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

import pytest

from signer.kube.client import Client
from signer.kube.http import dial
from tests.support.cancellation import End, cancelled_at
from tests.unit.signer.kube.http.conversation import Conversation, conversations
from tests.unit.signer.kube.support import Authority, http_answer

PATH: Final = "/api/v1/secrets"
LIST: Final = http_answer(b'{"metadata":{"resourceVersion":"1"},"items":[{}]}\n')


async def answering(conversation: Conversation) -> None:
    while True:
        await conversation.hear()
        await conversation.say(LIST)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Connecting waits for a response: the backlog is full."""
    with contextlib.ExitStack() as opened:
        listening = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(2):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]


async def get(client: Client) -> None:
    await client.get(PATH)


async def get_again(client: Client) -> None:
    await client.get(PATH)
    await client.get(PATH)


async def read_list(client: Client) -> None:
    async with contextlib.aclosing(client.list_pages(PATH)) as pages:
        async for _ in pages:
            await asyncio.sleep(0)


async def watch(client: Client) -> None:
    async with contextlib.aclosing(client.watch(PATH, timeout_seconds=1)) as events:
        await anext(events)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("call", [get, get_again, read_list, watch])
async def test_nothing_is_left_behind(
    authority: Authority,
    tls: ssl.SSLContext,
    silent_port: int,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[Client], Coroutine[Any, Any, None]],
    late: bool,
) -> None:
    """Its server has two addresses; the first is given up while the second is connected."""

    def addresses(host: str, port: int, *_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", number)) for number in (silent_port, port)]

    monkeypatch.setattr(socket, "getaddrinfo", addresses)
    monkeypatch.setattr(dial, "HAPPY_EYEBALLS_SECONDS", 1e-6)
    async with conversations(authority, tls, answering) as server:
        port = server.connection.server.rpartition(":")[2]
        connection = dataclasses.replace(server.connection, server=f"https://api.example:{port}")
        for number in itertools.count(1):
            async with Client(connection, connection_limit=1) as client:
                end = await cancelled_at(number, call(client), late=late)
                if end is End.CAME_FIRST:
                    assert number > 4
                    return
                assert end is End.CANCELLED, number
                await client.get(PATH)  # a slot is free
                assert client._pool is not None
                assert len(client._pool._open) == 1
