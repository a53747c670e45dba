"""A channel as a stream of events in, and of bytes out; both wait for the slower side.

asyncssh's own streams would treat SFTP as something to serve by itself. Sessions of this package implement its
callbacks instead (asyncssh's documentation of ``SSHServerSession`` and ``SSHTCPSession``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import asyncssh

MAXIMUM_WAITING_BYTES: Final = 256 * 1024
"""Of input that was received and not yet passed on. Then the channel stops to read, and its window closes."""
EVENT_BYTES: Final = 256
"""What an event takes besides its data."""
MAXIMUM_WAITING_SIGNALS: Final = 4
"""Further ones are dropped until one was passed on."""
CHUNK_BYTES: Final = 32 * 1024
"""Of output that becomes one packet: what OpenSSH's client takes at once (``CHAN_SES_PACKET_DEFAULT``)."""


@dataclass(frozen=True, slots=True)
class Data:
    """Input."""

    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Resized:
    """The terminal has another size, in characters."""

    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Signalled:
    """The client sends a signal (RFC 4254 section 6.9), by its name without ``SIG``."""

    name: str


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """No more input comes; output is still read."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The channel is closed."""


SSHChannel: TypeAlias = asyncssh.SSHServerChannel[bytes] | asyncssh.SSHTCPChannel[bytes]
Event: TypeAlias = Data | Resized | Signalled | EndOfInput | Gone


class ChannelGone(Exception):
    """The channel is closed: nothing can be written."""


class Channel:
    """What a session's callbacks fill, and what its task reads and writes."""

    def __init__(self, reads: asyncio.Event) -> None:
        """``reads`` is set while the client reads from the connection."""
        self._reads = reads
        self._events: deque[Event] = deque()
        self._waiting = 0
        self._has_event = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._is_gone = False
        self._on_gone: list[Callable[[], None]] = []
        self._signals = 0
        self._channel: SSHChannel | None = None
        self._output = bytearray()
        self._output_type: int | None = None

    # For callbacks

    def opened(self, channel: SSHChannel) -> None:
        """asyncssh has made the channel."""
        self._channel = channel

    def received(self, event: Event) -> None:
        """Something has come."""
        if isinstance(event, Signalled):
            if self._signals >= MAXIMUM_WAITING_SIGNALS:
                return
            self._signals += 1
        elif isinstance(event, Resized):
            self._events = deque(one for one in self._events if not isinstance(one, Resized))  # the last one counts
        elif isinstance(event, Data):
            self._waiting += len(event.content) + EVENT_BYTES
            if self._waiting > MAXIMUM_WAITING_BYTES and self._channel is not None:
                self._channel.pause_reading()
        self._events.append(event)
        self._has_event.set()

    def gone(self) -> None:
        """The channel is closed."""
        self._is_gone = True
        self.received(Gone())
        self._may_write.set()
        for call in self._on_gone:
            call()

    def pause_writing(self) -> None:
        """The client reads more slowly than we write."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """The client has read."""
        self._may_write.set()

    # For the task

    def when_gone(self, call: Callable[[], None]) -> None:
        """Call it when the channel closes; at once if it has."""
        self._on_gone.append(call)
        if self._is_gone:
            call()

    async def next(self) -> Event:
        """The next event; ``Gone`` from the end on."""
        while not self._events:
            if self._is_gone:
                return Gone()
            self._has_event.clear()
            await self._has_event.wait()
        event = self._events.popleft()
        if isinstance(event, Signalled):
            self._signals -= 1
        if isinstance(event, Data):
            self._waiting -= len(event.content) + EVENT_BYTES
            if self._waiting <= MAXIMUM_WAITING_BYTES // 2 and self._channel is not None and not self._is_gone:
                self._channel.resume_reading()
        return event

    async def write(self, content: bytes, datatype: int | None = None) -> None:
        """Write, and wait while the client does not read.

        Containers write in pieces of 4 KiB, and asyncssh makes two packets of each piece (RFC 4251 section 9.3.1). So
        what comes in one turn of the event loop is sent together.

        Raises:
            ChannelGone: it is closed.
        """
        if self._is_gone:
            raise ChannelGone
        if self._output and datatype != self._output_type:
            self.flush()
        if not self._output:
            asyncio.get_running_loop().call_soon(self._flush_if_open)
        self._output_type = datatype
        self._output += content
        if len(self._output) >= CHUNK_BYTES:
            self.flush()
        await self._may_write.wait()
        await self._reads.wait()

    def write_now(self, content: bytes, datatype: int | None = None) -> None:
        """Write without waiting, behind what was written before: for a few bytes.

        Raises:
            ChannelGone: it is closed.
        """
        self.flush()
        self._send(content, datatype)

    def flush(self) -> None:
        """Send what was written.

        Raises:
            ChannelGone: it is closed.
        """
        if self._output:
            output, self._output = self._output, bytearray()
            self._send(output, self._output_type)

    def _flush_if_open(self) -> None:
        with contextlib.suppress(ChannelGone):
            self.flush()

    def _send(self, content: bytes | bytearray, datatype: int | None) -> None:
        if self._is_gone or self._channel is None:
            raise ChannelGone
        try:
            self._channel.write(bytes(content), datatype)
        except OSError:  # asyncssh: not open for sending
            raise ChannelGone from None

    def close(self) -> None:
        """Close it, once everything is written."""
        self._flush_if_open()
        if self._channel is not None:
            self._channel.close()


__all__ = ["CHUNK_BYTES", "Channel", "ChannelGone", "Data", "EndOfInput", "Event", "Gone", "Resized", "Signalled"]
