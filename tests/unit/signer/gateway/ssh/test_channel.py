"""Output on its way to the client: together, in order, and complete. Both ends are asyncssh's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import asyncssh
import pytest

from signer.gateway.ssh.channel import CHUNK_BYTES, Channel, ChannelGone
from signer.gateway.ssh.session import SessionChannel

STDERR = asyncssh.EXTENDED_DATA_STDERR
PIECE = bytes(4096)
Work = Callable[[SessionChannel], Coroutine[Any, Any, None]]


class Server(asyncssh.SSHServer):
    """Lets anybody in, and runs ``work`` in each session."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._tasks: set[asyncio.Task[None]] = set()

    def begin_auth(self, username: str) -> bool:
        return False

    def session_requested(self) -> SessionChannel:
        return SessionChannel(self._start, reads=always(), has_terminal=True)

    def _start(self, channel: SessionChannel) -> None:
        self._tasks.add(asyncio.create_task(self._work(channel)))


def always() -> asyncio.Event:
    """The client reads."""
    reads = asyncio.Event()
    reads.set()
    return reads


class Packets(asyncssh.SSHClientSession[bytes]):
    """What the client gets, packet by packet."""

    def __init__(self, arrived: asyncio.Event) -> None:
        self.packets: list[tuple[bytes, int | None]] = []
        self._arrived = arrived

    def data_received(self, data: bytes, datatype: int | None) -> None:
        self.packets.append((data, datatype))
        self._arrived.set()


async def received(work: Work, arrived: asyncio.Event | None = None) -> list[tuple[bytes, int | None]]:
    """The packets of a session that ``work`` writes and ends. ``arrived`` is set by the first one."""
    seen = arrived or asyncio.Event()
    key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.listen(
        "127.0.0.1", 0, server_factory=lambda: Server(work), server_host_keys=[key], encoding=None
    )
    async with asyncio.timeout(30), server:
        port = server.sockets[0].getsockname()[1]
        async with asyncssh.connect(
            "127.0.0.1", port, known_hosts=None, username="any", client_keys=None, config=None, agent_path=None
        ) as connection:
            channel, session = await connection.create_session(lambda: Packets(seen), "anything", encoding=None)
            await channel.wait_closed()
            assert isinstance(session, Packets)
            return session.packets
    raise AssertionError("unreachable: the connection ends by itself")


async def test_pieces_that_come_together_are_one_packet() -> None:
    async def work(channel: SessionChannel) -> None:
        for _ in range(3 * CHUNK_BYTES // len(PIECE)):
            await channel.stream.write(PIECE)
        channel.exit(0)

    assert await received(work) == [(bytes(CHUNK_BYTES), None)] * 3


async def test_a_piece_does_not_wait_for_others() -> None:
    """A prompt has no successor."""
    arrived = asyncio.Event()

    async def work(channel: SessionChannel) -> None:
        await channel.stream.write(b"prompt")
        await arrived.wait()
        channel.exit(0)

    assert await received(work, arrived) == [(b"prompt", None)]


async def test_output_and_errors_keep_their_order() -> None:
    async def work(channel: SessionChannel) -> None:
        await channel.stream.write(b"one ")
        await channel.stream.write(b"two")
        await channel.stream.write(b"fault", STDERR)
        await channel.stream.write(b"three")
        channel.say("ends")
        channel.exit(0)

    assert await received(work) == [
        (b"one two", None),
        (b"fault", STDERR),
        (b"three", None),
        (b"node-access-gateway: ends\r\n", STDERR),
    ]


@pytest.mark.parametrize("end", ["close", "exit"])
async def test_what_was_written_precedes_the_end(end: str) -> None:
    async def work(channel: SessionChannel) -> None:
        await channel.stream.write(b"last")
        if end == "close":
            channel.stream.close()
        else:
            channel.exit(0)

    assert await received(work) == [(b"last", None)]


async def test_a_closed_channel_takes_nothing() -> None:
    channel = Channel(always())
    channel.gone()
    with pytest.raises(ChannelGone):
        await channel.write(b"x")
