"""A TCP load balancer on 127.0.0.1, as in front of the API servers of a cluster. It knows nothing of TLS."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from signer.testing.api.thread import LoopThread, end_connections, stop_accepting
from tests.support.closing import ClosedAtTheEnd

HOST: Final = "127.0.0.1"
_READ_BYTES: Final = 64 * 1024

Choice = Callable[[int, int], int]
"""The backend's position by the number of the connection, from 0, and the number of backends."""


def round_robin(connection: int, backends: int) -> int:
    """Each backend in turn."""
    return connection % backends


def always_the_first(connection: int, backends: int) -> int:
    """As a load balancer that chooses by the client's address, for one client."""
    return 0


class Balancer(ClosedAtTheEnd):
    """Listens until it is closed. ``choose`` and ``backends`` may be replaced at any time, for new connections."""

    def __init__(
        self, backends: Sequence[tuple[str, int]], choose: Choice = round_robin, *, host: str = HOST, port: int = 0
    ) -> None:
        """``backends`` are hosts and ports. A connection to one that does not listen is closed. Raises OSError if
        ``port`` is not free.
        """
        self.backends = tuple(backends)
        self.choose = choose
        self.connections = 0
        """Accepted so far."""
        self.host = host
        self._thread = LoopThread("balancer")
        self._thread.start()
        with self.closed_on_failure():
            self._server = self._thread.wait(asyncio.start_server(self._accepted, host, port))
            self.port = int(self._server.sockets[0].getsockname()[1])

    @property
    def server(self) -> str:
        """``https://127.0.0.1:port``."""
        return f"https://{self.host}:{self.port}"

    @contextlib.contextmanager
    def without(self, host: str) -> Iterator[None]:
        """Lead no new connection to ``host`` meanwhile, as a load balancer that drains it."""
        before = self.backends
        self.backends = tuple(one for one in before if one[0] != host) or before
        try:
            yield
        finally:
            self.backends = before

    def close(self) -> None:
        """Close the port and all connections."""
        if not self._thread.running:
            return
        if hasattr(self, "_server"):
            self._thread.wait(self._close())
        self._thread.stop()

    async def _close(self) -> None:
        for listening in self._server.sockets:
            await stop_accepting(listening.fileno())
        self._server.close()
        await end_connections()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, backends = self.connections, self.backends
        self.connections += 1
        try:
            there = await asyncio.open_connection(*backends[self.choose(number, len(backends))])
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end of the stream, which ends the other side's connection as well."""
    with contextlib.suppress(OSError):
        while data := await reader.read(_READ_BYTES):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()
