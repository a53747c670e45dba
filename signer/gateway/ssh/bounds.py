"""Bounds for what asyncssh keeps of a channel: without them, a logged-in client takes any amount of memory.

asyncssh has no interface for either, so both replace methods of the one channel. The tests fail if a later asyncssh
calls others.
"""

from __future__ import annotations

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


def _refuse_environment(packet: Any) -> bool:
    del packet
    return False


__all__ = ["MERGED_BYTES", "bound_channel"]
