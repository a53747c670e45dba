"""Measures what a thousand idle workload clusters cost one controller: memory, CPU, and time until all are watched.

The controller runs in a process of its own; the API servers are embedded ones in this process. The cost per cluster is
computed from the difference between few and many clusters, which excludes the process's own cost.
"""

from __future__ import annotations

import argparse
import base64
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from signer.configuration import OperatorAttestor
from tests.bench.drain import controller_process, cpu_seconds
from tests.support.many_clusters import ManyClusters

CLUSTERS: Final = 1000
FEW: Final = 100
MAXIMUM_BYTES: Final = 400 * 1024
"""Limit of resident memory per idle cluster."""
SETTLE_SECONDS: Final = 30.0
"""Pause after the last cluster is Ready, in which idle connections are closed."""
IDLE_SECONDS: Final = 60.0
"""Duration of the measurement of idle CPU time."""
_TIMEOUT_SECONDS: Final = 600.0
_ATTESTOR: Final = "keyed-mac"


@dataclass(frozen=True, slots=True)
class Started:
    """The cost of one controller with a number of idle clusters."""

    clusters: int
    watched_seconds: float
    """From the start of the process until it watched the requests of every cluster."""
    ready_seconds: float
    """From the start until every policy was Ready, which includes proof that auto-approval is removed."""
    start_cpu_seconds: float
    """The controller's CPU time until then."""
    resident: int
    """Resident memory when idle, in bytes."""
    idle_cpu_seconds: float
    """The controller's CPU time per idle minute."""


@dataclass(frozen=True, slots=True)
class IdleClusters:
    """The cost of idle clusters."""

    few: Started
    many: Started

    @property
    def bytes_each(self) -> float:
        """Resident memory per cluster."""
        return (self.many.resident - self.few.resident) / self._more

    @property
    def start_cpu_milliseconds_each(self) -> float:
        """CPU time per cluster from the start until Ready."""
        return 1000 * (self.many.start_cpu_seconds - self.few.start_cpu_seconds) / self._more

    @property
    def idle_cpu_milliseconds_each(self) -> float:
        """CPU time per cluster and idle minute."""
        return 1000 * (self.many.idle_cpu_seconds - self.few.idle_cpu_seconds) / self._more

    @property
    def _more(self) -> int:
        return self.many.clusters - self.few.clusters

    def as_json(self) -> dict[str, object]:
        """For the machine-readable report."""
        return {
            **asdict(self),
            "bytes_each": self.bytes_each,
            "start_cpu_milliseconds_each": self.start_cpu_milliseconds_each,
            "idle_cpu_milliseconds_each": self.idle_cpu_milliseconds_each,
        }


def measure_idle_clusters(count: int = CLUSTERS, *, few: int = FEW, idle_seconds: float = IDLE_SECONDS) -> IdleClusters:
    """Measure a controller with ``few`` clusters, then another with ``count``; ``few`` must be less than ``count``.

    Raises:
        TimeoutError: not all clusters are watched and Ready within ten minutes.
    """
    return IdleClusters(start_over(few, idle_seconds), start_over(count, idle_seconds))


def start_over(count: int, idle_seconds: float = IDLE_SECONDS) -> Started:
    """Start a controller with ``count`` clusters, and measure it idle.

    Raises:
        TimeoutError: not all clusters are watched and Ready within ten minutes.
    """
    attestors = {_ATTESTOR: OperatorAttestor(settings={"masterKey": base64.b64encode(bytes(32)).decode("ascii")})}
    with ManyClusters() as clusters:
        clusters.add(count, _ATTESTOR)
        return _run(clusters, count, attestors, idle_seconds)


def _run(clusters: ManyClusters, count: int, attestors: Mapping[str, OperatorAttestor], idle_seconds: float) -> Started:
    with controller_process(clusters.management.connection(), attestors) as process:
        began = time.monotonic()
        _wait(process, lambda: clusters.watched() == count)
        watched = time.monotonic() - began
        _wait(process, lambda: clusters.ready() == count)
        ready, start_cpu = time.monotonic() - began, cpu_seconds(process.pid)
        time.sleep(SETTLE_SECONDS)
        resident, cpu_before = resident_bytes(process.pid), cpu_seconds(process.pid)
        time.sleep(idle_seconds)
        idle_cpu = (cpu_seconds(process.pid) - cpu_before) * 60 / idle_seconds
        return Started(count, watched, ready, start_cpu, resident, idle_cpu)


def resident_bytes(pid: int) -> int:
    """The resident memory of a process (``proc(5)``)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def _wait(process: subprocess.Popen[bytes], is_done: Callable[[], bool]) -> None:
    until = time.monotonic() + _TIMEOUT_SECONDS
    while not is_done():
        if process.poll() is not None:
            raise RuntimeError(f"the controller ended with {process.returncode}")
        if time.monotonic() > until:
            raise TimeoutError("not all clusters are watched and Ready")
        time.sleep(0.2)


def table_of(measured: IdleClusters) -> Table:
    """The result as a table."""
    table = Table(title=f"One controller with {measured.many.clusters} idle workload clusters")
    for heading in ("", str(measured.few.clusters), str(measured.many.clusters), "per cluster"):
        table.add_column(heading, justify="left" if not heading else "right")
    few, many = measured.few, measured.many
    each = f"{measured.bytes_each / 1024:.0f} KiB"
    table.add_row("resident memory, MiB", f"{few.resident / 2**20:.0f}", f"{many.resident / 2**20:.0f}", each)
    table.add_row("time until all are watched, s", f"{few.watched_seconds:.1f}", f"{many.watched_seconds:.1f}", "")
    table.add_row("time until all are Ready, s", f"{few.ready_seconds:.1f}", f"{many.ready_seconds:.1f}", "")
    each = f"{measured.start_cpu_milliseconds_each:.1f} ms"
    table.add_row("CPU until then, s", f"{few.start_cpu_seconds:.1f}", f"{many.start_cpu_seconds:.1f}", each)
    each = f"{measured.idle_cpu_milliseconds_each:.1f} ms"
    table.add_row("CPU per idle minute, s", f"{few.idle_cpu_seconds:.2f}", f"{many.idle_cpu_seconds:.2f}", each)
    return table


def main() -> int:
    """Measure and print a table; exit code 1 if a cluster takes more memory than the limit."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.many_clusters")
    parser.add_argument("--clusters", type=int, default=CLUSTERS, metavar="N")
    options = parser.parse_args()
    measured = measure_idle_clusters(options.clusters, few=min(FEW, options.clusters // 2))
    Console(highlight=False).print(table_of(measured))
    return 0 if measured.bytes_each <= MAXIMUM_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
