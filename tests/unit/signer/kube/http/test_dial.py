from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any

import aiohappyeyeballs
import pytest

from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.errors import Cause, Unreachable
from signer.kube.http import dial
from signer.kube.http.dial import keepalive_socket
from signer.kube.http.messages import Origin
from tests.support.silent_address import resolve, silent
from tests.unit.signer.kube.http.conversation import Conversation, Talkative, conversations
from tests.unit.signer.kube.support import Authority, http_answer

PATH = "/api/v1/secrets"
Lookup = Callable[..., list[Any]]


def test_sockets_probe_a_silent_peer() -> None:
    with keepalive_socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1))) as opened:
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        probes = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) * opened.getsockopt(
            socket.IPPROTO_TCP, socket.TCP_KEEPCNT
        )
    assert idle + probes <= 60


async def answering(conversation: Conversation) -> None:
    while True:
        await conversation.hear()
        await conversation.say(http_answer(b"{}"))


def named(server: Talkative, host: str) -> ClusterConnection:
    """The same server, by name."""
    port = server.connection.server.rpartition(":")[2]
    return ClusterConnection(f"https://{host}:{port}", server.connection.certificate_authority)


def resolving(monkeypatch: pytest.MonkeyPatch, lookup: Lookup) -> None:
    """Let the event loop resolve names by ``lookup``, in a thread as ever."""
    monkeypatch.setattr(socket, "getaddrinfo", lookup)


def addresses(port: int, *hosts: str) -> list[Any]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts]


async def test_a_name_is_looked_up_and_verified(
    authority: Authority, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolving(monkeypatch, lambda host, port, *_, **__: addresses(port, "127.0.0.1"))
    async with conversations(authority, tls, answering) as server:
        for host in ("api.example", "api.example."):
            async with Client(named(server, host)) as client:
                assert await client.get(PATH) == {}
        async with Client(named(server, "other.example")) as client:
            with pytest.raises(Unreachable, match="TLS verification failed"):
                await client.get(PATH)


async def test_the_next_address_is_tried(
    authority: Authority, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolving(monkeypatch, lambda host, port, *_, **__: addresses(port, "127.0.0.99", "127.0.0.1"))
    async with conversations(authority, tls, answering) as server, Client(named(server, "api.example")) as client:
        assert await client.get(PATH) == {}


async def test_a_few_addresses_of_each_family_are_tried(
    authority: Authority, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server listens on another address, so each of these is refused and the next is tried."""
    tried: list[tuple[Any, ...]] = []

    def recording(address: tuple[Any, ...]) -> socket.socket:
        tried.append(address)
        return keepalive_socket(address)

    monkeypatch.setattr(dial, "keepalive_socket", recording)
    resolving(
        monkeypatch,
        lambda host, port, *_, **__: [
            *((socket.AF_INET6, socket.SOCK_STREAM, 6, "", (f"::ffff:127.0.1.{i}", port, 0, 0)) for i in range(1, 20)),
            *addresses(port, *(f"127.0.1.{i}" for i in range(1, 20))),
        ],
    )
    async with conversations(authority, tls, answering) as server, Client(named(server, "api.example")) as client:
        with pytest.raises(Unreachable):
            await client.get(PATH)
    hosts = sorted(address[4][0] for address in tried)
    assert hosts == [f"127.0.1.{i}" for i in range(1, 9)] + [f"::ffff:127.0.1.{i}" for i in range(1, 9)]


async def test_all_addresses_refuse(authority: Authority, unused_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, lambda host, port, *_, **__: addresses(port, "127.0.0.1", "127.0.0.1"))
    async with Client(ClusterConnection(f"https://api.example:{unused_port}", authority.certificate)) as client:
        with pytest.raises(Unreachable) as raised:
            await client.get(PATH)
    assert raised.value.cause is Cause.REFUSED


@pytest.mark.parametrize("hosts", [("fe80::1", "127.0.0.1"), ("127.0.0.1", "fe80::1"), ("127.0.0.1", "127.0.0.2")])
async def test_a_refused_connection_is_reported_whatever_the_other_family_does(
    authority: Authority, unused_port: int, monkeypatch: pytest.MonkeyPatch, hosts: tuple[str, ...]
) -> None:
    """Most machines have no route to one of the two families. A refusal is the error that an operator can fix."""
    resolve(monkeypatch, "api.example", *hosts)
    async with Client(ClusterConnection(f"https://api.example:{unused_port}", authority.certificate)) as client:
        with pytest.raises(Unreachable, match="connection refused: nothing listens there") as raised:
            await client.get(PATH)
    assert raised.value.cause is Cause.REFUSED


@pytest.mark.parametrize(
    "text",
    [
        "[Errno 113] Connect call failed ('192.0.2.1', 6443)",
        "Multiple exceptions: [Errno 113] Connect call failed ('192.0.2.1', 6443), [Errno 101] Network is unreachable",
    ],
    ids=["asyncio", "aiohappyeyeballs"],
)
async def test_the_kernels_error_is_reported(
    authority: Authority, unused_port: int, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    async def fail(*_: Any, **__: Any) -> socket.socket:
        raise OSError(text)

    monkeypatch.setattr(aiohappyeyeballs, "start_connection", fail)
    async with Client(ClusterConnection(f"https://127.0.0.1:{unused_port}", authority.certificate)) as client:
        with pytest.raises(Unreachable, match="connection failed: No route to host") as raised:
            await client.get(PATH)
    assert raised.value.cause is Cause.NETWORK


async def test_a_silent_address_does_not_delay_the_next(
    authority: Authority, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve(monkeypatch, "api.example", *["::1"] * 8, "127.0.0.1")
    async with conversations(authority, tls, answering) as server:
        connection = named(server, "api.example")
        with silent("::1", int(connection.server.rpartition(":")[2])):
            async with Client(connection) as client, asyncio.timeout(5):
                assert await client.get(PATH) == {}


async def test_one_look_up_at_a_time(
    authority: Authority, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow name server, perhaps a tenant's, occupies one of the threads that all clusters share."""
    running = most = total = 0

    def slow(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        nonlocal running, most, total
        running, total = running + 1, total + 1
        most = max(most, running)
        assert release.wait(10)
        running -= 1
        return addresses(port, "127.0.0.1")

    release = threading.Event()
    resolving(monkeypatch, slow)
    async with conversations(authority, tls, answering) as server, Client(named(server, "api.example")) as client:
        calls = [asyncio.create_task(client.get(PATH)) for _ in range(5)]
        async with asyncio.timeout(10):
            while not running:  # noqa: ASYNC110 - a thread knows no Event of the loop
                await asyncio.sleep(0.001)
        calls[0].cancel()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await calls[0]
        assert await asyncio.gather(*calls[1:]) == [{}] * 4
    assert (most, total) == (1, 1)


async def test_slow_name_servers_of_others_stop_no_calls(
    authority: Authority, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They occupy every thread. A server that was reached before is reached at its last addresses."""

    def lookup(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        assert host == "api.example" or release.wait(10)
        return addresses(port, "127.0.0.1")

    async def ending(conversation: Conversation) -> None:
        await conversation.hear()
        await conversation.say(http_answer(b"{}", headers="Content-Type: application/json\r\nConnection: close\r\n"))

    monkeypatch.setattr(dial, "KNOWN_AFTER_SECONDS", 0.01)
    release = threading.Event()
    resolving(monkeypatch, lookup)
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(conversations(authority, tls, ending))
        client = await stack.enter_async_context(Client(named(server, "api.example")))
        assert await client.get(PATH) == {}
        stack.callback(release.set)
        looking_up = [asyncio.create_task(dial._resolved(Origin.of("https://slow.example:1"))) for _ in range(32)]
        async with asyncio.timeout(5):
            assert await client.get(PATH) == {}
        assert not any(task.done() for task in looking_up)
        release.set()
        await asyncio.gather(*looking_up)


async def test_slow_name_servers_use_their_own_threads(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates are signed in threads of the event loop, which has at most 32."""

    def slow(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        assert release.wait(10)
        raise socket.gaierror(-2, "unknown")

    release = threading.Event()
    resolving(monkeypatch, slow)
    async with contextlib.AsyncExitStack() as stack:
        calls = []
        for _ in range(32):
            client = Client(ClusterConnection("https://slow.example", authority.certificate))
            calls.append(asyncio.create_task((await stack.enter_async_context(client)).get(PATH)))
        for _ in range(5):
            await asyncio.sleep(0)
        try:
            assert await asyncio.wait_for(asyncio.to_thread(lambda: "signed"), 5) == "signed"
        finally:
            release.set()
        assert {type(outcome) for outcome in await asyncio.gather(*calls, return_exceptions=True)} == {Unreachable}


async def test_a_failed_look_up_is_repeated(
    authority: Authority, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[list[Any] | Exception] = [socket.gaierror(-2, "unknown"), UnicodeError("label"), []]

    def lookup(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        outcome = outcomes.pop(0) if outcomes else addresses(port, "127.0.0.1")
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    resolving(monkeypatch, lookup)
    async with conversations(authority, tls, answering) as server, Client(named(server, "api.example")) as client:
        for _ in range(3):
            with pytest.raises(Unreachable, match="name resolution") as raised:
                await client.get(PATH)
            assert raised.value.cause is Cause.NAME_RESOLUTION
        assert await client.get(PATH) == {}


async def test_a_label_too_long_for_a_name_has_no_address(authority: Authority) -> None:
    async with Client(ClusterConnection(f"https://{'a' * 64}.example", authority.certificate)) as client:
        with pytest.raises(Unreachable) as raised:
            await client.get(PATH)
    assert raised.value.cause is Cause.NAME_RESOLUTION


@pytest.mark.parametrize("name", ["a" * 64, "a..b", ".a"])
async def test_a_name_that_no_certificate_can_hold(authority: Authority, tls: ssl.SSLContext, name: str) -> None:
    async with conversations(authority, tls, answering) as server:
        connection = dataclasses.replace(server.connection, tls_server_name=name)
        async with Client(connection) as client:
            with pytest.raises(Unreachable, match="TLS failed: the name to verify") as raised:
                await client.get(PATH)
    assert raised.value.cause is Cause.TLS
    gc.collect()  # a socket that is left open warns, and a warning is an error


@pytest.mark.parametrize("reads", [10_000, 1], ids=["closed", "reset"])  # what is left unread makes it a reset (tcp(7))
async def test_a_handshake_that_is_interrupted(authority: Authority, reads: int) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(reads)
        writer.transport.abort()

    listener = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with listener, Client(ClusterConnection(f"https://127.0.0.1:{port}", authority.certificate)) as client:
        with pytest.raises(Unreachable, match="connection failed") as raised:
            await client.get(PATH)
    assert raised.value.cause is Cause.NETWORK


async def test_an_ipv6_address(authority: Authority, tls: ssl.SSLContext) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
            port = probe.getsockname()[1]
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    async with Client(ClusterConnection(f"https://[::1]:{port}", authority.certificate)) as client:
        with pytest.raises(Unreachable, match="refused"):
            await client.get(PATH)
