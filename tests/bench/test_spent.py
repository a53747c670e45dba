"""What a drain costs beyond its start; small ones on real parts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bench.drains import STARTS, measure_drain
from tests.bench.spent import API_SERVER, DECIDER, ETCD, Spent, drain
from tests.bench.steady import offer
from tests.bench.submission import NotCreated, post_all
from tests.bench.world import BenchWorld, Work, bench_world
from tests.support.binaries import MissingPart, skip_or_fail

NODES = 22
PROGRAMS = (DECIDER, API_SERVER, ETCD)


def spent(certificates: int, seconds: float, first: float, cpu: float, writes: int) -> Spent:
    return Spent(certificates, seconds, first, dict.fromkeys(PROGRAMS, cpu), writes)


def test_what_starting_costs_is_left_out() -> None:
    heap = spent(101, 13.0, 3.0, 1.5, 310).beyond(spent(1, 3.0, 3.0, 0.5, 10))
    assert heap.per_second == 10
    assert heap.cpu_milliseconds(DECIDER) == 10
    assert heap.writes_each == 3


def test_starting_took_no_longer_than_until_the_first_certificate() -> None:
    """Else a slow single start would make a heap look fast, or drained before it began."""
    heap = spent(101, 13.0, 3.0, 1.5, 310).beyond(spent(1, 14.0, 14.0, 0.5, 10))
    assert heap.seconds == 10


@pytest.fixture(scope="module")
def world() -> Iterator[BenchWorld]:
    try:
        with bench_world(NODES) as running:
            yield running
    except MissingPart as missing:
        skip_or_fail(missing)


SINCE_APPROVERS = (1, 21)
"""The version from which kube-controller-manager approves several requests at once."""


@pytest.mark.real
@pytest.mark.slow
class TestRealParts:
    def test_first_joins_cost_what_they_write(self, world: BenchWorld) -> None:
        first_joins = world.submissions(Work.FIRST_JOIN)
        post_all(world.control_plane, first_joins)
        measured = drain(world.control_plane, world.decider(Work.FIRST_JOIN), [one.name for one in first_joins])
        assert measured.certificates == NODES
        # Three at least for each: record, approval, certificate.
        assert 3 <= measured.writes_each < 10
        assert measured.seconds >= measured.seconds_to_first > 0
        assert all(measured.cpu_seconds[program] > 0 for program in PROGRAMS)
        with pytest.raises(NotCreated, match="409"):
            post_all(world.control_plane, first_joins[:1])

    def test_the_peer_is_measured_beyond_its_start(self, world: BenchWorld) -> None:
        measured = measure_drain(world, Work.PEER)
        assert measured.certificates == NODES - STARTS - 1
        # Two for each; where several approve at once, a few of them were before the first certificate.
        one_approver = world.control_plane.binaries.kubernetes() < SINCE_APPROVERS
        assert (2 if one_approver else 1.5) <= measured.writes_each < 3
        assert measured.seconds > 0

    def test_renewals_at_a_steady_rate(self, world: BenchWorld) -> None:
        renewals = world.submissions(Work.RENEWAL)[:10]
        with world.decider(Work.RENEWAL)() as process:
            waited = offer(world.control_plane, process, renewals, 10)
        assert set(waited.seen) == set(waited.offered.answered) == {one.name for one in renewals}
        assert all(seconds >= 0 for seconds in waited.seconds)
        assert waited.offered.ended - waited.offered.began >= 0.9  # not faster than the rate
