"""Measures the cost of a drain: time, CPU time of each program, and writes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, TypeAlias

from tests.bench.drain import Watcher, cpu_seconds
from tests.support.control_plane import ControlPlane
from tests.support.processes import wait_until

Decider: TypeAlias = Callable[[], AbstractContextManager["subprocess.Popen[bytes]"]]
"""Starts and stops the process that decides requests."""

DECIDER: Final = "decider"
API_SERVER: Final = "kube-apiserver"
ETCD: Final = "etcd"
_QUIET_SECONDS: Final = 1.0
_AT_MOST_SECONDS: Final = 20.0
_IDLE_SHARE: Final = 0.1
"""Share of a core."""
_IDLE_WITHIN_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Spent:
    """The cost from the start of the deciding process to the last certificate.

    CPU time and writes are counted until writes cease.
    """

    certificates: int
    seconds: float
    seconds_to_first: float
    """Time to the first certificate."""
    cpu_seconds: Mapping[str, float]
    """By program: :data:`DECIDER`, :data:`API_SERVER`, :data:`ETCD`."""
    writes: int
    """Counted by etcd's revision."""

    def beyond(self, start: Spent) -> Spent:
        """The cost without start-up; ``start`` is the cost of the same process with fewer requests.

        The start-up time is at most the time to the first certificate, even if the machine was busy at the other start.
        """
        starting = min(start.seconds, self.seconds_to_first)
        return Spent(
            self.certificates - start.certificates,
            self.seconds - starting,
            self.seconds_to_first - starting,
            {program: spent - start.cpu_seconds[program] for program, spent in self.cpu_seconds.items()},
            self.writes - start.writes,
        )

    @property
    def per_second(self) -> float:
        """Certificates per second."""
        return self.certificates / self.seconds

    @property
    def writes_each(self) -> float:
        """Writes per certificate."""
        return self.writes / self.certificates

    def cpu_milliseconds(self, program: str) -> float:
        """CPU time of a program per certificate."""
        return 1000 * self.cpu_seconds[program] / self.certificates


def drain(control_plane: ControlPlane, decider: Decider, names: Iterable[str]) -> Spent:
    """Start the deciding process on a backlog of pending requests; wait for all certificates, and check their issuer.

    Raises:
        tests.bench.drain.NotIssued: a request got no certificate.
    """
    wanted = set(names)
    watcher = Watcher(control_plane.connection(), wanted).watch()
    revision, before = control_plane.revision(), _servers(control_plane)
    began = time.monotonic()
    with decider() as process:
        watcher.wait(process)
        _wait_until_quiet(control_plane)
        spent = {DECIDER: cpu_seconds(process.pid)}
        writes = control_plane.revision() - revision
        spent.update({program: after - before[program] for program, after in _servers(control_plane).items()})
    watcher.check_issued_by(control_plane.ca_key_pem)
    return Spent(len(wanted), watcher.last - began, watcher.first - began, spent, writes)


def wait_until_idle(control_plane: ControlPlane) -> None:
    """Wait until the servers are idle: a new API server, or one with new resources, first builds OpenAPI documents.

    Raises:
        TimeoutError: the servers are not idle in time.
    """
    last, since = _servers(control_plane), time.monotonic()

    def is_idle() -> bool:
        nonlocal last, since
        elapsed = time.monotonic() - since
        if elapsed < _QUIET_SECONDS:
            return False
        spent, last, since = last, _servers(control_plane), time.monotonic()
        return all(last[program] - spent[program] <= _IDLE_SHARE * elapsed for program in last)

    wait_until(is_idle, "kube-apiserver and etcd are idle", _IDLE_WITHIN_SECONDS)


def _servers(control_plane: ControlPlane) -> dict[str, float]:
    processes = control_plane.process_ids()
    return {program: cpu_seconds(processes[program]) for program in (API_SERVER, ETCD)}


def _wait_until_quiet(control_plane: ControlPlane) -> None:
    """Wait for later writes, such as Events, which belong to the cost of the certificates."""
    last, since = control_plane.revision(), time.monotonic()

    def is_quiet() -> bool:
        nonlocal last, since
        revision = control_plane.revision()
        if revision != last:
            last, since = revision, time.monotonic()
        return time.monotonic() - since >= _QUIET_SECONDS

    wait_until(is_quiet, "writes cease", _AT_MOST_SECONDS)
