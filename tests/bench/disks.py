"""Draining heaps where etcd's disk is slower: who asks one thing after the other waits for the disk each time."""

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
    """The key of the column with that work's rate."""
    return f"{work.value}, per_second"


def ratio(work: Work) -> str:
    """The key of the column that compares it with the peer's."""
    return f"{work.value}, ratio"


COLUMNS: Final = (
    Column(rate(Work.PEER), "kube-controller-manager, a second", 0, Better.HIGHER),
    *(
        column
        for work in (Work.FIRST_JOIN, Work.RENEWAL)
        for column in (
            Column(rate(work), f"{work.value}s, a second", 0, Better.HIGHER),
            Column(ratio(work), "times the peer", 2, Better.HIGHER),
        )
    ),
)


def measure_disks(requests: int, milliseconds: Sequence[int], say: Say) -> Table:
    """Each disk on a control plane of its own; ``milliseconds`` is what each sync takes longer."""
    rows = tuple(_row(requests, slower, say) for slower in milliseconds)
    return Table(
        "disks",
        f"Draining {requests:,} pending requests where each sync of etcd's disk takes so many milliseconds longer",
        COLUMNS,
        rows,
        (
            f"A sync takes {_sync_milliseconds():.1f} ms on this machine's disk.",
            "strace delays etcd's fdatasync(2), and nothing else. Each heap once.",
        ),
    )


def _row(requests: int, slower: int, say: Say) -> Row:
    spent = {}
    with bench_world(requests + STARTS, Disk(slower_by_milliseconds=slower)) as world:
        for work in WORK:
            say(f"{slower} ms longer: {work.value}")
            spent[work] = measure_drain(world, work).per_second
    figures = {rate(work): Figure.once(spent[work]) for work in WORK}
    for work in (Work.FIRST_JOIN, Work.RENEWAL):
        figures[ratio(work)] = Figure.once(spent[work] / spent[Work.PEER])
    return Row(str(slower), figures)


def _sync_milliseconds() -> float:
    """The median, of as much as etcd writes at once."""
    taken = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(_SYNCS):
            file.write(bytes(4096))
            file.flush()
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return 1000 * statistics.median(taken)
