"""Which Clusters' records are to be listed before anything of them is judged."""

from __future__ import annotations

import pytest

from signer.model.cluster import ClusterKey, ClusterView
from signer.store.records_barrier import Arrival, Arrivals, Listed
from tests.unit.signer.builders import CLUSTER, cluster_view

HERE = cluster_view()
PAUSED = cluster_view(paused=True)


def of(arrivals: Arrivals) -> Arrival | Listed:
    return arrivals.of(CLUSTER)


def come(arrivals: Arrivals, before: ClusterView | None = None, after: ClusterView | None = HERE) -> Arrival | Listed:
    arrivals.cluster_changed(CLUSTER, before, after)
    return of(arrivals)


def list_all(arrivals: Arrivals, arrival: Arrival) -> None:
    arrivals.begins(arrival)
    arrivals.listed(arrival)


@pytest.mark.parametrize(
    "before",
    [None, PAUSED, cluster_view(uid="c-0"), cluster_view(uid="c-0", paused=True)],
    ids=["none", "paused", "another", "another, paused"],
)
def test_a_cluster_that_came_or_was_unpaused_is_to_be_listed(before: ClusterView | None) -> None:
    arrivals = Arrivals()
    assert of(arrivals) == Listed()
    arrival = come(arrivals, before)
    assert isinstance(arrival, Arrival)
    assert arrivals.of(ClusterKey(CLUSTER.namespace, "other")) == Listed()
    list_all(arrivals, arrival)
    assert of(arrivals) == Listed()


def test_any_other_change_is_none() -> None:
    assert come(Arrivals(), HERE, cluster_view(control_plane_host="api.example")) == Listed()


@pytest.mark.parametrize("after", [None, PAUSED], ids=["gone", "paused"])
def test_of_what_is_gone_or_paused_nothing_is_judged(after: ClusterView | None) -> None:
    arrivals = Arrivals()
    come(arrivals)
    assert come(arrivals, HERE, after) == Listed()
    again = come(arrivals)
    assert isinstance(again, Arrival)
    list_all(arrivals, again)
    come(arrivals, HERE, after)
    arrivals.mirror_listed()
    assert of(arrivals) == Listed()


def test_a_list_from_before_it_came_again_does_not_count() -> None:
    arrivals = Arrivals()
    first = come(arrivals)
    assert isinstance(first, Arrival)
    arrivals.begins(first)
    come(arrivals, HERE, PAUSED)
    second = come(arrivals, PAUSED, HERE)
    arrivals.listed(first)
    assert of(arrivals) is second


def test_those_that_are_there_before_all_records_are_listed_need_no_list_of_their_own() -> None:
    arrivals = Arrivals()
    come(arrivals)
    arrivals.all_are_listed()
    assert of(arrivals) == Listed()
    arrivals.mirror_listed()
    assert of(arrivals) == Listed()


def test_a_list_of_the_mirrors_own_may_undo_what_was_listed_meanwhile() -> None:
    """It may have been begun before: what it lacks is dropped."""
    arrivals = Arrivals()
    arrival = come(arrivals)
    assert isinstance(arrival, Arrival)
    list_all(arrivals, arrival)
    arrivals.mirror_listed()
    again = of(arrivals)
    assert isinstance(again, Arrival)
    assert again is not arrival
    list_all(arrivals, again)
    arrivals.mirror_listed()  # this one was begun when the Cluster was there already
    assert of(arrivals) == Listed()


def test_those_of_one_namespace_that_came_before_its_list_begins_are_listed_together() -> None:
    arrivals = Arrivals()
    second, late = ClusterKey(CLUSTER.namespace, "second"), ClusterKey(CLUSTER.namespace, "late")
    elsewhere = ClusterKey("elsewhere", CLUSTER.name)
    arrival = come(arrivals)
    assert isinstance(arrival, Arrival)
    for key in (second, elsewhere):
        arrivals.cluster_changed(key, None, HERE)
    assert arrivals.of(second) is arrival
    assert arrivals.of(elsewhere) not in (arrival, Listed())
    arrivals.begins(arrival)
    arrivals.cluster_changed(late, None, HERE)
    assert arrivals.of(late) not in (arrival, Listed())
    arrivals.listed(arrival)
    assert [arrivals.of(key) == Listed() for key in (CLUSTER, second, late, elsewhere)] == [True, True, False, False]


def test_nothing_is_kept_of_those_that_went() -> None:
    arrivals = Arrivals()
    second = ClusterKey(CLUSTER.namespace, "second")
    first = come(arrivals)
    arrivals.cluster_changed(second, None, HERE)
    arrivals.cluster_changed(second, HERE, None)
    arrivals.cluster_changed(second, None, HERE)
    assert arrivals.of(second) is first, "the other is there still"
    arrivals.cluster_changed(second, HERE, None)
    come(arrivals, HERE, None)
    assert not arrivals._gathering
    assert not arrivals._unlisted
    assert not arrivals._recent
