"""What programs of a node that systemd starts have in common: an orderly stop, and word of their state."""

from __future__ import annotations

import os
import signal
import socket
from types import FrameType


class Stop:
    """Whether SIGTERM or SIGINT has asked to stop. Programs look at least every few seconds."""

    def __init__(self) -> None:
        self._is_asked = False

    def listen(self) -> None:
        """Remember these signals from now on; in the main thread."""
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._is_asked = True

    def __call__(self) -> bool:
        return self._is_asked


def notify(state: str) -> None:
    """Tell systemd, as sd_notify(3) does; without systemd, nobody."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode("ascii"), address.replace("@", "\0", 1) if address.startswith("@") else address)


__all__ = ["Stop", "notify"]
