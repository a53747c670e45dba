"""An HTTP server for a handful of paths, which no client can hold on to: a connection is one request, within seconds.

aiohttp parses; what it does not bound, the number of connections and the time that one may take, is bounded here. What
is too much stays in the kernel's backlog, and takes neither memory nor descriptors of this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

from aiohttp import web

CONNECTIONS: Final = 32
CONNECTION_SECONDS: Final = 15.0
"""From being accepted to being closed, TLS handshake included."""
_HANDSHAKE_SECONDS: Final = 5.0
_BACKLOG: Final = 64
_PAUSE_SECONDS: Final = 0.2
_SHUTDOWN_SECONDS: Final = 0.1
_NO_IPV6: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT})

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
) -> AsyncIterator[tuple[str, int]]:
    """Answer GET and HEAD of the paths in ``handlers`` while the context is open.

    Yields the address, with the port that was taken when ``port`` is 0. An empty ``host`` is every address.

    Raises:
        OSError: the address cannot be listened at.
    """
    answering = web.Server(_dispatch(handlers), access_log=None, handler_cancellation=True)
    with _listener(host, port) as listener:
        accepting = asyncio.create_task(
            _accept(listener, answering, tls, asyncio.Semaphore(connections), connection_seconds)
        )
        try:
            address = listener.getsockname()
            yield str(address[0]), int(address[1])
        finally:
            accepting.cancel()
            await asyncio.gather(accepting, return_exceptions=True)
            await answering.shutdown(timeout=_SHUTDOWN_SECONDS)


def _dispatch(handlers: Mapping[str, Handler]) -> Handler:
    async def answer(request: web.BaseRequest) -> web.Response:
        handler = handlers.get(request.path)
        if handler is None:
            response = web.Response(status=404, text="not found\n")
        elif request.method not in ("GET", "HEAD"):
            response = web.Response(status=405, text="method not allowed\n", headers={"Allow": "GET, HEAD"})
        else:
            response = await handler(request)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.force_close()
        return response

    return answer


def _listener(host: str, port: int) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        try:
            listener = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
        else:
            listener.setblocking(False)
            return listener
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    listener.setblocking(False)
    return listener


async def _accept(
    listener: socket.socket,
    answering: web.Server,
    tls: ssl.SSLContext | None,
    slots: asyncio.Semaphore,
    seconds: float,
) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as tasks:
        while True:
            await slots.acquire()
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:  # a client that went away again, or no descriptors left
                slots.release()
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            task = tasks.create_task(_serve(connection, answering, tls, seconds))
            task.add_done_callback(lambda _: slots.release())


async def _serve(connection: socket.socket, answering: web.Server, tls: ssl.SSLContext | None, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    closed = asyncio.Event()
    handshake = _HANDSHAKE_SECONDS if tls is not None else None
    with contextlib.suppress(OSError, TimeoutError), connection:  # a client's faults are its own
        async with asyncio.timeout(seconds):
            transport, _ = await loop.connect_accepted_socket(
                lambda: _Told(answering(), closed), connection, ssl=tls, ssl_handshake_timeout=handshake
            )
            try:
                await closed.wait()
            finally:
                transport.abort()


class _Told(asyncio.Protocol):
    """Hands everything on to aiohttp, and tells when the connection is closed."""

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
