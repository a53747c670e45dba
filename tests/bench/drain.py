"""Draining a heap of pending requests: how long until each has its certificate, and what it cost."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from signer.controller.configuration import OperatorAttestor
from signer.kube.client import Client, JsonObject
from signer.kube.connection import ClusterConnection
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.testing.api.kubeconfig import kubeconfig_of
from tests.bench.load import Load
from tests.support.control_plane import ControlPlane


@dataclass(frozen=True)
class Drained:
    """One drain, measured from the worker's start signal to the last certificate."""

    what: str
    requests: int
    seconds: float
    cpu_seconds: float
    """CPU of the deciding process alone."""

    @property
    def per_second(self) -> float:
        """Certificates a second."""
        return self.requests / self.seconds

    @property
    def cpu_milliseconds(self) -> float:
        """CPU of the deciding process, for each certificate."""
        return 1000 * self.cpu_seconds / self.requests

    def as_json(self) -> dict[str, float | str | int]:
        """For the machine-readable report."""
        return {**asdict(self), "per_second": self.per_second, "cpu_milliseconds": self.cpu_milliseconds}


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far (``/proc/PID/stat``, fields 14 and 15)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Watcher(threading.Thread):
    """Watches CSRs from before the deciding process starts until the last one has its certificate."""

    def __init__(self, connection: ClusterConnection, names: set[str]) -> None:
        super().__init__(name="watcher", daemon=True)
        self._connection = connection
        self._left = set(names)
        self._watching = threading.Event()
        self.pid: int | None = None
        self.first = self.last = 0.0
        self.cpu_at_first = 0.0

    def watch(self) -> Watcher:
        """Start, and return once the watch is open."""
        self.start()
        self._watching.wait()
        return self

    def run(self) -> None:
        """See :class:`threading.Thread`."""
        asyncio.run(self._run())

    async def _run(self) -> None:
        path = CERTIFICATE_SIGNING_REQUESTS.collection()
        async with Client(self._connection, timeout_seconds=120) as client, asyncio.timeout(900):
            listed = await client.get(path, {"limit": 1})
            version = listed["metadata"]["resourceVersion"]
            self._watching.set()
            while self._left:
                async for event in client.watch(path, {"resourceVersion": version}, timeout_seconds=600):
                    version = event["object"]["metadata"]["resourceVersion"]
                    self._take(event["object"])
                    if not self._left:
                        return

    def _take(self, manifest: JsonObject) -> None:
        name = manifest["metadata"]["name"]
        if name not in self._left or not (manifest.get("status") or {}).get("certificate"):
            return
        self._left.discard(name)
        self.last = time.monotonic()
        if not self.first:
            self.first = self.last
            self.cpu_at_first = cpu_seconds(self.pid) if self.pid is not None else 0.0

    def drained(self, what: str, requests: int, pid: int) -> Drained:
        """Wait for the last certificate; what came before the first (start-up) does not count."""
        self.join()
        return Drained(what, requests - 1, self.last - self.first, cpu_seconds(pid) - self.cpu_at_first)


CONTROLLER: Sequence[str] = ("signer.cli",)
"""The module that runs it, and arguments of that module's own."""


@contextmanager
def controller_process(
    connection: ClusterConnection,
    attestors: Mapping[str, OperatorAttestor],
    *,
    audited: bool = False,
    program: Sequence[str] = CONTROLLER,
) -> Iterator[subprocess.Popen[bytes]]:
    """Our controller as its users run it: a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig, config = Path(folder) / "kubeconfig", Path(folder) / "config.yaml"
        kubeconfig.write_text(kubeconfig_of(connection, "management"))
        allowed = {provider: {"settings": dict(attestor.settings)} for provider, attestor in attestors.items()}
        config.write_text(yaml.safe_dump({"attestors": allowed}))
        command = [sys.executable, "-m", *program, "run"]
        if audited:
            command += ["--audit-log-path", str(Path(folder) / "audit.log")]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen([*command, "--kubeconfig", str(kubeconfig), "--config", str(config)], stderr=log)
            try:
                yield process
            finally:
                process.terminate()
                process.wait(timeout=30)


def drain_with_controller(
    what: str, load: Load, names: set[str], *, audited: bool = False, program: Sequence[str] = CONTROLLER
) -> Drained:
    """Start our controller, with or without an audit log, on a heap of pending requests; wait for all certificates."""
    watcher = Watcher(load.cluster.api.connection(), names).watch()
    management = load.cluster.management.api.connection()
    with controller_process(management, load.configuration.attestors, audited=audited, program=program) as process:
        watcher.pid = process.pid
        return watcher.drained(what, len(names), process.pid)


def drain_with_controller_manager(control_plane: ControlPlane, names: set[str]) -> Drained:
    """The same with kube-controller-manager, its client limits lifted."""
    watcher = Watcher(control_plane.connection(), names).watch()
    program = control_plane.start_controllers(qps=10000, burst=10000)
    watcher.pid = program.process.pid
    drained = watcher.drained("kube-controller-manager", len(names), program.process.pid)
    control_plane.stop_controllers()
    return drained
