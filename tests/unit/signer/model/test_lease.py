"""Leases: what is read, what is written back, and times that exclude each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from signer.model.lease import (
    ElectionTimes,
    Holding,
    InvalidLease,
    InvalidTimes,
    changed_lease,
    new_lease,
    parse_lease,
    released,
    renewed,
    taken,
)

NOW = datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC)
LATER = NOW + timedelta(seconds=3)
MICRO_NOW = "2026-03-01T12:00:00.000005Z"
MICRO_LATER = "2026-03-01T12:00:03.000005Z"


def stored(**spec: Any) -> dict[str, Any]:
    """A Lease as an API server gives it, with what others wrote."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}},
        "spec": {
            "holderIdentity": "one",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": "2026-01-02T00:00:00.000000Z",
            "leaseTransitions": 4,
            **spec,
        },
    }


def test_a_lease_is_read() -> None:
    expected = Holding("one", 15, "2026-01-01T00:00:00.000000Z", "2026-01-02T00:00:00.000000Z", 4)
    assert parse_lease(stored()).holding == expected


@pytest.mark.parametrize("spec", [{}, {"holderIdentity": None, "leaseDurationSeconds": None, "renewTime": None}])
def test_a_lease_that_nobody_ever_held(spec: dict[str, Any]) -> None:
    lease = parse_lease({"metadata": {"resourceVersion": "1"}, "spec": spec})
    assert lease.holding == Holding("", 0, "", "", 0)
    assert set(changed_lease(lease, lease.holding)["spec"]) >= {"holderIdentity"}
    assert "acquireTime" not in changed_lease(lease, lease.holding)["spec"]


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ({**stored(), "metadata": {"name": "l"}}, "resourceVersion"),
        (stored(leaseDurationSeconds="15"), "leaseDurationSeconds"),
        (stored(leaseDurationSeconds=True), "leaseDurationSeconds"),
        (stored(leaseTransitions=-1), "leaseTransitions"),
    ],
)
def test_what_no_api_server_writes_is_refused(manifest: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidLease, match=message):
        parse_lease(manifest)


def test_an_update_keeps_what_others_wrote_and_is_good_for_one_version() -> None:
    lease = parse_lease(stored(strategy="OldestEmulationVersion"))
    body = changed_lease(lease, taken("two", ElectionTimes(), NOW, 5))
    assert body["metadata"] == stored()["metadata"]
    assert body["spec"] == {
        "holderIdentity": "two",
        "leaseDurationSeconds": 15,
        "acquireTime": MICRO_NOW,
        "renewTime": MICRO_NOW,
        "leaseTransitions": 5,
        "strategy": "OldestEmulationVersion",
    }


def test_a_new_lease() -> None:
    assert new_lease("l", "n", taken("one", ElectionTimes(), NOW)) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l", "namespace": "n"},
        "spec": {
            "holderIdentity": "one",
            "leaseDurationSeconds": 15,
            "acquireTime": MICRO_NOW,
            "renewTime": MICRO_NOW,
            "leaseTransitions": 0,
        },
    }


def test_a_renewal_changes_the_time_and_follows_the_flags() -> None:
    times = ElectionTimes(lease_duration=timedelta(seconds=20))
    assert renewed(taken("one", ElectionTimes(), NOW, 2), times, LATER) == Holding("one", 20, MICRO_NOW, MICRO_LATER, 2)


def test_released_it_is_nobodys() -> None:
    """As client-go writes it: 0 seconds would be invalid."""
    assert released(taken("one", ElectionTimes(), NOW, 2), LATER) == Holding("", 1, MICRO_LATER, MICRO_LATER, 2)


def test_the_defaults_are_those_of_client_go() -> None:
    assert ElectionTimes() == ElectionTimes(timedelta(seconds=15), timedelta(seconds=10), timedelta(seconds=2))


@pytest.mark.parametrize(
    ("lease", "renew", "retry", "flag"),
    [
        (15, 10, 0, "retry-period must be more than zero"),
        (15, 2.4, 2, "renew-deadline must be more than 1.2 times"),
        (10, 10, 2, "lease-duration must be more than --leader-elect-renew-deadline"),
        (1.5, 1, 0.1, "whole seconds"),
    ],
)
def test_times_that_exclude_each_other(lease: float, renew: float, retry: float, flag: str) -> None:
    with pytest.raises(InvalidTimes, match=flag):
        ElectionTimes(timedelta(seconds=lease), timedelta(seconds=renew), timedelta(seconds=retry))


def test_times_that_just_fit() -> None:
    fitting = ElectionTimes(timedelta(seconds=11), timedelta(seconds=10), timedelta(seconds=8.3))
    assert fitting.retry_period == timedelta(seconds=8.3)


def test_labels_and_annotations() -> None:
    held = taken("one", ElectionTimes(), NOW)
    labels, annotations = {"ours": "1"}, {"note": "2"}
    made = new_lease("lease", "here", held, labels=labels, annotations=annotations)
    assert (made["metadata"]["labels"], made["metadata"]["annotations"]) == (labels, annotations)
    assert set(new_lease("lease", "here", held)["metadata"]) == {"name", "namespace"}
    read = stored()
    read["metadata"] |= {"labels": {"theirs": "3", "ours": "old"}, "annotations": {"theirs": "4"}}
    changed = changed_lease(parse_lease(read), held, labels=labels, annotations=annotations)
    assert changed["metadata"]["labels"] == {"theirs": "3", "ours": "1"}
    assert changed["metadata"]["annotations"] == {"theirs": "4", "note": "2"}
    assert changed["metadata"]["resourceVersion"] == read["metadata"]["resourceVersion"]
