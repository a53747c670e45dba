"""Measures draining backlogs of pending requests, with the controller and kube-controller-manager in turn."""

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
    Column("per_second", "per second", 0, Better.HIGHER),
    Column("ratio", "ratio to the peer", 2, Better.HIGHER),
    Column("cpu", "CPU, ms", 2),
    Column("cpu_without_key", "CPU without the CA key, ms", 2),
    Column("api_server_cpu", "kube-apiserver CPU, ms", 2),
    Column("etcd_cpu", "etcd CPU, ms", 2),
    Column("writes", "writes", 2),
)
STARTS: Final = 2
"""Starts with a single request; the first start on a control plane triggers one-time work of its API server."""
_OURS: Final = (Work.FIRST_JOIN, Work.RENEWAL, Work.RENEWAL_AUDITED)


@dataclass(frozen=True, slots=True)
class _Round:
    """The results on one control plane."""

    spent: Mapping[Work, Spent]
    key_milliseconds: float


def measure_drains(requests: int, rounds: int, say: Say) -> Table:
    """Measure each round on a control plane of its own; the order alternates between rounds."""
    measured = [_measure_round(requests, number, rounds, say) for number in range(1, rounds + 1)]
    key = statistics.median(one.key_milliseconds for one in measured)
    return Table(
        "drain",
        f"Draining {requests:,} pending kubelet client CSRs: certificates per second, and cost per certificate",
        COLUMNS,
        tuple(_row(work, measured) for work in (*_OURS, Work.PEER)),
        (
            f"Medians of {rounds} rounds, with the range in brackets. The peer is kube-controller-manager without "
            "client limits, with the same CA key, API server and kind of requests, in the same round.",
            "CPU is the CPU time of the deciding process, with and without the CA's key operation.",
            "Start-up cost is excluded: it is measured with a single request just before, and subtracted.",
            "The key operation, an RSA-2048 signature with the CA key and its verification, takes "
            f"{key:.2f} ms of CPU.",
            "Writes are counted by etcd's revision, until writes cease.",
            "One kube-apiserver serves as management and workload cluster, and shares the machine with everything "
            "else.",
        ),
    )


def measure_drain(world: BenchWorld, work: Work) -> Spent:
    """Drain the requests of all nodes of ``world`` but :data:`STARTS`, excluding start-up cost.

    The requests are posted before the deciding process starts.

    Raises:
        tests.bench.drain.NotIssued: a request got no certificate.
    """
    submissions = world.submissions(work)
    parts = (submissions[:1], submissions[1:2], submissions[STARTS:])
    _, start, backlog = [_post_and_drain(world, work, part) for part in parts]
    return backlog.beyond(start)


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
