"""The cost of a drain without start-up; small drains on real parts."""

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


def test_start_up_cost_is_excluded() -> None:
    backlog = spent(101, 13.0, 3.0, 1.5, 310).beyond(spent(1, 3.0, 3.0, 0.5, 10))
    assert backlog.per_second == 10
    assert backlog.cpu_milliseconds(DECIDER) == 10
    assert backlog.writes_each == 3


def test_start_up_takes_at_most_the_time_to_the_first_certificate() -> None:
    """Otherwise a slow single start would make a drain look too fast, or even negative."""
    backlog = spent(101, 13.0, 3.0, 1.5, 310).beyond(spent(1, 14.0, 14.0, 0.5, 10))
    assert backlog.seconds == 10


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
        # At least three per request: record, approval, certificate.
        assert 3 <= measured.writes_each < 10
        assert measured.seconds >= measured.seconds_to_first > 0
        assert all(measured.cpu_seconds[program] > 0 for program in PROGRAMS)
        with pytest.raises(NotCreated, match="409"):
            post_all(world.control_plane, first_joins[:1])

    def test_the_peer_is_measured_beyond_its_start(self, world: BenchWorld) -> None:
        measured = measure_drain(world, Work.PEER)
        assert measured.certificates == NODES - STARTS - 1
        # Two per request; with several approvers, some writes precede the first certificate.
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
