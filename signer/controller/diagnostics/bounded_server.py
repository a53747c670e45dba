"""A bounded HTTP server for a few paths: each connection serves one request, within seconds.

aiohttp parses requests; this module bounds the number and duration of connections, which aiohttp does not. At the
limit, idle connections close first; if none is idle, new connections wait in the kernel's backlog, which takes neither
memory nor descriptors of this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

from aiohttp import web

READING: Final = ("GET", "HEAD")
CONNECTIONS: Final = 32
CONNECTION_SECONDS: Final = 15.0
"""From accept to close, including the TLS handshake."""
_HANDSHAKE_SECONDS: Final = 5.0
_BACKLOG: Final = 64
_PAUSE_SECONDS: Final = 0.2
_SHUTDOWN_SECONDS: Final = 0.1
_EVERY_ADDRESS: Final = frozenset({"", "::"})
"""Hosts that mean all addresses of both families, as in Go: probes use a Pod's first address, of either family."""
_NO_IPV6: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT})

_LOG = logging.getLogger(__name__)
# aiohttp would log what clients send, so any client could cause any number of log lines.
_SILENT: Final = logging.Logger(f"{__name__}.silent", logging.CRITICAL + 1)

Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.Response]]


@asynccontextmanager
async def bounded_server(
    host: str,
    port: int,
    handlers: Mapping[str, Handler],
    *,
    tls: ssl.SSLContext | None = None,
    connections: int = CONNECTIONS,
    connection_seconds: float = CONNECTION_SECONDS,
    methods: tuple[str, ...] = READING,
) -> AsyncIterator[tuple[str, int]]:
    """Serve ``methods`` for the paths in ``handlers`` while the context is open.

    Yields the address, with the assigned port if ``port`` is 0. An empty ``host`` means all addresses.

    Raises:
        OSError: the server cannot listen on the address.
    """
    held = _Connections(connections)
    answering = web.Server(
        _dispatch(handlers, held, methods), access_log=None, logger=_SILENT, handler_cancellation=True
    )
    with _listener(host, port) as listener:
        accepting = asyncio.create_task(_accept(listener, answering, tls, held, connection_seconds))
        try:
            address = listener.getsockname()
            yield str(address[0]), int(address[1])
        finally:
            accepting.cancel()
            await asyncio.gather(accepting, return_exceptions=True)
            await answering.shutdown(timeout=_SHUTDOWN_SECONDS)


class _Connections:
    """The open connections. At the limit, the oldest idle one is closed."""

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._open: dict[asyncio.BaseProtocol, asyncio.Task[None]] = {}
        self._idle: dict[asyncio.BaseProtocol, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    async def wait_for_slot(self) -> None:
        """Return once the limit allows another connection."""
        while len(self._open) >= self._maximum:
            if self._idle:
                self._idle.pop(next(iter(self._idle))).cancel()
            self._changed.clear()
            await self._changed.wait()

    def opened(self, protocol: asyncio.BaseProtocol, connection: socket.socket, task: asyncio.Task[None]) -> None:
        """A client has connected and is served by ``task``."""
        self._open[protocol] = self._idle[protocol] = task

        def closed(_: asyncio.Task[None]) -> None:
            connection.close()  # the task does it itself unless it was cancelled before it began
            del self._open[protocol]
            self._idle.pop(protocol, None)
            self._changed.set()

        task.add_done_callback(closed)

    @contextlib.contextmanager
    def answering(self, protocol: asyncio.BaseProtocol) -> Iterator[None]:
        """Mark the connection as busy while its request is handled."""
        task = self._idle.pop(protocol, None)
        try:
            yield
        finally:
            if task is not None and protocol in self._open:
                self._idle[protocol] = task
                self._changed.set()


def _dispatch(handlers: Mapping[str, Handler], held: _Connections, methods: tuple[str, ...]) -> Handler:
    async def answer(request: web.BaseRequest) -> web.Response:
        handler = handlers.get(request.path)
        if handler is None:
            response = web.Response(status=404, text="not found\n")
        elif request.method not in methods:
            response = web.Response(status=405, text="method not allowed\n", headers={"Allow": ", ".join(methods)})
        else:
            with held.answering(request.protocol):
                response = await _answered(handler, request)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.force_close()
        return response

    return answer


async def _answered(handler: Handler, request: web.BaseRequest) -> web.Response:
    try:
        return await handler(request)
    except Exception as error:  # noqa: BLE001 - a defect is logged here, and not disclosed to the client
        _LOG.error("a request could not be answered", exc_info=error, extra={"path": request.path})
        return web.Response(status=500, text="internal error\n")


def _listener(host: str, port: int) -> socket.socket:
    if host in _EVERY_ADDRESS and socket.has_dualstack_ipv6():
        try:
            listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
        except OSError as error:
            if host or error.errno not in _NO_IPV6:
                raise
        else:
            listener.setblocking(False)
            return listener
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    listener.setblocking(False)
    return listener


async def _accept(
    listener: socket.socket, answering: web.Server, tls: ssl.SSLContext | None, held: _Connections, seconds: float
) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as tasks:
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:  # the client has disconnected, or no descriptors are left
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            try:
                await held.wait_for_slot()
            except asyncio.CancelledError:
                connection.close()
                raise
            protocol = answering()
            held.opened(protocol, connection, tasks.create_task(_serve(connection, protocol, tls, seconds)))


async def _serve(
    connection: socket.socket, protocol: asyncio.Protocol, tls: ssl.SSLContext | None, seconds: float
) -> None:
    loop = asyncio.get_running_loop()
    closed = asyncio.Event()
    handshake = _HANDSHAKE_SECONDS if tls is not None else None
    with contextlib.suppress(OSError, TimeoutError), connection:  # errors of the client's connection
        async with asyncio.timeout(seconds):
            transport, _ = await loop.connect_accepted_socket(
                lambda: _CloseNotifier(protocol, closed), connection, ssl=tls, ssl_handshake_timeout=handshake
            )
            try:
                await closed.wait()
            finally:
                transport.abort()


class _CloseNotifier(asyncio.Protocol):
    """Forwards everything to aiohttp, and sets an event when the connection is closed."""

    def __init__(self, handler: asyncio.Protocol, closed: asyncio.Event) -> None:
        self._handler = handler
        self._closed = closed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See :class:`asyncio.Protocol`."""
        self._handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """See :class:`asyncio.Protocol`."""
        self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        """See :class:`asyncio.Protocol`."""
        return self._handler.eof_received()

    def pause_writing(self) -> None:
        """See :class:`asyncio.Protocol`."""
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        """See :class:`asyncio.Protocol`."""
        self._handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """See :class:`asyncio.Protocol`."""
        self._handler.connection_lost(exc)
        self._closed.set()
