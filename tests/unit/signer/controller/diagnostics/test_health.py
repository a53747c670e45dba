"""``/healthz`` and ``/readyz``: what makes each fail, and what must not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest

from signer.controller.diagnostics.health import QUIET_SECONDS, STUCK_SECONDS, Health, State
from signer.controller.replicas.leadership import Leadership
from signer.controller.replicas.shards import SharedShards
from signer.kube.errors import Forbidden
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.floors import NO_FLOORS
from signer.model.seal import KEY_BYTES, ControllerKeys
from signer.model.shard import SomeShards
from signer.rules.leadership import Leading, StandingBy
from signer.rules.sharding import Disagreeing, Joining, Standing
from signer.rules.sharding import Sharing as HasItsPart
from signer.store.caches import OUT_OF_TOUCH_SECONDS, Caches
from signer.store.cluster_api import ClusterAPIVersion


class World:
    """A started controller with a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.busy: tuple[float, ...] = ()
        version = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2)
        self.caches = Caches(version, own_namespace="own", monotonic=lambda: self.now, floors=NO_FLOORS)
        self.caches.authentic.use_keys(ControllerKeys(bytes(KEY_BYTES)))
        self.health = Health()
        self.health.watch(self.caches, lambda: self.busy)
        self.health.started()

    def hear(self, *but: str) -> None:
        for cache in self.caches.watched():
            if cache.name not in but:
                cache.established()


def test_ready_from_the_start_while_in_touch() -> None:
    world = World()
    health = Health()
    assert health.state() is State.STARTING
    assert health.ready().verbose() == (
        "[+]ping ok\n[-]started failed: starting\n[+]management-cluster ok\n[+]attestors ok\nreadyz check failed\n"
    )
    health.watch(world.caches, tuple)
    assert health.state() is State.STARTING, "it only begins"
    health.started()
    assert health.state() is State.READY
    assert health.ready().brief() == "ok"
    world.caches.machines.failed(Forbidden("may not watch", status=403), 1.0)
    assert health.state() is State.READY
    world.now = OUT_OF_TOUCH_SECONDS + 1
    assert health.state() is State.OUT_OF_TOUCH
    assert health.ready().brief() == "out of touch with the management cluster"
    assert "[-]management-cluster failed: out of touch with the management cluster\n" in health.ready().verbose()
    world.caches.machines.replaced([])
    assert health.state() is State.READY


@dataclass
class Elected:
    """The part of Leadership that Health uses."""

    now: Leading | StandingBy
    in_touch: bool = True

    def standing(self) -> Leading | StandingBy:
        return self.now

    def is_in_touch(self) -> bool:
        return self.in_touch


@pytest.mark.parametrize(
    ("leadership", "expected", "said"),
    [
        (Elected(StandingBy("")), State.STARTING, "starting"),
        (Elected(StandingBy("other")), State.STANDING_BY, "standing by: another replica leads"),
        (
            Elected(StandingBy("other"), in_touch=False),
            State.OUT_OF_TOUCH,
            "out of touch with the management cluster",
        ),
        (Elected(Leading(10.0)), State.STARTING, "starting"),
    ],
)
def test_a_standby_is_ready_while_it_reads_the_lease(leadership: Elected, expected: State, said: str) -> None:
    """A rollout must continue. Before the first response no leader is known, and a new leader fills its caches."""
    health = Health()
    health.standing_by(cast("Leadership", leadership))
    assert (health.state(), health.ready().passed) == (expected, expected is State.STANDING_BY)
    assert health.ready().brief() == said


@dataclass
class Sharing:
    """The part of SharedShards that Health uses."""

    now: Standing
    owned: tuple[int, ...] = ()

    def standing(self) -> Standing:
        return self.now

    @property
    def shards(self) -> SomeShards:
        return SomeShards(4, frozenset(self.owned))


@pytest.mark.parametrize(
    ("shared", "expected", "ready"),
    [
        (Sharing(Joining()), State.STARTING, False),
        (Sharing(HasItsPart()), State.WITHOUT_SHARDS, True),
        (Sharing(HasItsPart(), (1,)), State.READY, True),
        (Sharing(Disagreeing(8)), State.OTHER_SHARDS, True),
    ],
)
def test_a_replica_without_a_shard_is_ready(shared: Sharing, expected: State, ready: bool) -> None:
    """A rollout must continue, also to another number of shards."""
    world = World()
    health = Health()
    health.sharing(cast("SharedShards", shared))
    assert health.state() is State.STARTING
    health.watch(world.caches, tuple)
    health.started()
    assert (health.state(), health.ready().passed) == (expected, ready)
    if ready:
        assert health.ready().brief() == expected.value


def test_not_ready_without_the_controller_key() -> None:
    world = World()
    health = Health()
    caches = Caches(world.caches.version, own_namespace="own", monotonic=lambda: 0.0, floors=NO_FLOORS)
    health.watch(caches, tuple)
    health.started()
    assert health.state() is State.OUT_OF_TOUCH


def test_alive_before_the_start() -> None:
    """A process that still waits for the management cluster must not be restarted."""
    assert Health().alive().passed
    assert Health().alive().verbose() == "[+]ping ok\n[+]watches ok\n[+]workers ok\nhealthz check passed\n"


def test_a_silent_watch_is_stuck_and_a_failing_one_is_not() -> None:
    world = World()
    world.now = QUIET_SECONDS + 1
    world.hear("machines")
    assert world.health.alive().brief() == "no report of the watch of machines for 10 minutes"
    world.caches.machines.failed(Forbidden("may not watch", status=403), 1.0)
    assert world.health.alive().passed, "a restart would not mend that"


def test_stuck_workers_count_only_in_most_clusters() -> None:
    """A single workload cluster must not cause a restart of the controller."""
    world = World()
    world.busy = (STUCK_SECONDS + 1,)
    assert world.health.alive().brief() == "workers of 1 clusters are stuck"
    world.busy = (STUCK_SECONDS + 1, 1.0)
    assert world.health.alive().passed
    world.busy = (STUCK_SECONDS + 1, STUCK_SECONDS + 1, 1.0)
    assert not world.health.alive().passed
