"""A TLS server that sends scripted bytes on each connection, requested or not."""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from signer.kube.connection import ClusterConnection
from tests.unit.signer.kube.support import Authority

_LENGTH = re.compile(rb"\r\nContent-Length: (\d+)\r\n")


@dataclass
class Asked:
    """One request."""

    connection: int
    line: str
    body: bytes


class Conversation:
    """The server's end of one connection."""

    def __init__(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: list[Asked]
    ) -> None:
        self.number = number
        """Of connections, from 0."""
        self.reader = reader
        self.writer = writer
        self._asked = asked

    async def hear(self) -> Asked:
        """The next request; raises IncompleteReadError if the client is gone."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = b"" if length is None else await self.reader.readexactly(int(length[1]))
        asked = Asked(self.number, head.split(b" HTTP/", 1)[0].decode(), body)
        self._asked.append(asked)
        return asked

    async def say(self, data: bytes) -> None:
        """Send these bytes."""
        self.writer.write(data)
        await self.writer.drain()


@dataclass
class Talkative:
    """The server's address, and the requests that it received."""

    connection: ClusterConnection
    asked: list[Asked] = field(default_factory=list)
    opened: int = 0
    """Connections so far."""
    gone: dict[int, asyncio.Event] = field(default_factory=dict)
    """For each connection: set when the client has closed it."""

    @property
    def lines(self) -> list[tuple[int, str]]:
        """For each request the connection's number, method and target."""
        return [(asked.connection, asked.line) for asked in self.asked]


@contextlib.asynccontextmanager
async def conversations(
    authority: Authority, tls: ssl.SSLContext, script: Callable[[Conversation], Awaitable[None]]
) -> AsyncIterator[Talkative]:
    """A server on loopback that runs ``script`` for each connection, and closes it when the script returns."""
    running: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        number, server.opened = server.opened, server.opened + 1
        gone = server.gone.setdefault(number, asyncio.Event())
        try:
            await script(Conversation(number, reader, writer, server.asked))
        except (OSError, asyncio.IncompleteReadError):
            gone.set()
        finally:
            running.discard(task)
            writer.transport.abort() if writer.transport.is_closing() else writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    port = listener.sockets[0].getsockname()[1]
    server = Talkative(ClusterConnection(f"https://127.0.0.1:{port}", authority.certificate))
    try:
        yield server
    finally:
        listener.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
