"""Measures how long a node waits when requests are posted at a steady rate, independent of earlier certificates."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench.drain import Watcher
from tests.bench.figures import PEER, Better, Column, Figure, Row, Table, percentile
from tests.bench.progress import Say
from tests.bench.submission import Poster, Submission
from tests.bench.world import Work, bench_world
from tests.support.control_plane import ControlPlane

RATES: Final = (20, 100)
"""Requests per second."""
COLUMNS: Final = (
    Column("requests", "requests", 0, Better.NEITHER),
    Column("offered", "offered per second", 1, Better.NEITHER),
    Column("p50", "p50, ms", 0),
    Column("p99", "p99, ms", 0),
    Column("most", "maximum, ms", 0),
    Column("waiting", "waiting at the end", 0),
)
WORK: Final = (Work.FIRST_JOIN, Work.RENEWAL, Work.PEER)
_OFFERED_SHARE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Offered:
    """Requests posted at a rate."""

    answered: Mapping[str, float]
    """When the API server had created each request, by ``time.monotonic``."""
    began: float

    @property
    def ended(self) -> float:
        """When the last request was created."""
        return max(self.answered.values())

    @property
    def per_second(self) -> float:
        """The achieved rate."""
        return len(self.answered) / (self.ended - self.began)


@dataclass(frozen=True, slots=True)
class Waited:
    """The times at which certificates were seen."""

    offered: Offered
    seen: Mapping[str, float]

    @property
    def seconds(self) -> list[float]:
        """Seconds from the response to the creation of each request to its certificate."""
        return [max(self.seen[name] - answered, 0.0) for name, answered in self.offered.answered.items()]

    @property
    def waiting(self) -> int:
        """Requests without a certificate when the last one was created; more than a few mean a growing backlog."""
        return sum(seen > self.offered.ended for seen in self.seen.values())


def measure_steady(seconds: float, say: Say, rates: Sequence[int] = RATES) -> Table:
    """Measure the controller and kube-controller-manager on the same control plane, one after the other."""
    counts = {rate: max(round(rate * seconds), 1) for rate in rates}
    say(f"{sum(counts.values()) + 1:,} Machines")
    rows = []
    with bench_world(sum(counts.values()) + 1) as world:
        for work in WORK:
            single, *left = world.submissions(work)
            with world.decider(work)() as process:
                offer(world.control_plane, process, [single], 1)  # waits for the process to start
                for rate, count in counts.items():
                    say(f"{work.value}, {rate} per second")
                    now, left = left[:count], left[count:]
                    rows.append(_row(work, rate, offer(world.control_plane, process, now, rate)))
    return Table(
        "steady",
        f"Time from a request's creation to its certificate, at a steady rate for {seconds:.0f} s",
        COLUMNS,
        tuple(rows),
        tuple(_notes(rows, counts)),
    )


def steady_row(work: Work, rate: int) -> str:
    """The name of a row."""
    return f"{PEER if work is Work.PEER else work.value}, {rate} per second"


def _row(work: Work, rate: int, waited: Waited) -> Row:
    milliseconds = [1000 * one for one in waited.seconds]
    figures = {
        "requests": len(milliseconds),
        "offered": waited.offered.per_second,
        "p50": percentile(milliseconds, 50),
        "p99": percentile(milliseconds, 99),
        "most": max(milliseconds),
        "waiting": waited.waiting,
    }
    return Row(steady_row(work, rate), {key: Figure.once(value) for key, value in figures.items()})


def _notes(rows: Sequence[Row], counts: Mapping[int, int]) -> list[str]:
    notes = ["Requests are posted on schedule, independent of earlier ones; a watch shows the certificates."]
    for row in rows:
        rate = next(rate for rate in counts if row.name.endswith(f", {rate} per second"))
        if row.figures["offered"].value < _OFFERED_SHARE * rate:
            notes.append(f"{row.name}: only {row.figures['offered'].value:.1f} per second could be offered.")
    return notes


def offer(
    control_plane: ControlPlane, decider: subprocess.Popen[bytes], submissions: Sequence[Submission], rate: float
) -> Waited:
    """Post the requests at the rate, wait until each has its certificate, and check the issuer.

    Raises:
        tests.bench.drain.NotIssued: a request got no certificate.
    """
    watcher = Watcher(control_plane.connection(), (one.name for one in submissions)).watch()
    offered = asyncio.run(_post_in_time(control_plane, submissions, rate))
    watcher.wait(decider)
    watcher.check_issued_by(control_plane.ca_key_pem)
    return Waited(offered, watcher.seen)


async def _post_in_time(control_plane: ControlPlane, submissions: Sequence[Submission], rate: float) -> Offered:
    answered: dict[str, float] = {}

    async def post(submission: Submission) -> None:
        await poster.post(submission)
        answered[submission.name] = time.monotonic()

    async with Poster(control_plane) as poster:
        began, posted = time.monotonic(), list[asyncio.Task[None]]()
        for number, submission in enumerate(submissions):
            await asyncio.sleep(max(began + number / rate - time.monotonic(), 0))
            posted.append(asyncio.create_task(post(submission)))
        await asyncio.gather(*posted)
    return Offered(answered, began)
