"""The digest of the watched status of a policy."""

from __future__ import annotations

from typing import Any

import pytest

from signer.model.cluster import ClusterKey
from signer.store.policy_statuses import NOT_SHOWN, PolicyStatuses, status_digest

CLUSTER = ClusterKey("default", "prod")
READY = {"status": {"conditions": [{"type": "Ready", "status": "True"}], "attestors": "tpm"}}


def test_equal_statuses_have_equal_digests() -> None:
    """Whatever the order of its fields, and whatever else of the object changed."""
    reordered: dict[str, Any] = {
        "metadata": {"resourceVersion": "7"},
        "status": {"attestors": "tpm", "conditions": [{"status": "True", "type": "Ready"}]},
    }
    assert status_digest(reordered) == status_digest(READY) != NOT_SHOWN


@pytest.mark.parametrize("other", [{}, {"status": {}}, {"status": {"attestors": "tpm"}}, {"status": "Ready"}])
def test_different_statuses_have_different_digests(other: dict[str, Any]) -> None:
    assert status_digest(other) != status_digest(READY)


def test_no_status_is_an_empty_one() -> None:
    assert status_digest({}) == status_digest({"status": {}}) == status_digest({"status": None}) != NOT_SHOWN


def test_an_unreadable_status_counts_as_not_shown() -> None:
    nested: Any = "end"
    for _ in range(100_000):
        nested = [nested]
    assert status_digest({"status": {"conditions": nested}}) == NOT_SHOWN
    assert status_digest({"status": object()}) == NOT_SHOWN


def test_each_policy_has_its_last_digest_until_it_is_deleted() -> None:
    statuses = PolicyStatuses()
    assert statuses.shown(CLUSTER) == NOT_SHOWN
    statuses.shows(CLUSTER, {"status": {"attestors": "aws"}})
    statuses.shows(CLUSTER, READY)
    assert statuses.shown(CLUSTER) == status_digest(READY)
    assert statuses.shown(ClusterKey("default", "other")) == NOT_SHOWN
    statuses.forget(CLUSTER)
    statuses.forget(CLUSTER)
    assert statuses.shown(CLUSTER) == NOT_SHOWN


def shows(*conditions: Any) -> dict[str, Any]:
    return {"status": {"conditions": list(conditions)}}


def test_the_reason_of_a_followed_condition_until_the_policy_is_deleted() -> None:
    statuses = PolicyStatuses()
    statuses.follow("Expiry")
    assert statuses.reason(CLUSTER, "Expiry") == ""
    statuses.shows(CLUSTER, shows({"type": "Ready", "reason": "Ready"}, {"type": "Expiry", "reason": "Soon"}))
    assert statuses.reason(CLUSTER, "Expiry") == "Soon"
    assert statuses.reason(CLUSTER, "Ready") == "", "nobody follows it"
    statuses.shows(CLUSTER, READY)
    assert statuses.reason(CLUSTER, "Expiry") == ""
    statuses.shows(CLUSTER, shows({"type": "Expiry", "reason": "Soon"}))
    statuses.forget(CLUSTER)
    assert statuses.reason(CLUSTER, "Expiry") == ""


@pytest.mark.parametrize(
    "manifest",
    [
        {"status": None},
        {"status": {"conditions": {"type": "Expiry"}}},
        shows("Expiry", None, 7),
        shows({"type": "Expiry"}),
        shows({"type": "Expiry", "reason": ["Soon"]}),
    ],
)
def test_a_malformed_status_has_no_reason(manifest: dict[str, Any]) -> None:
    statuses = PolicyStatuses()
    statuses.follow("Expiry")
    statuses.shows(CLUSTER, manifest)
    assert statuses.reason(CLUSTER, "Expiry") == ""


def test_a_reason_is_bounded() -> None:
    statuses = PolicyStatuses()
    statuses.follow("Expiry")
    statuses.shows(CLUSTER, shows({"type": "Expiry", "reason": "x" * 1024}))
    assert len(statuses.reason(CLUSTER, "Expiry")) == 64
