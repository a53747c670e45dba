"""Bounds for what asyncssh keeps: without them, a client takes any amount of memory.

asyncssh has no interface for them, so they replace methods of the one connection or channel. The tests fail if a later
asyncssh calls others.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

MERGED_BYTES: Final = 1024
"""Messages that wait are merged up to this size. Else each byte of the window could take a hundred bytes here."""


def bound_channel(channel: Any) -> None:
    """Keep no environment, which reaches no container anyway, and merge small messages that wait."""
    channel._process_env_request = _refuse_environment
    accept = channel._accept_data

    def accept_merged(data: bytes, datatype: int | None = None) -> None:
        accept(data, datatype)
        buffered = channel._recv_buf
        if len(buffered) < 2:
            return
        (former, former_type), (last, last_type) = buffered[-2:]
        if former_type == last_type and len(former) + len(last) <= MERGED_BYTES:
            buffered[-2:] = [(former + last, last_type)]

    channel._accept_data = accept_merged


def bound_connection(connection: Any) -> asyncio.Event:
    """Take nothing more from a client that does not read: asyncssh writes on, as far as a window that the client names
    itself, and answers every request. Returns what is set while the client reads: wait for it before output.
    """
    reads, transport = asyncio.Event(), connection._transport
    reads.set()

    def pause() -> None:
        reads.clear()
        transport.pause_reading()

    def resume() -> None:
        reads.set()
        transport.resume_reading()

    connection.pause_writing, connection.resume_writing = pause, resume
    return reads


def _refuse_environment(packet: Any) -> bool:
    del packet
    return False


__all__ = ["MERGED_BYTES", "bound_channel", "bound_connection"]
