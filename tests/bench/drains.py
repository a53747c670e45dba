"""Draining heaps of pending requests, ours and kube-controller-manager in turn on the same control planes."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench.figures import PEER, Better, Column, Figure, Row, Table
from tests.bench.profile import key_milliseconds
from tests.bench.progress import Say
from tests.bench.spent import API_SERVER, DECIDER, ETCD, Spent, drain
from tests.bench.submission import Submission, post_all
from tests.bench.world import BenchWorld, Work, bench_world

COLUMNS: Final = (
    Column("per_second", "a second", 0, Better.HIGHER),
    Column("ratio", "times the peer", 2, Better.HIGHER),
    Column("cpu", "CPU, ms", 2),
    Column("cpu_without_key", "without the key, ms", 2),
    Column("api_server_cpu", "kube-apiserver, ms", 2),
    Column("etcd_cpu", "etcd, ms", 2),
    Column("writes", "writes", 2),
)
STARTS: Final = 2
"""Starts with a single request: the first in a control plane makes its server do what it does once."""
_OURS: Final = (Work.FIRST_JOIN, Work.RENEWAL, Work.RENEWAL_AUDITED)


@dataclass(frozen=True, slots=True)
class _Round:
    """What one control plane saw."""

    spent: Mapping[Work, Spent]
    key_milliseconds: float


def measure_drains(requests: int, rounds: int, say: Say) -> Table:
    """Each round on a control plane of its own; who comes first changes from round to round."""
    measured = [_measure_round(requests, number, rounds, say) for number in range(1, rounds + 1)]
    key = statistics.median(one.key_milliseconds for one in measured)
    return Table(
        "drain",
        f"Draining {requests:,} pending kubelet client CSRs: certificates a second, and what each costs",
        COLUMNS,
        tuple(_row(work, measured) for work in (*_OURS, Work.PEER)),
        (
            f"Rounds: {rounds}; medians, and the range in brackets. The peer is kube-controller-manager, its client "
            "limits lifted, with the same CA key, API server and kind of requests in the same round.",
            "CPU is that of the deciding process, with and without the CA's key operation; of kube-apiserver; of etcd.",
            "What starting costs is left out: it is measured with a single request just before, and subtracted.",
            f"The key operation, a signature of the RSA-2048 CA key and its check, takes {key:.2f} ms of CPU.",
            "Writes are counted by etcd's revision, until nobody writes any more.",
            "Management and workload cluster are one kube-apiserver, which shares the machine with everything else.",
        ),
    )


def measure_drain(world: BenchWorld, work: Work) -> Spent:
    """All nodes of the world but :data:`STARTS` ask before the deciding process starts; without what starting costs.

    Raises:
        tests.bench.drain.NotIssued: one of them got no certificate.
    """
    submissions = world.submissions(work)
    parts = (submissions[:1], submissions[1:2], submissions[STARTS:])
    _, start, heap = [_post_and_drain(world, work, part) for part in parts]
    return heap.beyond(start)


def _post_and_drain(world: BenchWorld, work: Work, submissions: Sequence[Submission]) -> Spent:
    post_all(world.control_plane, submissions)
    return drain(world.control_plane, world.decider(work), [one.name for one in submissions])


def _measure_round(requests: int, number: int, rounds: int, say: Say) -> _Round:
    say(f"round {number} of {rounds}: {requests:,} Machines")
    order = (Work.PEER, *_OURS) if number % 2 else (*_OURS, Work.PEER)
    spent = {}
    with bench_world(requests + STARTS) as world:
        for work in order:
            say(f"round {number} of {rounds}: {work.value}")
            spent[work] = measure_drain(world, work)
        return _Round(spent, key_milliseconds(world.control_plane))


def _row(work: Work, rounds: Sequence[_Round]) -> Row:
    spent = [one.spent[work] for one in rounds]
    peers = [one.spent[Work.PEER] for one in rounds]
    figures = {
        "per_second": [one.per_second for one in spent],
        "cpu": [one.cpu_milliseconds(DECIDER) for one in spent],
        "api_server_cpu": [one.cpu_milliseconds(API_SERVER) for one in spent],
        "etcd_cpu": [one.cpu_milliseconds(ETCD) for one in spent],
        "writes": [one.writes_each for one in spent],
    }
    if work is not Work.PEER:
        figures["ratio"] = [one.per_second / peer.per_second for one, peer in zip(spent, peers, strict=True)]
        figures["cpu_without_key"] = [
            one.cpu_milliseconds(DECIDER) - a_round.key_milliseconds for one, a_round in zip(spent, rounds, strict=True)
        ]
    name = PEER if work is Work.PEER else work.value
    return Row(name, {key: Figure.of(values) for key, values in figures.items()})
