"""A hostile server's and the client's ends, pauses and key updates: no data twice, none lost, nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from signer.kube.connection import ClusterConnection
from signer.kube.http.tls_transport import (
    MAXIMUM_HANDSHAKE_BYTES,
    MAXIMUM_OVERHEAD_BYTES,
    READ_BYTES,
    TlsTransport,
    connect,
)
from signer.kube.tls import client_context
from tests.unit.signer.kube.http.conversation import Conversation, conversations
from tests.unit.signer.kube.http.records import ALERT, DATA, HANDSHAKE, REQUESTED, Spoken, by_hand
from tests.unit.signer.kube.http.test_tls_transport import Recording, connected, gone
from tests.unit.signer.kube.support import Authority, server_context

CLOSE_NOTIFY = b"\1\0"
RESET = struct.pack("ii", 1, 0)


@pytest.fixture
def own_tls(authority: Authority) -> ssl.SSLContext:
    """A context for one test, which may change it."""
    return server_context(authority.issue("server", "127.0.0.1"))


class Acting(Recording):
    """Does something with each piece, as the protocol may."""

    def __init__(self, act: Callable[[TlsTransport], None]) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self._act = act
        self._transport: TlsTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, TlsTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)
        super().data_received(data)
        assert self._transport is not None
        self._act(self._transport)


@contextlib.asynccontextmanager
async def transport_of(connection: ClusterConnection, protocol: asyncio.Protocol) -> AsyncIterator[TlsTransport]:
    """A transport with a small send buffer, so that more data waits. Afterwards its socket must not be watched."""
    opened = await connected(connection)
    descriptor = opened.fileno()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    transport = await connect(opened, client_context(connection), "127.0.0.1", protocol)
    try:
        yield transport
    finally:
        transport.abort()
        await asyncio.sleep(0)
        assert opened.fileno() == -1
        loop = asyncio.get_running_loop()
        assert not loop.remove_reader(descriptor), "another file that gets this number would be read"
        assert not loop.remove_writer(descriptor)


async def lost(protocol: Recording) -> Exception | None:
    return await asyncio.wait_for(protocol.lost, 10)


# The handshake


async def test_a_handshake_without_end(authority: Authority) -> None:
    """OpenSSL skips each renegotiation request; the socket always has more, and the timer would never run."""
    requests = bytes(4) * 4096

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read(1 << 16)
            for _ in range(16 * MAXIMUM_HANDSHAKE_BYTES // len(requests)):
                writer.write(struct.pack("!BHH", HANDSHAKE, 0x0303, len(requests)) + requests)
            await writer.drain()
        writer.transport.abort()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    connection = ClusterConnection(f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}", authority.certificate)
    async with listener:
        opened = await connected(connection)
        with pytest.raises(ssl.SSLError) as raised:
            await connect(opened, client_context(connection), "127.0.0.1", Recording())
        assert raised.value.reason == "the server's handshake is too long"
        assert opened.fileno() == -1


async def test_a_chain_of_certificates_without_end(authority: Authority) -> None:
    """Sixty RSA keys with the largest exponents: 0.4 seconds of the event loop for each handshake."""
    pair = authority.issue("server", "127.0.0.1")
    for others, kept in ((20, True), (200, False)):
        chain = server_context(replace(pair, certificate=pair.certificate + authority.certificate * others))
        listener = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=chain)
        connection = ClusterConnection(
            f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}", authority.certificate
        )
        async with listener:
            opened = await connected(connection)
            if kept:
                (await connect(opened, client_context(connection), "127.0.0.1", Recording())).abort()
                continue
            with pytest.raises(ssl.SSLError) as raised:
                await connect(opened, client_context(connection), "127.0.0.1", Recording())
            assert raised.value.reason == "the server's handshake is too long"


async def test_a_refused_server_that_is_gone_counts_as_refused(authority: Authority, own_tls: ssl.SSLContext) -> None:
    """Not "the connection broke": that the alert cannot be sent is irrelevant."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = ClusterConnection(
            f"https://127.0.0.1:{listener.getsockname()[1]}", Authority("another CA").certificate
        )
        opened = await connected(connection)
        connecting = asyncio.create_task(connect(opened, client_context(connection), "127.0.0.1", Recording()))
        accepted, _ = listener.accept()
        accepted.setblocking(False)
        hello = await loop.sock_recv(accepted, 1 << 16)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        incoming.write(hello)
        with pytest.raises(ssl.SSLWantReadError):
            own_tls.wrap_bio(incoming, outgoing, server_side=True).do_handshake()
        accepted.send(outgoing.read())
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        accepted.close()  # before the client's next iteration
        with pytest.raises(ssl.SSLCertVerificationError):
            await connecting
        assert opened.fileno() == -1


# The beginning


async def test_the_event_loop_cannot_watch_the_socket(
    authority: Authority, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")  # epoll_ctl(2)

    async with conversations(authority, tls, gone) as server:
        opened = await connected(server.connection)
        transport = TlsTransport(asyncio.get_running_loop(), opened, client_context(server.connection), "127.0.0.1")
        await transport.do_handshake()
        monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", full)
        monkeypatch.setattr("signer.kube.http.tls_transport.TlsTransport", lambda *_: transport)
        with pytest.raises(OSError, match="No space"):
            await connect(opened, client_context(server.connection), "127.0.0.1", Recording())
        assert opened.fileno() == -1


async def test_a_protocol_that_ends_it_at_once(authority: Authority, tls: ssl.SSLContext) -> None:
    """Its socket is not watched any more: another would get its number."""

    class Unwilling(Recording):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, TlsTransport)
            transport.abort()

    protocol = Unwilling()
    async with conversations(authority, tls, gone) as server, transport_of(server.connection, protocol):
        assert await lost(protocol) is None


async def test_data_in_one_segment_with_the_handshake(
    authority: Authority, own_tls: ssl.SSLContext, tmp_path: Path
) -> None:
    """It is delivered without waiting for more."""
    protocol = Acting(lambda _: None)
    async with (
        by_hand(authority, own_tls, tmp_path, Spoken.hang, word=b"hello") as connection,
        transport_of(connection, protocol),
    ):
        await protocol.has(5)
        assert protocol.pieces == [b"hello"]


# Pauses and ends


@pytest.mark.parametrize("goodbye", [True, False], ids=["close_notify", "cut off"])
async def test_an_end_after_paused_data(
    authority: Authority, own_tls: ssl.SSLContext, tmp_path: Path, goodbye: bool
) -> None:
    """Five records and the end in one segment: each comes once, in order, and then the end."""

    async def script(spoken: Spoken) -> None:
        said = b"".join(spoken.sealing.record(b"%d" % number) for number in range(5))
        spoken.writer.write(said + (spoken.sealing.record(CLOSE_NOTIFY, ALERT) if goodbye else b""))
        if goodbye:
            await spoken.hang()

    def pause(transport: TlsTransport) -> None:
        transport.pause_reading()
        transport.pause_reading()

    protocol = Acting(pause)
    async with (
        by_hand(authority, own_tls, tmp_path, script) as connection,
        transport_of(connection, protocol) as transport,
    ):
        for number in range(1, 6):
            await protocol.has(number)
            for _ in range(5):
                await asyncio.sleep(0.001)
            assert len(protocol.pieces) == number
            assert not protocol.ended
            transport.resume_reading()
            transport.resume_reading()  # idempotent
        assert await lost(protocol) is None
        assert protocol.ended
        assert protocol.pieces == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_pause_that_ends_at_once(authority: Authority, own_tls: ssl.SSLContext, tmp_path: Path) -> None:
    async def script(spoken: Spoken) -> None:
        spoken.writer.write(b"".join(spoken.sealing.record(b"%d" % number) for number in range(5)))
        await spoken.hang()

    def blink(transport: TlsTransport) -> None:
        transport.pause_reading()
        transport.resume_reading()

    protocol = Acting(blink)
    async with by_hand(authority, own_tls, tmp_path, script) as connection, transport_of(connection, protocol):
        await protocol.has(5)
        assert protocol.pieces == [b"0", b"1", b"2", b"3", b"4"]


async def test_nothing_arrives_after_an_abort(authority: Authority, own_tls: ssl.SSLContext, tmp_path: Path) -> None:
    async def script(spoken: Spoken) -> None:
        spoken.writer.write(spoken.sealing.record(b"1") + spoken.sealing.record(b"2"))
        await spoken.hang()

    protocol = Acting(TlsTransport.abort)
    async with by_hand(authority, own_tls, tmp_path, script) as connection, transport_of(connection, protocol) as ended:
        assert await lost(protocol) is None
        ended.pause_reading()
        ended.resume_reading()
        ended.write(b"x")
        ended.close()
        assert protocol.pieces == [b"1"]
        assert not protocol.ended


async def test_a_write_after_a_reset_loses_no_earlier_data(authority: Authority, tls: ssl.SSLContext) -> None:
    """Such as the response that gives the reason."""
    reset = asyncio.Event()

    async def script(conversation: Conversation) -> None:
        await conversation.say(b"1")
        await conversation.reader.readexactly(1)
        await conversation.say(b"2")
        conversation.writer.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        conversation.writer.transport.abort()
        await asyncio.sleep(0)  # it is closed in the next iteration
        await asyncio.sleep(0)
        reset.set()

    protocol = Acting(lambda _: None)
    async with (
        conversations(authority, tls, script) as server,
        transport_of(server.connection, protocol) as transport,
    ):
        await protocol.has(1)
        transport.pause_reading()
        transport.write(b"?")
        await asyncio.wait_for(reset.wait(), 10)
        transport.write(b"x" * 100_000)
        assert not transport.is_closing()
        assert transport.get_write_buffer_size() == 0
        transport.resume_reading()
        await lost(protocol)
        assert protocol.pieces == [b"1", b"2"]


async def test_an_end_while_bytes_wait(authority: Authority, own_tls: ssl.SSLContext, tmp_path: Path) -> None:
    """``transport_of`` checks what is still watched."""
    protocol = Recording()
    async with (
        by_hand(authority, own_tls, tmp_path, Spoken.hang) as connection,
        transport_of(connection, protocol) as transport,
    ):
        transport.write(b"x" * 1_000_000)
        assert transport.get_write_buffer_size() > 0
        transport.pause_reading()
        transport.abort()
        transport.resume_reading()
        transport.write(b"x" * 1_000_000)
        assert transport.get_write_buffer_size() == 0
        assert await lost(protocol) is None


async def test_a_fault_at_the_end_ends_the_connection(authority: Authority, tls: ssl.SSLContext) -> None:
    """Otherwise the event loop would find the same end in each iteration."""
    said: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: said.append(context["exception"]))

    class Faulty(Recording):
        def eof_received(self) -> None:
            raise LookupError

    async def script(conversation: Conversation) -> None:
        await conversation.say(b"x")
        conversation.writer.transport.get_extra_info("socket").shutdown(socket.SHUT_WR)
        await gone(conversation)

    protocol = Faulty()
    async with conversations(authority, tls, script) as server, transport_of(server.connection, protocol):
        assert await lost(protocol) is None
    assert [type(fault) for fault in said] == [LookupError]


# Key updates


async def test_a_key_update(authority: Authority, own_tls: ssl.SSLContext, tmp_path: Path) -> None:
    """The server requests key updates, between two messages and twice in a row: it gets them, and both sides still
    receive.
    """
    heard: list[tuple[int, bytes]] = []
    new_keys = (HANDSHAKE, bytes([24, 0, 0, 1, 0]))

    async def script(spoken: Spoken) -> None:
        sealing = spoken.sealing
        spoken.writer.write(sealing.record(b"1") + sealing.key_update(REQUESTED) + sealing.record(b"2"))
        heard.append(await spoken.record())
        spoken.of_client.renew()
        heard.append(await spoken.record())
        # OpenSSL delays its own until its next operation (RFC 8446 section 4.6.3), which is a read here.
        spoken.writer.write(sealing.key_update(REQUESTED) + sealing.key_update())
        heard.append(await spoken.record())
        spoken.writer.write(sealing.record(b"3"))
        await spoken.hang()

    protocol = Acting(lambda _: None)
    async with (
        by_hand(authority, own_tls, tmp_path, script) as connection,
        transport_of(connection, protocol) as transport,
    ):
        await protocol.has(2)
        transport.write(b"first")
        await protocol.has(3)
        assert protocol.pieces == [b"1", b"2", b"3"]
    assert heard == [new_keys, (DATA, b"first"), new_keys]


async def test_a_server_that_requests_key_updates_and_does_not_read(
    authority: Authority, own_tls: ssl.SSLContext, tmp_path: Path
) -> None:
    """With data in between, which offsets them: the data to send would grow without end."""

    async def script(spoken: Spoken) -> None:
        sealing = spoken.sealing
        for _ in range(4 * MAXIMUM_OVERHEAD_BYTES // 27):
            spoken.writer.write(sealing.record(b"x") + sealing.key_update(REQUESTED))
            await spoken.writer.drain()
        await spoken.hang()

    largest = 0

    def measure(transport: TlsTransport) -> None:
        nonlocal largest
        largest = max(largest, transport.get_write_buffer_size())

    protocol = Acting(measure)
    async with by_hand(authority, own_tls, tmp_path, script) as connection, transport_of(connection, protocol):
        error = await lost(protocol)
        assert isinstance(error, ssl.SSLError)
        assert error.reason == "the server requests key updates and does not read"
    assert MAXIMUM_OVERHEAD_BYTES < largest <= MAXIMUM_OVERHEAD_BYTES + 2 * READ_BYTES


async def test_key_updates_alone(authority: Authority, own_tls: ssl.SSLContext, tmp_path: Path) -> None:
    async def script(spoken: Spoken) -> None:
        with contextlib.suppress(OSError):
            for _ in range(2 * MAXIMUM_OVERHEAD_BYTES // 27):
                spoken.writer.write(spoken.sealing.key_update())
                await spoken.writer.drain()
            await spoken.hang()

    protocol = Recording()
    async with by_hand(authority, own_tls, tmp_path, script) as connection, transport_of(connection, protocol):
        error = await lost(protocol)
        assert isinstance(error, ssl.SSLError)
        assert error.reason == "the server sends too many records without data"


async def test_a_request_within_the_servers_own_message(
    authority: Authority, own_tls: ssl.SSLContext, tmp_path: Path
) -> None:
    """A message of the handshake's kind that has come in part: OpenSSL sends nothing before the rest. None is lost
    in silence: the connection ends."""

    async def script(spoken: Spoken) -> None:
        spoken.writer.write(spoken.sealing.record(b"x") + spoken.sealing.record(b"\x04\0\1\0", HANDSHAKE))
        await spoken.hang()

    protocol = Recording()
    async with (
        by_hand(authority, own_tls, tmp_path, script) as connection,
        transport_of(connection, protocol) as transport,
    ):
        await protocol.has(1)
        transport.write(b"request")
        assert isinstance(await lost(protocol), ssl.SSLError)
    gc.collect()
