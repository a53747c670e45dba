"""The connections to one server; idle connections are reused for a while."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Self

from signer.kube.http.connection import HttpConnection
from signer.kube.http.dial import Dialer
from signer.kube.http.errors import ConnectionClosed
from signer.kube.http.request import Origin
from signer.kube.http.response import ResponseHead

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
    ) -> None:
        """``server_name`` is verified in the server's certificate instead of the origin's host.

        ``spent`` is called with seconds of CPU time that the server can influence: handshakes, and data in very small
        pieces.
        """
        self._loop = asyncio.get_running_loop()
        self._dialer = Dialer(origin, tls, server_name, spent)
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
