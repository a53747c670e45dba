"""The connections to one server; idle connections are reused for a while.

One connection sends a request, receives the response, and accepts no other data. Reading stops while more than a bound
is buffered. No error is stored as an exception object: its traceback would hold data that was read until Python's
cyclic garbage collector runs. Each is created where it is raised.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Self, cast

from signer.kube.http.dial import Dialer
from signer.kube.http.messages import ConnectionClosed, MalformedAnswer, Origin, ResponseHead, ResponseParser
from signer.kube.http.tls_transport import TlsTransport

MAXIMUM_HELD_BYTES = 64 * 1024
"""Buffered bytes of a response body at which reading stops, besides the data that the transport read at once."""


class HttpConnection(asyncio.Protocol):
    """The asyncio protocol of one connection over TLS."""

    __slots__ = ("_answer", "_loop", "_on_lost", "_paused", "_quiet", "_tls_reason", "_transport",
                 "_waiter", "lost")  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[HttpConnection], None]) -> None:
        """``on_lost`` is called once, when the connection is closed."""
        self._loop = loop
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._answer: ResponseParser | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._quiet = select.poll()
        self._paused = False
        self.lost = False
        """The connection is closed."""
        self._tls_reason: str | None = None

    # For callers

    async def ask(self, request: bytes) -> ResponseHead:
        """Send a request; returns the head of its response. If this raises or is cancelled, the caller must ``abort``.

        Raises:
            ConnectionClosed: the connection ended first.
            MalformedAnswer: the data is no HTTP response.
        """
        if self._transport is None or self._answer is not None:
            raise ConnectionClosed(within_answer=False, tls_reason=self._tls_reason)
        response = self._answer = ResponseParser()
        self._transport.write(request)
        while response.head is None:
            await self._wait_for_data(response)
        return response.head

    async def read(self, maximum: int | None = None) -> bytes:
        """The buffered part of the body, at least one byte and at most ``maximum``; empty at the end of the body.

        Raises:
            ConnectionClosed, MalformedAnswer: as ``ask``; buffered data is lost.
        """
        response = self._answer
        if response is None:
            raise ConnectionClosed(within_answer=True)
        while not response.held:
            if response.complete:
                return b""
            await self._wait_for_data(response)
        data = response.take(maximum)
        self._resume_if_taken(response)
        return data

    def finish(self) -> bool:
        """Drop the response. Returns whether the connection can carry another request; if not, the caller must abort
        it.
        """
        response, self._answer = self._answer, None
        if response is not None:
            response.close()
        return response is not None and response.reusable and self._is_open() and not self._paused and self._is_sent()

    def is_silent(self) -> bool:
        """Whether the idle connection is open, and no data or end of stream is waiting in the socket.

        A request on a connection that the server has closed is lost, and it is unknown whether the server read it.
        """
        return self._is_open() and not self._quiet.poll(0)

    def abort(self) -> None:
        """Close at once; unsent data is dropped."""
        if self._transport is not None:
            self._transport.abort()

    # Machinery

    def _is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def _is_sent(self) -> bool:
        """Whether the last request is sent. Otherwise requests would pile up here for a server that responds but never
        reads.
        """
        return self._transport is not None and self._transport.get_write_buffer_size() == 0

    async def _wait_for_data(self, response: ResponseParser) -> None:
        """Wait for more data, or the end of the connection."""
        if response.malformed:
            raise MalformedAnswer
        if self.lost:
            raise ConnectionClosed(within_answer=response.began, tls_reason=self._tls_reason)
        waiter = self._waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def _pause_if_full(self, response: ResponseParser, transport: asyncio.Transport) -> None:
        # Not after the last byte: data after it is unrequested and must be noticed at once.
        if response.held > MAXIMUM_HELD_BYTES and not response.complete and not self._paused:
            self._paused = True
            transport.pause_reading()

    def _resume_if_taken(self, response: ResponseParser) -> None:
        if self._paused and self._transport is not None and response.held <= MAXIMUM_HELD_BYTES // 2:
            self._paused = False
            self._transport.resume_reading()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._quiet.register(transport.get_extra_info("socket"), select.POLLIN | select.POLLPRI)

    def data_received(self, data: bytes) -> None:
        response, transport = self._answer, self._transport
        if transport is None:  # aborted while data was still being delivered
            return
        if response is None or response.complete:
            transport.abort()  # unrequested data must never be taken for the next response
            return
        response.feed(data)
        if response.malformed:
            transport.abort()
        else:
            self._pause_if_full(response, transport)
        self._wake()

    def eof_received(self) -> None:
        # All data of the server has arrived. An orderly close would wait until the server has read the rest of a
        # request, and a hostile server reads nothing.
        self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if isinstance(error, ssl.SSLError):
            self._tls_reason = getattr(error, "reason", None) or "broken off"  # Python's own errors have none
        self.lost = True
        self._transport = None
        self._wake()
        self._on_lost(self)


IDLE_SECONDS = 15.0
"""Time after which an idle connection is closed; kube-apiserver closes it after 90 s (apiserver ``secure_serving.go``).
"""

CLOSE_SECONDS = 2.0
"""Maximum wait for the end of the connections, which normally comes at once."""


class Response:
    """A response whose head has arrived. It must be closed, which closes its connection or returns it to the pool."""

    __slots__ = ("_connection", "_pool", "head")

    def __init__(self, head: ResponseHead, connection: HttpConnection, pool: Pool) -> None:
        self.head = head
        self._connection: HttpConnection | None = connection
        self._pool = pool

    async def read(self, maximum: int | None = None) -> bytes:
        """The available part of the body, at least one byte and at most ``maximum``; empty at the end of the body.

        Raises:
            ConnectionClosed: the connection ended before the body.
            MalformedAnswer: the framing is not HTTP/1.1.
        """
        if self._connection is None:
            raise ConnectionClosed(within_answer=True)
        return await self._connection.read(maximum)

    def close(self) -> None:
        """Stop reading. The connection is reused if the whole response has arrived, else closed. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.release(connection)


class Pool:
    """Connections to one server, as many as there are concurrent requests."""

    def __init__(
        self,
        origin: Origin,
        tls: ssl.SSLContext,
        server_name: str | None = None,
        spent: Callable[[float], None] = lambda cpu_seconds: None,
        on_connect: Callable[[TlsTransport], None] = lambda transport: None,
    ) -> None:
        """``server_name`` is verified in the server's certificate instead of the origin's host.

        ``spent`` is called with seconds of CPU time that the server can influence: handshakes, and data in very small
        pieces. ``on_connect`` is that of ``Dialer``.
        """
        self._loop = asyncio.get_running_loop()
        self._dialer = Dialer(origin, tls, server_name, spent, on_connect)
        self._open: set[HttpConnection] = set()
        self._idle: list[tuple[HttpConnection, float]] = []  # the longest idle first
        self._sweeping: asyncio.TimerHandle | None = None
        self._all_lost: asyncio.Future[None] | None = None
        self.closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def send(self, request: bytes, *, repeatable: bool) -> Response:
        """Send a request; returns its response once the head has arrived.

        A server may close an idle connection at the moment it is reused. A ``repeatable`` request, which changes
        nothing, is then sent once more on a new connection. Any other may have been carried out.

        Raises:
            ConnectionClosed, MalformedAnswer: as ``HttpConnection.ask``.
            OSError: as ``Dialer.dial``.
        """
        idle = self._take_idle()
        if idle is not None:
            try:
                return await self._ask(idle, request)
            except ConnectionClosed as broken:
                if not repeatable or broken.within_answer or broken.tls_reason is not None:
                    raise
        return await self._ask(await self._connect(), request)

    async def close(self) -> None:
        """Close all connections and wait for their end; readers get ConnectionClosed."""
        self.closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._idle.clear()
        for connection in self._open:
            connection.abort()
        if self._open:
            if self._all_lost is None:
                self._all_lost = self._loop.create_future()
            await asyncio.wait([self._all_lost], timeout=CLOSE_SECONDS)

    def release(self, connection: HttpConnection) -> None:
        """Take back the connection of a closed response."""
        if not connection.finish() or self.closed:
            connection.abort()
            return
        self._idle.append((connection, self._loop.time()))
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(IDLE_SECONDS, self._sweep)

    async def _ask(self, connection: HttpConnection, request: bytes) -> Response:
        head = None
        try:
            head = await connection.ask(request)
        finally:
            if head is None:
                connection.finish()
                connection.abort()
        return Response(head, connection, self)

    def _take_idle(self) -> HttpConnection | None:
        """The connection used last: the server is least likely to have closed it."""
        while self._idle:
            connection, _ = self._idle.pop()
            if connection.is_silent():
                return connection
            connection.abort()
        return None

    async def _connect(self) -> HttpConnection:
        if self.closed:
            raise ConnectionClosed(within_answer=False)
        return self._keep(await self._dialer.dial(lambda: HttpConnection(self._loop, self._on_lost)))

    def _keep(self, connection: HttpConnection) -> HttpConnection:
        if not connection.lost:
            self._open.add(connection)
        if self.closed:
            connection.abort()
        return connection

    def _on_lost(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        self._idle = [(idle, since) for idle, since in self._idle if idle is not connection]
        if not self._open and self._all_lost is not None and not self._all_lost.done():
            self._all_lost.set_result(None)

    def _sweep(self) -> None:
        now = self._loop.time()
        self._sweeping = None
        while self._idle and now - self._idle[0][1] >= IDLE_SECONDS:
            self._idle.pop(0)[0].abort()
        if self._idle:
            self._sweeping = self._loop.call_at(self._idle[0][1] + IDLE_SECONDS, self._sweep)
