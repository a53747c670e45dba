"""A bounded HTTP server for a few paths: each connection serves one request, within seconds.

aiohttp parses requests; this module bounds the number, rate and duration of connections, which aiohttp does not. At the
limit, idle connections close first; if none is idle, new connections wait in the kernel's backlog, which takes neither
memory nor descriptors of this process. A connection whose request has not arrived whole is idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

from aiohttp import web

from signer.controller.diagnostics.connections import (
    Bounds,
    Closed,
    Connection,
    Connections,
    Report,
    TooManyOfSource,
    ignore,
)
from signer.controller.diagnostics.source_rates import TooMuch

READING: Final = ("GET", "HEAD")
_POSTING: Final = ("POST",)
SMALL_BODY_BYTES: Final = 256 * 1024
"""Larger bodies are read and answered one at a time, so that they cannot use up the memory."""
_BOUNDS: Final = Bounds()
_HANDSHAKE_SECONDS: Final = 5.0
_BACKLOG: Final = 64
_PAUSE_SECONDS: Final = 0.2
_SHUTDOWN_SECONDS: Final = 0.1
_EVERY_ADDRESS: Final = frozenset({"", "::"})
"""Hosts that mean all addresses of both families, as in Go: probes use a Pod's first address, of either family."""
_NO_IPV6: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT})


def _accept_any(_: str) -> None:
    """Each address may connect as often as it likes."""


_LOG = logging.getLogger(__name__)
# aiohttp would log what clients send, so any client could cause any number of log lines.
_SILENT: Final = logging.Logger(f"{__name__}.silent", logging.CRITICAL + 1)

Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.Response]]


class Refused(Exception):
    """The client does not get an answer from the handler."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Posting:
    """Answers ``POST`` with a body; a plain :data:`Handler` answers ``GET`` and ``HEAD``."""

    answer: Callable[[bytes, str], Awaitable[web.Response]]
    """Of the body, and the client's address. It may raise :class:`Refused`."""
    maximum_bytes: int
    admit: Callable[[web.BaseRequest], None]
    """Called before the body is read. It raises :class:`Refused`."""


Route: TypeAlias = Handler | Posting


@asynccontextmanager
async def bounded_server(
    host: str,
    port: int,
    routes: Mapping[str, Route],
    *,
    tls: ssl.SSLContext | None = None,
    bounds: Bounds = _BOUNDS,
    accepts: Callable[[str], None] = _accept_any,
    report: Report = ignore,
) -> AsyncIterator[tuple[str, int]]:
    """Serve the paths in ``routes`` while the context is open.

    Yields the address, with the assigned port if ``port`` is 0. An empty ``host`` means all addresses. ``accepts``
    raises :class:`~signer.controller.diagnostics.source_rates.TooMuch` for the address of a client whose connection is
    to be closed at once. ``report`` is told of connections that were closed unanswered.

    Raises:
        OSError: the server cannot listen on the address.
    """
    held = Connections(bounds, report)
    answering = web.Server(_dispatch(routes, held), access_log=None, logger=_SILENT, handler_cancellation=True)
    with _listener(host, port) as listener:
        accepting = asyncio.create_task(_Accepting(answering, tls, held, bounds, accepts, report).run(listener))
        try:
            address = listener.getsockname()
            yield str(address[0]), int(address[1])
        finally:
            accepting.cancel()
            await asyncio.gather(accepting, return_exceptions=True)
            await answering.shutdown(timeout=_SHUTDOWN_SECONDS)


def _dispatch(routes: Mapping[str, Route], held: Connections) -> Handler:
    large = asyncio.Semaphore(1)

    async def answer(request: web.BaseRequest) -> web.Response:
        route = routes.get(request.path)
        methods = _POSTING if isinstance(route, Posting) else READING
        if route is None:
            response = web.Response(status=404, text="not found\n")
        elif request.method not in methods:
            response = web.Response(status=405, text="method not allowed\n", headers={"Allow": ", ".join(methods)})
        elif isinstance(route, Posting):
            response = await _posted(route, request, held, large)
        else:
            with held.answering(request.protocol):
                response = await _answered(route, request)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.force_close()
        return response

    return answer


async def _posted(
    route: Posting, request: web.BaseRequest, held: Connections, large: asyncio.Semaphore
) -> web.Response:
    """Until the body is there, the connection is idle: it ends in time, and closes to make room."""
    source = source_of(request.get_extra_info("peername"))
    try:
        route.admit(request)
        stated = request.content_length
        is_small = stated is not None and stated <= SMALL_BODY_BYTES
        async with contextlib.nullcontext() if is_small else large:
            body = await _body(request, route.maximum_bytes)
            with held.answering(request.protocol):
                return await _answered(lambda _: route.answer(body, source), request)
    except Refused as refused:
        return web.Response(status=refused.status, text=f"{refused}\n")


async def _body(request: web.BaseRequest, maximum: int) -> bytes:
    found = bytearray()
    if (request.content_length or 0) > maximum:
        raise Refused(413, "the body is too large")
    async for chunk in request.content.iter_chunked(64 * 1024):
        found += chunk
        if len(found) > maximum:
            raise Refused(413, "the body is too large")
    return bytes(found)


async def _answered(handler: Handler, request: web.BaseRequest) -> web.Response:
    try:
        return await handler(request)
    except Refused:
        raise
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


@dataclass(frozen=True, slots=True)
class _Accepting:
    """Takes connections, as many and as fast as the bounds allow, and serves each in a task."""

    answering: web.Server
    tls: ssl.SSLContext | None
    held: Connections
    bounds: Bounds
    accepts: Callable[[str], None]
    report: Report

    async def run(self, listener: socket.socket) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    accepted, peer = await loop.sock_accept(listener)
                except OSError:  # the client has disconnected, or no descriptors are left
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                source = source_of(peer)
                try:
                    self.accepts(source)
                    await self.held.wait_for_slot(source)
                except asyncio.CancelledError:
                    accepted.close()
                    raise
                except (TooMuch, TooManyOfSource):
                    accepted.close()
                    self.report(Closed.TOO_MANY)
                    continue
                protocol, opened = self.answering(), loop.time()
                deadline = asyncio.timeout_at(opened + min(self.bounds.request_seconds, self.bounds.connection_seconds))
                task = tasks.create_task(self._serve(accepted, protocol, deadline))
                ends = opened + self.bounds.connection_seconds
                self.held.opened(protocol, Connection(source, deadline, ends, task), accepted)

    async def _serve(self, accepted: socket.socket, protocol: asyncio.Protocol, deadline: asyncio.Timeout) -> None:
        closed = asyncio.Event()
        with contextlib.suppress(OSError), accepted:  # errors of the client's connection
            try:
                async with deadline:
                    transport = await self._connected(accepted, protocol, closed)
                    try:
                        await closed.wait()
                    finally:
                        transport.abort()
            except TimeoutError:
                self.report(Closed.TIMEOUT)

    async def _connected(
        self, accepted: socket.socket, protocol: asyncio.Protocol, closed: asyncio.Event
    ) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        handshake = _HANDSHAKE_SECONDS if self.tls is not None else None
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: _CloseNotifier(protocol, closed), accepted, ssl=self.tls, ssl_handshake_timeout=handshake
            )
        except ssl.SSLError:
            self.report(Closed.HANDSHAKE)
            raise
        return transport


def source_of(peer: object) -> str:
    """The address of a client's socket, without port and zone; an IPv4 address in its own form."""
    host = str(peer[0]) if isinstance(peer, tuple) and peer else ""
    return host.partition("%")[0].removeprefix("::ffff:")


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
