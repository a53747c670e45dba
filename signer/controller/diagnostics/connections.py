"""The open connections of a :mod:`~signer.controller.diagnostics.bounded_server`: which may come in, and which must go.

A connection is idle until its request has arrived whole, and after it was answered. Idle connections close to make
room, first those of the address that holds the most; busy ones never do.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

CONNECTIONS: Final = 32
REQUEST_SECONDS: Final = 5.0
CONNECTION_SECONDS: Final = 15.0


class Closed(enum.Enum):
    """Why the server closed a connection that it has not answered."""

    EVICTED = "evicted"
    """It was idle, and others needed its place."""
    TOO_MANY = "too_many_of_source"
    """Its address has as many busy ones, or new ones in a second, as one may have."""
    TIMEOUT = "timeout"
    """Its request did not arrive, or was not answered, in time."""
    HANDSHAKE = "tls_handshake"
    """There was no TLS handshake, or its client certificate is not one that is trusted."""


Report: TypeAlias = Callable[[Closed], None]


class TooManyOfSource(Exception):
    """The address has as many connections as one may have, and none of them is idle."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of the connections of one server."""

    connections: int = CONNECTIONS
    connections_of_source: int = CONNECTIONS
    """From one address. More replace the idle ones of that address."""
    request_seconds: float = REQUEST_SECONDS
    """From accept until the request has arrived whole, with the TLS handshake and the body."""
    connection_seconds: float = CONNECTION_SECONDS
    """From accept to close."""


@dataclass(eq=False, slots=True)
class Connection:
    """One open connection."""

    source: str
    """The client's address, without the port."""
    deadline: asyncio.Timeout
    ends: float
    """Of the loop's clock: it closes then, whatever it does."""
    task: asyncio.Task[None]
    is_evicted: bool = False
    """It closes, and counts for its address no longer."""


class Connections:
    """The open connections. At the limit, the oldest idle one of the address with most connections is closed."""

    def __init__(self, bounds: Bounds, report: Report) -> None:
        self._bounds = bounds
        self._report = report
        self._open: dict[asyncio.BaseProtocol, Connection] = {}
        self._idle: dict[asyncio.BaseProtocol, Connection] = {}
        self._of_source: Counter[str] = Counter()
        self._changed = asyncio.Event()

    async def wait_for_slot(self, source: str) -> None:
        """Return once the limits allow another connection from that address.

        Raises:
            TooManyOfSource: it has as many as one may have, and all are busy.
        """
        if self._of_source[source] >= self._bounds.connections_of_source:
            idle = [protocol for protocol, one in self._idle.items() if one.source == source]
            if not idle:
                raise TooManyOfSource
            self._evict(idle[0])
        while len(self._open) >= self._bounds.connections:
            if self._idle:
                # Of those with equally many, the first: the oldest.
                self._evict(max(self._idle, key=lambda protocol: self._of_source[self._idle[protocol].source]))
            self._changed.clear()
            await self._changed.wait()

    def opened(self, protocol: asyncio.BaseProtocol, connection: Connection, to_close: socket.socket) -> None:
        """A client has connected, and the connection's task serves it."""
        self._open[protocol] = self._idle[protocol] = connection
        self._of_source[connection.source] += 1

        def closed(_: asyncio.Task[None]) -> None:
            to_close.close()  # the task does it itself unless it was cancelled before it began
            del self._open[protocol]
            self._idle.pop(protocol, None)
            if not connection.is_evicted:
                self._leaves(connection.source)
            self._changed.set()

        connection.task.add_done_callback(closed)

    @contextlib.contextmanager
    def answering(self, protocol: asyncio.BaseProtocol) -> Iterator[None]:
        """Mark the connection as busy while its request is handled."""
        connection = self._idle.pop(protocol, None)
        if connection is not None and not connection.deadline.expired():
            connection.deadline.reschedule(connection.ends)
        try:
            yield
        finally:
            if connection is not None and protocol in self._open:
                self._idle[protocol] = connection
                self._changed.set()

    def _evict(self, protocol: asyncio.BaseProtocol) -> None:
        connection = self._idle.pop(protocol)
        connection.is_evicted = True
        self._leaves(connection.source)
        connection.task.cancel()
        self._report(Closed.EVICTED)

    def _leaves(self, source: str) -> None:
        self._of_source[source] -= 1
        if not self._of_source[source]:
            del self._of_source[source]


def ignore(_: Closed) -> None:
    """Where nobody counts them."""


__all__ = [
    "CONNECTIONS",
    "CONNECTION_SECONDS",
    "REQUEST_SECONDS",
    "Bounds",
    "Closed",
    "Connection",
    "Connections",
    "Report",
    "TooManyOfSource",
    "ignore",
]
