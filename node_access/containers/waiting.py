"""A process that waits for the next session: nobody waits then for its fork and its tools.

It has been forked while the agent served nobody, and so has no descriptor of any session but its own.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

_Prepared = TypeVar("_Prepared")
_MAXIMUM_TASK_BYTES: Final = 8192
_SEPARATOR: Final = "\0"


class Ended(Exception):
    """The process has ended before its session came."""


@dataclass(frozen=True, slots=True)
class Task:
    """What the agent says about a session. Whose it is, the agent has from the kernel."""

    name: str
    """The container's."""
    folder: Path
    """The session's own."""

    def encode(self) -> bytes:
        """As a message."""
        return f"{self.name}{_SEPARATOR}{self.folder}".encode()


@dataclass(frozen=True, slots=True)
class Waiting:
    """The process, as the agent has it."""

    process_id: int
    channel: socket.socket

    def hand_over(self, connection: socket.socket, task: Task) -> int:
        """Give it its session; returns its process ID.

        Raises:
            Ended: it serves nobody any more.
        """
        try:
            socket.send_fds(self.channel, [task.encode()], [connection.fileno()])
        except OSError:
            raise Ended from None
        finally:
            self.close()
        return self.process_id

    def is_process(self, pid: int) -> bool:
        """Whether it has that process ID. If so, it has ended."""
        if pid == self.process_id:
            self.close()
        return pid == self.process_id

    def close(self) -> None:
        """It ends unless it has a session."""
        self.channel.close()


def fork_waiting(prepare: Callable[[], _Prepared], serve: Callable[[socket.socket, Task, _Prepared], None]) -> Waiting:
    """Fork it. In the child, ``prepare`` lets go of what the agent has, and ``serve`` serves one session.

    Raises:
        OSError: there are too many processes or descriptors.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        try:
            child = os.fork()
        except OSError:
            ours.close()
            raise
        if child:
            return Waiting(child, ours)
        try:
            ours.close()
            _wait(theirs, prepare(), serve)
        except BaseException as defect:  # noqa: BLE001 - the child must not go on as a second agent
            print(f"<1>a defect before a session: {type(defect).__name__}", file=sys.stderr, flush=True)
        finally:
            os._exit(0)


def _wait(channel: socket.socket, prepared: _Prepared, serve: Callable[[socket.socket, Task, _Prepared], None]) -> None:
    """Until the agent hands over a session, or ends."""
    message, descriptors, _, _ = socket.recv_fds(channel, _MAXIMUM_TASK_BYTES, 1)
    channel.close()
    if not descriptors:
        return
    with socket.socket(fileno=descriptors[0]) as connection:
        connection.set_inheritable(False)
        name, _, folder = message.decode().partition(_SEPARATOR)
        serve(connection, Task(name, Path(folder)), prepared)
