"""Makes a connection that the peer has reset before any byte was sent."""

from __future__ import annotations

import select
import socket
import struct
from typing import Final

ABORT_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""``SO_LINGER`` value with which closing the socket resets the connection."""
_SECONDS: Final = 10.0


def reset_connection() -> socket.socket:
    """The connection; the reset has arrived."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        this_side = socket.create_connection(listener.getsockname())
        other_side, _ = listener.accept()
    abort(other_side)
    wait_for_reset(this_side)
    return this_side


def abort(connection: socket.socket) -> None:
    """Reset a connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT_ON_CLOSE)
    connection.close()


def wait_for_reset(connection: socket.socket) -> None:
    """Wait for the peer's reset; raises ``TimeoutError``."""
    if not select.select([connection], [], [], _SECONDS)[0]:
        raise TimeoutError(f"no reset within {_SECONDS} s")
