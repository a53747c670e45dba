"""The Clusters whose records must be listed before a decision."""

from __future__ import annotations

import pytest

from signer.model.cluster import ClusterKey, ClusterView
from signer.store.caches import Listed, RecordsBarrier, UnlistedNamespace
from tests.unit.signer.builders import CLUSTER, cluster_view

HERE = cluster_view()
PAUSED = cluster_view(paused=True)


def of(records_barrier: RecordsBarrier) -> UnlistedNamespace | Listed:
    return records_barrier.state_of(CLUSTER)


def come(
    records_barrier: RecordsBarrier, before: ClusterView | None = None, after: ClusterView | None = HERE
) -> UnlistedNamespace | Listed:
    records_barrier.cluster_changed(CLUSTER, before, after)
    return of(records_barrier)


def list_all(records_barrier: RecordsBarrier, unlisted: UnlistedNamespace) -> None:
    records_barrier.list_begins(unlisted)
    records_barrier.list_completed(unlisted)


@pytest.mark.parametrize(
    "before",
    [None, PAUSED, cluster_view(uid="c-0"), cluster_view(uid="c-0", paused=True)],
    ids=["none", "paused", "another", "another, paused"],
)
def test_a_new_or_unpaused_cluster_must_be_listed(before: ClusterView | None) -> None:
    records_barrier = RecordsBarrier()
    assert of(records_barrier) == Listed()
    unlisted = come(records_barrier, before)
    assert isinstance(unlisted, UnlistedNamespace)
    assert records_barrier.state_of(ClusterKey(CLUSTER.namespace, "other")) == Listed()
    list_all(records_barrier, unlisted)
    assert of(records_barrier) == Listed()


def test_any_other_change_needs_no_list() -> None:
    assert come(RecordsBarrier(), HERE, cluster_view(control_plane_host="api.example")) == Listed()


@pytest.mark.parametrize("after", [None, PAUSED], ids=["gone", "paused"])
def test_a_deleted_or_paused_cluster_needs_no_list(after: ClusterView | None) -> None:
    records_barrier = RecordsBarrier()
    come(records_barrier)
    assert come(records_barrier, HERE, after) == Listed()
    again = come(records_barrier)
    assert isinstance(again, UnlistedNamespace)
    list_all(records_barrier, again)
    come(records_barrier, HERE, after)
    records_barrier.cache_listed()
    assert of(records_barrier) == Listed()


def test_a_list_from_before_its_return_does_not_count() -> None:
    records_barrier = RecordsBarrier()
    first = come(records_barrier)
    assert isinstance(first, UnlistedNamespace)
    records_barrier.list_begins(first)
    come(records_barrier, HERE, PAUSED)
    second = come(records_barrier, PAUSED, HERE)
    records_barrier.list_completed(first)
    assert of(records_barrier) is second


def test_clusters_before_the_first_list_need_no_list_of_their_own() -> None:
    records_barrier = RecordsBarrier()
    come(records_barrier)
    records_barrier.cache_begins()
    assert of(records_barrier) == Listed()
    records_barrier.cache_listed()
    assert of(records_barrier) == Listed()


def test_a_list_of_the_cache_may_undo_a_list_of_the_namespace() -> None:
    """It may have begun before: records that it lacks are dropped."""
    records_barrier = RecordsBarrier()
    unlisted = come(records_barrier)
    assert isinstance(unlisted, UnlistedNamespace)
    list_all(records_barrier, unlisted)
    records_barrier.cache_listed()
    again = of(records_barrier)
    assert isinstance(again, UnlistedNamespace)
    assert again is not unlisted
    list_all(records_barrier, again)
    records_barrier.cache_listed()  # this one began after the Cluster appeared
    assert of(records_barrier) == Listed()


def test_clusters_of_one_namespace_share_a_list_that_has_not_begun() -> None:
    records_barrier = RecordsBarrier()
    second, late = ClusterKey(CLUSTER.namespace, "second"), ClusterKey(CLUSTER.namespace, "late")
    elsewhere = ClusterKey("elsewhere", CLUSTER.name)
    unlisted = come(records_barrier)
    assert isinstance(unlisted, UnlistedNamespace)
    for key in (second, elsewhere):
        records_barrier.cluster_changed(key, None, HERE)
    assert records_barrier.state_of(second) is unlisted
    assert records_barrier.state_of(elsewhere) not in (unlisted, Listed())
    records_barrier.list_begins(unlisted)
    records_barrier.cluster_changed(late, None, HERE)
    assert records_barrier.state_of(late) not in (unlisted, Listed())
    records_barrier.list_completed(unlisted)
    assert [records_barrier.state_of(key) == Listed() for key in (CLUSTER, second, late, elsewhere)] == [
        True,
        True,
        False,
        False,
    ]


def test_nothing_is_kept_of_deleted_clusters() -> None:
    records_barrier = RecordsBarrier()
    second = ClusterKey(CLUSTER.namespace, "second")
    first = come(records_barrier)
    records_barrier.cluster_changed(second, None, HERE)
    records_barrier.cluster_changed(second, HERE, None)
    records_barrier.cluster_changed(second, None, HERE)
    assert records_barrier.state_of(second) is first, "the other is there still"
    records_barrier.cluster_changed(second, HERE, None)
    come(records_barrier, HERE, None)
    assert not records_barrier._waiting
    assert not records_barrier._unlisted
    assert not records_barrier._recent
