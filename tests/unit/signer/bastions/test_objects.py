"""The status of Bastions, as merge patches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_network
from typing import Any, Final

import pytest

from node_access.bastions.contract import Broken, Endpoint, Gone, Pending, Ready, host_keys
from signer.bastions.objects import Report, deleted, ended, ensured, failed, status_patch
from tests.support.access_objects import bastion_object
from tests.unit.node_access.bastions.test_contract import BASTION

NOW: Final = datetime(2026, 11, 27, 15, tzinfo=UTC)
READY: Final = Ready(Endpoint(22, ip_address("203.0.113.5")), host_keys(BASTION), (ip_network("10.9.0.7/32"),))


def merged(manifest: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """The object after the patch, as an API server stores it."""
    status = {**manifest.get("status", {}), **patch["status"]}
    return {**manifest, "status": {name: value for name, value in status.items() if value is not None}}


@pytest.mark.parametrize(
    "report",
    [ensured(READY), ensured(Pending("starts")), ensured(Broken("no", True)), deleted(Pending("ends")), ended()],
)
def test_what_has_not_changed_is_not_written(report: Report) -> None:
    manifest = bastion_object()
    after = merged(manifest, status_patch(manifest, report, NOW))
    assert status_patch(after, report, NOW + timedelta(hours=1)) == {}


def test_what_is_no_longer_ready_is_no_longer_shown() -> None:
    manifest = bastion_object()
    after = merged(manifest, status_patch(manifest, ensured(READY), NOW))
    assert after["status"]["ingress"]["ip"] == "203.0.113.5"
    later = status_patch(after, failed("gone", "Reconcile"), NOW + timedelta(minutes=1))
    assert {later["status"][name] for name in ("ingress", "hostKeys", "egress")} == {None}
    assert later["status"]["conditions"][0]["lastTransitionTime"] == "2026-11-27T15:01:00Z"


def test_a_transition_keeps_its_time_while_the_reason_changes() -> None:
    manifest = bastion_object()
    after = merged(manifest, status_patch(manifest, ensured(Pending("one")), NOW))
    later = status_patch(after, ensured(Pending("two")), NOW + timedelta(minutes=1))
    assert later["status"]["conditions"][0]["lastTransitionTime"] == "2026-11-27T15:00:00Z"


@pytest.mark.parametrize(
    ("report", "state", "reason"),
    [
        (ensured(READY), "Succeeded", "SuccessfullyReconciled"),
        (ensured(Pending("x")), "Processing", "FailedReconciling"),
        (ensured(Broken("x")), "Error", "FailedReconciling"),
        (ensured(Broken("x", True)), "Failed", "FailedReconciling"),
        (deleted(Pending("x")), "Processing", "DeletionInProgress"),
        (deleted(Gone()), "Succeeded", "DeletionInProgress"),
        (failed("x", "Delete"), "Error", "DeletionInProgress"),
    ],
)
def test_answers_in_the_words_of_the_proposal(report: Report, state: str, reason: str) -> None:
    assert (report.state, report.reason) == (state, reason)
