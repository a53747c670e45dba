"""The connections to one server: what is idle is used again, for a while."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Self

from signer.kube.http.connection import HttpConnection
from signer.kube.http.dial import Dialer
from signer.kube.http.messages import ConnectionClosed, Origin, ResponseHead

IDLE_SECONDS = 15.0
"""After which an idle connection is closed; kube-apiserver closes it after 90 (apiserver ``secure_serving.go``)."""

CLOSE_SECONDS = 2.0
"""For which the end of connections is waited for; it comes at once."""


class Response:
    """An answer whose head is here. To be closed: only then its connection is closed, or used again."""

    __slots__ = ("_connection", "_pool", "head")

    def __init__(self, head: ResponseHead, connection: HttpConnection, pool: Pool) -> None:
        self.head = head
        self._connection: HttpConnection | None = connection
        self._pool = pool

    async def read(self, maximum: int | None = None) -> bytes:
        """Of the body what is there, at least a byte and at most ``maximum``; empty at its end.

        Raises:
            ConnectionClosed: the connection ended before it.
            MalformedAnswer: it is not framed as HTTP/1.1 has it.
        """
        if self._connection is None:
            raise ConnectionClosed(within_answer=True)
        return await self._connection.read(maximum)

    def close(self) -> None:
        """No more is read. The connection is used again if all has come, else it is closed; twice is once."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.return_connection(connection)


class Pool:
    """Connections to one server, as many as are asked for at once."""

    def __init__(
        self,
        origin: Origin,
        tls: ssl.SSLContext,
        server_name: str | None = None,
        spent: Callable[[float], None] = lambda cpu_seconds: None,
    ) -> None:
        """``server_name`` is verified in the server's certificate instead of the origin's host.

        ``spent`` is told of seconds of CPU that the server may choose: handshakes, and data in very small pieces.
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
        """Send a request; its answer, once the head is here.

        A server may close an idle connection just when it is used again. Then a request that is ``repeatable`` (it
        changes nothing) is sent once more, on a new connection; any other may have been carried out.

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
        """Close all connections, and wait for that; whoever reads from one gets ConnectionClosed."""
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

    def return_connection(self, connection: HttpConnection) -> None:
        """Of an answer that is closed."""
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
        """The one used last, of which the server is least likely to have had enough."""
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
