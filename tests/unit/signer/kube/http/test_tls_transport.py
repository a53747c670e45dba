"""The bytes below HTTP: data in order and once, and what a server can send instead of data."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.errors import Cause, Unreachable
from signer.kube.http import tls_transport
from signer.kube.http.tls_transport import MAXIMUM_OVERHEAD_BYTES, READ_BYTES, TlsTransport, connect
from signer.kube.tls import client_context
from tests.unit.signer.kube.http.conversation import Conversation, Talkative, conversations
from tests.unit.signer.kube.support import Authority, http_answer, server_context

PATH = "/api/v1/secrets"
Script = Callable[[Conversation], Awaitable[None]]


class Recording(asyncio.Protocol):
    """Records the protocol's calls."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended = False
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.came = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.came.set()

    def eof_received(self) -> None:
        self.ended = True

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set_result(error)

    async def has(self, count: int) -> None:
        """Wait until so many bytes have arrived."""
        async with asyncio.timeout(10):
            while len(self.data) < count:
                self.came.clear()
                await self.came.wait()


async def connected(connection: ClusterConnection) -> socket.socket:
    host, port = connection.server.removeprefix("https://").split(":")
    opened = socket.socket()
    opened.setblocking(False)
    await asyncio.get_running_loop().sock_connect(opened, (host, int(port)))
    return opened


@contextlib.asynccontextmanager
async def transport_to(
    server: Talkative, protocol: asyncio.Protocol | None = None
) -> AsyncIterator[tuple[TlsTransport, Recording]]:
    recording = Recording()
    opened = await connected(server.connection)
    transport = await connect(opened, client_context(server.connection), "127.0.0.1", protocol or recording)
    try:
        yield transport, recording
    finally:
        transport.abort()
        await asyncio.sleep(0)


async def gone(conversation: Conversation) -> None:
    while await conversation.reader.read(1 << 16):
        pass


async def test_a_server_that_speaks_first(authority: Authority, tls: ssl.SSLContext) -> None:
    """Data that arrives with the end of the handshake is delivered without waiting for more."""

    async def script(conversation: Conversation) -> None:
        await conversation.say(b"hello")
        await gone(conversation)

    for _ in range(20):  # in one segment with the tickets, or after them
        async with conversations(authority, tls, script) as server, transport_to(server) as (_, recording):
            await recording.has(5)
            assert recording.data == b"hello"


@pytest.mark.slow
async def test_large_data_arrives_in_order_both_ways(authority: Authority, tls: ssl.SSLContext) -> None:
    sent = b"".join(b"%08d" % number for number in range(1 << 21))

    async def script(conversation: Conversation) -> None:
        await conversation.say(await conversation.reader.readexactly(len(sent)))
        await gone(conversation)

    async with conversations(authority, tls, script) as server, transport_to(server) as (transport, recording):
        middle = len(sent) // 2
        transport.write(sent[:middle])
        assert transport.get_write_buffer_size() > 0
        transport.write(sent[middle:])  # while some of the first waits
        await recording.has(len(sent))
        assert recording.data == sent
        assert transport.get_write_buffer_size() == 0
        watched = asyncio.get_running_loop().remove_writer(transport.get_extra_info("socket"))
        assert not watched, "each turn of the event loop would send nothing"


async def test_a_pause(authority: Authority, tls: ssl.SSLContext) -> None:
    """Decrypted data is delivered at the end of the pause, not with the server's next data."""

    async def script(conversation: Conversation) -> None:
        await conversation.say(b"a" * 10_000 + b"b" * 10_000)
        await gone(conversation)

    class Pausing(Recording):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            holder[0].pause_reading()

    holder: list[TlsTransport] = []
    async with conversations(authority, tls, script) as server:
        opened = await connected(server.connection)
        protocol = Pausing()
        transport = TlsTransport(asyncio.get_running_loop(), opened, client_context(server.connection), "127.0.0.1")
        holder.append(transport)
        await transport.do_handshake()
        transport.begin(protocol)
        for _ in range(10):
            before = len(protocol.data)
            await protocol.has(before + 1)
            for _ in range(5):
                await asyncio.sleep(0.001)
            assert len(protocol.data) - before <= 16 * 1024  # a record, and nothing while it pauses
            if len(protocol.data) == 20_000:
                break
            transport.resume_reading()
        assert protocol.data == b"a" * 10_000 + b"b" * 10_000
        transport.resume_reading()
        transport.abort()
        transport.pause_reading()
        transport.resume_reading()  # of a closed one: no effect
        assert await protocol.lost is None


@pytest.mark.parametrize("in_order", [True, False], ids=["close_notify", "cut off"])
async def test_the_servers_end(authority: Authority, tls: ssl.SSLContext, in_order: bool) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.say(b"last")
        if not in_order:
            conversation.writer.transport.get_extra_info("socket").shutdown(socket.SHUT_WR)
            await gone(conversation)

    async with conversations(authority, tls, script) as server, transport_to(server) as (transport, recording):
        assert await asyncio.wait_for(recording.lost, 5) is None
        assert bytes(recording.data) == b"last"
        assert recording.ended
        assert transport.is_closing()
        transport.write(b"x")  # the peer is gone
        assert transport.get_write_buffer_size() == 0


async def test_a_reset(authority: Authority, tls: ssl.SSLContext) -> None:
    async def script(conversation: Conversation) -> None:
        await conversation.reader.readexactly(1)
        plain = conversation.writer.transport.get_extra_info("socket")
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        conversation.writer.transport.abort()

    async with conversations(authority, tls, script) as server, transport_to(server) as (transport, recording):
        transport.write(b"x")
        error = await asyncio.wait_for(recording.lost, 5)
        assert isinstance(error, ConnectionResetError)
        assert error.__traceback__ is None
        assert not recording.ended


async def test_data_that_is_not_tls(authority: Authority, tls: ssl.SSLContext) -> None:
    async def script(conversation: Conversation) -> None:
        conversation.writer.transport.get_extra_info("socket")._sock.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await gone(conversation)

    async with conversations(authority, tls, script) as server, transport_to(server) as (_, recording):
        error = await asyncio.wait_for(recording.lost, 5)
        assert isinstance(error, ssl.SSLError)
        assert error.reason


async def test_a_fault_of_the_protocol_ends_the_connection(authority: Authority, tls: ssl.SSLContext) -> None:
    """Otherwise the event loop would call it again for ever."""
    said: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: said.append(context["exception"]))

    class Faulty(Recording):
        def data_received(self, data: bytes) -> None:
            raise LookupError

    async def script(conversation: Conversation) -> None:
        await conversation.say(b"x")
        await gone(conversation)

    protocol = Faulty()
    async with conversations(authority, tls, script) as server, transport_to(server, protocol):
        assert await asyncio.wait_for(protocol.lost, 5) is None
    assert [type(fault) for fault in said] == [LookupError]


# What is no data


def ticketing(authority: Authority, tickets: int) -> ssl.SSLContext:
    """A server that sends so many session tickets after its handshake, about 230 bytes each."""
    context = server_context(authority.issue("server", "127.0.0.1"))
    context.num_tickets = tickets
    return context


async def test_session_tickets_without_end(authority: Authority) -> None:
    async def script(conversation: Conversation) -> None:
        await gone(conversation)

    tls = ticketing(authority, MAXIMUM_OVERHEAD_BYTES // 100)
    async with conversations(authority, tls, script) as server:
        async with Client(server.connection) as client:
            with pytest.raises(
                Unreachable, match="TLS failed: the server sends too many records without data"
            ) as raised:
                await client.get(PATH)
        assert raised.value.cause is Cause.TLS


async def test_a_hundred_session_tickets(authority: Authority) -> None:
    async def script(conversation: Conversation) -> None:
        while True:
            await conversation.hear()
            await conversation.say(http_answer(b"{}"))

    async with conversations(authority, ticketing(authority, 100), script) as server:
        async with Client(server.connection) as client:
            for _ in range(3):
                assert await client.get(PATH) == {}
        assert server.opened == 1


async def test_data_in_the_smallest_pieces(authority: Authority, tls: ssl.SSLContext) -> None:
    """Each in a record of its own, with one byte of data in twenty-three."""
    count = 3 * MAXIMUM_OVERHEAD_BYTES // 22

    async def script(conversation: Conversation) -> None:
        for _ in range(count):
            conversation.writer.write(b"x")
        await conversation.writer.drain()
        await gone(conversation)

    async with conversations(authority, tls, script) as server, transport_to(server) as (_, recording):
        await recording.has(count)
        assert recording.data == b"x" * count


async def test_one_iteration_of_the_event_loop_reads_a_bounded_amount(
    authority: Authority, tls: ssl.SSLContext
) -> None:
    """However fast a hostile server sends, other tasks run."""

    async def script(conversation: Conversation) -> None:
        await conversation.say(b"x" * (1 << 20))
        await gone(conversation)

    class Counting(Recording):
        def __init__(self) -> None:
            super().__init__()
            self.turns: dict[int, int] = {}

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.turns[turn] = self.turns.get(turn, 0) + len(data)

    turn = 0
    protocol = Counting()
    async with conversations(authority, tls, script) as server, transport_to(server, protocol):
        while len(protocol.data) < 1 << 20:
            turn += 1
            await asyncio.sleep(0)
    assert max(protocol.turns.values()) <= READ_BYTES + 16 * 1024


# The handshake


@pytest.mark.parametrize("how", ["cancelled", "refused"])
async def test_a_failed_handshake_leaves_no_socket(authority: Authority, tls: ssl.SSLContext, how: str) -> None:
    began = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        began.set()
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(hang, "127.0.0.1", 0, ssl=tls if how == "refused" else None)
    port = listener.sockets[0].getsockname()[1]
    other = Authority("another CA").certificate if how == "refused" else authority.certificate
    connection = ClusterConnection(f"https://127.0.0.1:{port}", other)
    async with listener:
        opened = await connected(connection)
        connecting = asyncio.create_task(connect(opened, client_context(connection), "127.0.0.1", Recording()))
        if how == "cancelled":
            await began.wait()
            connecting.cancel()
        with pytest.raises(asyncio.CancelledError if how == "cancelled" else ssl.SSLCertVerificationError):
            await connecting
        assert opened.fileno() == -1
    gc.collect()


async def test_the_server_receives_the_alert(authority: Authority, tls: ssl.SSLContext) -> None:
    """An operator reads an alert in the server's log, not a broken connection."""
    heard: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = tls.wrap_bio(incoming, outgoing, server_side=True)
        while not heard.done():
            incoming.write(await reader.read(1 << 16))
            try:
                server.do_handshake()
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
            except ssl.SSLError as error:
                heard.set_result(error.reason)
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    connection = ClusterConnection(f"https://127.0.0.1:{port}", Authority("another CA").certificate)
    async with listener:
        opened = await connected(connection)
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(opened, client_context(connection), "127.0.0.1", Recording())
        assert await asyncio.wait_for(heard, 5) == "TLSV1_ALERT_UNKNOWN_CA"


def test_bounds() -> None:
    assert tls_transport.OVERHEAD_PER_DATA_BYTE > 23, "an honest record of one byte"
