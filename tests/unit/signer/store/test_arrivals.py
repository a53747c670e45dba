"""Which Clusters' records are to be listed before anything of them is judged."""

from __future__ import annotations

import pytest

from signer.model.cluster import ClusterKey, ClusterView
from signer.store.arrivals import Arrival, Arrivals, Listed
from tests.unit.signer.builders import CLUSTER, cluster_view

HERE = cluster_view()
PAUSED = cluster_view(paused=True)


def of(arrivals: Arrivals) -> Arrival | Listed:
    return arrivals.of(CLUSTER)


def come(arrivals: Arrivals, before: ClusterView | None = None, after: ClusterView | None = HERE) -> Arrival | Listed:
    arrivals.cluster_changed(CLUSTER, before, after)
    return of(arrivals)


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
    arrivals.listed(CLUSTER, arrival)
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
    arrivals.listed(CLUSTER, again)
    come(arrivals, HERE, after)
    arrivals.mirror_listed()
    assert of(arrivals) == Listed()


def test_a_list_from_before_it_came_again_does_not_count() -> None:
    arrivals = Arrivals()
    first = come(arrivals)
    assert isinstance(first, Arrival)
    come(arrivals, HERE, PAUSED)
    second = come(arrivals, PAUSED, HERE)
    arrivals.listed(CLUSTER, first)
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
    arrivals.listed(CLUSTER, arrival)
    arrivals.mirror_listed()
    again = of(arrivals)
    assert isinstance(again, Arrival)
    assert again is not arrival
    arrivals.listed(CLUSTER, again)
    arrivals.mirror_listed()  # this one was begun when the Cluster was there already
    assert of(arrivals) == Listed()
