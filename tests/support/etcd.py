"""One etcd for a control plane under test."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.binaries import MissingPart
from tests.support.processes import Program, ProgramFailed, Programs, free_port

START_ATTEMPTS: Final = 3
"""Another program may take a free port before the intended program listens on it."""


@dataclass(frozen=True, slots=True)
class Disk:
    """etcd's disk. By default etcd waits until a write is durable, as in production."""

    syncs: bool = True
    """Whether etcd waits for the disk; some versions always do."""
    slower_by_milliseconds: float = 0.0
    """Latency added to each sync (fdatasync(2))."""

    def command(self, binary: Path) -> list[str | Path]:
        """The command to start instead of ``binary``.

        strace delays only that call; the started process is etcd itself.

        Raises:
            MissingPart: strace is not installed, or may not trace.
        """
        if not self.syncs:
            without = "--unsafe-no-fsync"
            done = subprocess.run([binary, without, "--version"], capture_output=True, check=False, timeout=60)
            return [binary, without] if done.returncode == 0 else [binary]
        if not self.slower_by_milliseconds:
            return [binary]
        strace = shutil.which("strace")
        if strace is None or subprocess.run([strace, "true"], capture_output=True, check=False, timeout=60).returncode:
            raise MissingPart(
                "strace, which makes a disk slow, is not installed (Debian: strace), or may not trace here"
            )
        delay = f"inject=fdatasync:delay_exit={round(1000 * self.slower_by_milliseconds)}"
        quiet = ["-qq", "-o", "/dev/null"]
        return [strace, "--daemonize", "-f", "--seccomp-bpf", "-e", "trace=fdatasync", "-e", delay, *quiet, binary]


NO_SYNCS: Final = Disk(syncs=False)
"""For tests: a crash of the machine would lose writes."""


class Etcd:
    """A running etcd, unencrypted on 127.0.0.1."""

    def __init__(self, programs: Programs, binary: Path, disk: Disk = NO_SYNCS) -> None:
        """Raises ``MissingPart`` and ``ProgramFailed``."""
        command = disk.command(binary)

        def start(port: int) -> Program:
            self._port = port
            flags = [
                f"--data-dir={programs.folder / f'etcd-{port}'}",
                f"--listen-client-urls={self.url}",
                f"--advertise-client-urls={self.url}",
                "--listen-peer-urls=http://127.0.0.1:0",
            ]
            return programs.start("etcd", [*command, *flags])

        start_on_free_port(programs, start, self._is_healthy)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def revision(self) -> int:
        """The number of writes so far."""
        # A range over the key "\0", which does not exist: the response has the revision.
        return int(self._request("POST", "/v3/kv/range", {"key": "AA=="})["header"]["revision"])

    def compact(self) -> None:
        """Compact to the newest revision, as the API server does every five minutes."""
        self._request("POST", "/v3/kv/compaction", {"revision": self.revision(), "physical": True})

    def _is_healthy(self) -> bool:
        try:
            return bool(self._request("GET", "/health")["health"] == "true")
        except (OSError, http.client.HTTPException, ProgramFailed):
            return False

    def _request(self, method: str, path: str, body: dict[str, object] | None = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request(method, path, body=None if body is None else json.dumps(body))
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise ProgramFailed(f"etcd answered {response.status} to {path}: {text[:500]!r}")
        return json.loads(text)


def start_on_free_port(programs: Programs, start: Callable[[int], Program], ready: Callable[[], bool]) -> Program:
    """Start a program on a free port and wait until it is ready. Raises ``ProgramFailed``."""
    for attempt in range(1, START_ATTEMPTS + 1):
        program = start(free_port())
        try:
            program.wait_ready(ready)
        except ProgramFailed as failure:
            if attempt == START_ATTEMPTS or "address already in use" not in str(failure):
                raise
            programs.stop(program)
        else:
            return program
    raise AssertionError("unreachable: the last attempt returns or raises")
