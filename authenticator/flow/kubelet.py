"""This machine's kubelet: restarts it, and tells whether a new process is healthy."""

from __future__ import annotations

import http.client
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

RESTART_SECONDS: Final = 60.0
"""Bound of the command. The default only queues a job of systemd."""

_CALL_SECONDS: Final = 2.0
_MAXIMUM_OUTPUT_CHARACTERS: Final = 200
_TABLES: Final = ("tcp", "tcp6")
_LISTENING: Final = "0A"
"""TCP_LISTEN in ``/proc/net/tcp`` (proc(5))."""


class KubeletFailed(Exception):
    """The kubelet was not restarted; the message tells why."""


class Kubelet(Protocol):
    """What a change of CAs needs of a kubelet."""

    def process(self) -> str:
        """Identifies the running process; empty if none listens."""
        ...

    def restart(self) -> None:
        """Have it restarted; it may still be running on return.

        Raises:
            KubeletFailed: the command failed.
        """
        ...

    def problem(self) -> str:
        """Why the running process does not count as healthy; empty if it does."""
        ...


class LocalKubelet:
    """The kubelet behind a command and the address of its ``/healthz`` (``healthzPort``, plain HTTP on loopback)."""

    def __init__(self, command: Sequence[str], host: str, port: int, *, tables: Path = Path("/proc/net")) -> None:
        self._command = command
        self._host = host
        self._port = port
        self._tables = tables

    def process(self) -> str:
        """The inodes of the sockets that listen on the port.

        Each process opens a socket of its own, so another inode shows that the process is another. Otherwise a command
        that does nothing would count as a restart, and the node's evidence would name a CA that its kubelet never read.
        This also holds across a restart of the agent, which systemd restarts with the kubelet.
        """
        inodes: set[str] = set()
        for name in _TABLES:
            try:
                lines = (self._tables / name).read_text(encoding="ascii").splitlines()[1:]
            except OSError:
                continue
            for fields in map(str.split, lines):
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == self._port:
                    inodes.add(fields[9])
        return " ".join(sorted(inodes))

    def restart(self) -> None:
        """See :class:`Kubelet`."""
        name = self._command[0]
        try:
            ran = subprocess.run(  # noqa: S603 - the administrator's own command, without a shell
                self._command, stdin=subprocess.DEVNULL, capture_output=True, timeout=RESTART_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise KubeletFailed(f"{name} did not end within {RESTART_SECONDS:.0f} s") from None
        except OSError as error:
            raise KubeletFailed(f"{name} cannot be run: {error.strerror}") from None
        if ran.returncode:
            text = (ran.stderr or ran.stdout).decode("utf-8", "replace")[:_MAXIMUM_OUTPUT_CHARACTERS]
            shown = "".join(one if one.isprintable() else " " for one in text).strip()
            raise KubeletFailed(f"{name} ended with exit code {ran.returncode}: {shown or 'no output'}")

    def problem(self) -> str:
        """See :class:`Kubelet`."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_CALL_SECONDS)
        try:
            connection.request("GET", "/healthz")
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            return f"the kubelet does not answer at {self._host}:{self._port} ({type(error).__name__})"
        finally:
            connection.close()
        return "" if status == http.HTTPStatus.OK else f"the kubelet's /healthz answers {status}"
