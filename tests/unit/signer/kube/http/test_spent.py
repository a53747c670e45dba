"""CPU time that a server can cause is bounded at once and charged: the next call or read is throttled."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from signer.kube.client import THROTTLED_ANSWER_BYTES, Client
from signer.kube.connection import ClusterConnection
from signer.kube.errors import Unreachable
from signer.kube.http import tls_transport
from signer.kube.http.tls_transport import connect
from signer.kube.resource_limits import CALL_THROTTLE_SECONDS, RateLimiter
from signer.kube.tls import client_context
from tests.unit.signer.kube.http.conversation import Conversation, conversations
from tests.unit.signer.kube.http.test_tls_transport import Recording, connected, gone
from tests.unit.signer.kube.support import Authority, http_answer

PATH = "/api/v1/secrets"


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_handshake_counts_however_it_ends(authority: Authority, tls: ssl.SSLContext, trusted: bool) -> None:
    spent: list[float] = []
    async with conversations(authority, tls, gone) as server:
        anchor = authority if trusted else Authority("another CA")
        opened = await connected(server.connection)
        connecting = connect(
            opened,
            client_context(ClusterConnection("https://127.0.0.1", anchor.certificate)),
            "127.0.0.1",
            Recording(),
            spent.append,
        )
        if trusted:
            (await connecting).abort()
        else:
            with pytest.raises(ssl.SSLCertVerificationError):
                await connecting
    assert sum(spent) > 0.0001


@pytest.mark.parametrize(("pieces", "size", "counts"), [(40, 16_000, False), (20_000, 1, True)])
async def test_data_in_the_smallest_pieces_counts(
    authority: Authority, tls: ssl.SSLContext, pieces: int, size: int, counts: bool
) -> None:
    spent: list[float] = []

    async def script(conversation: Conversation) -> None:
        for _ in range(pieces):
            conversation.writer.write(b"x" * size)
        await conversation.writer.drain()
        await gone(conversation)

    async with conversations(authority, tls, script) as server:
        recording, opened = Recording(), await connected(server.connection)
        transport = await connect(opened, client_context(server.connection), "127.0.0.1", recording, spent.append)
        handshake = sum(spent)
        await recording.has(pieces * size)
        transport.abort()
    assert (sum(spent) - handshake > 0.005) is counts


async def test_the_next_call_is_throttled(
    authority: Authority, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, asked: list[float]
) -> None:
    """Otherwise a server that closes each connection could cause one handshake after the other."""

    async def script(conversation: Conversation) -> None:
        await conversation.hear()
        head = "Content-Type: application/json\r\nConnection: close\r\n"
        await conversation.say(http_answer(b"{}", headers=head))

    monkeypatch.setattr(tls_transport, "READ_SECONDS", 3600.0)  # of what TLS takes, the handshakes alone
    async with conversations(authority, tls, script) as server, Client(server.connection) as client:
        for _ in range(3):
            assert await client.get(PATH) == {}
        with pytest.raises(Exception, match="within an event"):
            async for _ in client.watch(PATH, timeout_seconds=5):
                pass
    assert server.opened == 4
    assert len(asked) == 4
    assert all(seconds > 0.0001 for seconds in asked)


async def test_reads_are_throttled(
    authority: Authority, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, asked: list[float]
) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.hear()
        body = b"{%b}" % (b" " * 1000)
        await conversation.say(http_answer(body)[:-1000])
        for _ in range(5):
            await conversation.say(b" " * 199)
            await asyncio.sleep(0.01)
        await conversation.say(b"    }")

    monkeypatch.setattr(tls_transport, "READ_SECONDS", -1.0)
    async with conversations(authority, tls, script) as server, Client(server.connection) as client:
        assert await client.get(PATH) == {}
    assert sum(seconds > 0.9 for seconds in asked) >= 5


async def test_a_call_is_throttled_no_longer_than_its_limit(
    authority: Authority, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that holds a request for too long counts as stuck. A call that would pause longer fails at once."""
    rested: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        rested.append(seconds)
        await sleep(0)

    async def script(conversation: Conversation) -> None:
        while True:
            await conversation.hear()
            await conversation.say(http_answer(b"{%b}" % (b" " * THROTTLED_ANSWER_BYTES)))

    async with conversations(authority, tls, script) as server, Client(server.connection) as client:
        await client.get(PATH)
        monkeypatch.setattr(RateLimiter, "pause_after", lambda self, cpu_seconds: 1000.0)
        monkeypatch.setattr("signer.kube.resource_limits.asyncio.sleep", noted)
        await client.get(PATH)
        for _ in range(2):
            with pytest.raises(Unreachable, match="the API server exceeded its CPU budget"):
                await client.get(PATH)
        monkeypatch.undo()
    assert rested == [CALL_THROTTLE_SECONDS]
    assert len(server.asked) == 2
