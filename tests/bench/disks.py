"""Measures drains with a slower etcd disk, which delays every sequential write."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from typing import Final

from tests.bench.drains import STARTS, measure_drain
from tests.bench.figures import Better, Column, Figure, Row, Table
from tests.bench.progress import Say
from tests.bench.world import Work, bench_world
from tests.support.etcd import Disk

WORK: Final = (Work.PEER, Work.FIRST_JOIN, Work.RENEWAL)
_SYNCS: Final = 200


def rate(work: Work) -> str:
    """The key of the column with the rate of ``work``."""
    return f"{work.value}, per_second"


def ratio(work: Work) -> str:
    """The key of the column with the ratio to the peer's rate."""
    return f"{work.value}, ratio"


COLUMNS: Final = (
    Column(rate(Work.PEER), "kube-controller-manager, per second", 0, Better.HIGHER),
    *(
        column
        for work in (Work.FIRST_JOIN, Work.RENEWAL)
        for column in (
            Column(rate(work), f"{work.value}s, per second", 0, Better.HIGHER),
            Column(ratio(work), "ratio to the peer", 2, Better.HIGHER),
        )
    ),
)


def measure_disks(requests: int, milliseconds: Sequence[int], say: Say) -> Table:
    """Measure each disk on a control plane of its own; ``milliseconds`` are the added latencies per sync."""
    rows = tuple(_row(requests, slower, say) for slower in milliseconds)
    return Table(
        "disks",
        f"Draining {requests:,} pending requests, by added latency of each sync of etcd's disk in milliseconds",
        COLUMNS,
        rows,
        (
            f"A sync takes {_sync_milliseconds():.1f} ms on this machine's disk.",
            "strace delays etcd's fdatasync(2), and nothing else. Each backlog is measured once.",
        ),
    )


def _row(requests: int, slower: int, say: Say) -> Row:
    spent = {}
    with bench_world(requests + STARTS, Disk(slower_by_milliseconds=slower)) as world:
        for work in WORK:
            say(f"{slower} ms added: {work.value}")
            spent[work] = measure_drain(world, work).per_second
    figures = {rate(work): Figure.once(spent[work]) for work in WORK}
    for work in (Work.FIRST_JOIN, Work.RENEWAL):
        figures[ratio(work)] = Figure.once(spent[work] / spent[Work.PEER])
    return Row(str(slower), figures)


def _sync_milliseconds() -> float:
    """The median latency of syncing 4 KiB, about as much as etcd writes at once."""
    taken = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(_SYNCS):
            file.write(bytes(4096))
            file.flush()
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return 1000 * statistics.median(taken)
