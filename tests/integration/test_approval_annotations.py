"""Annotations that an attestor resolved are on the approved request, and none that the requester forged."""

from __future__ import annotations

from typing import Any

import pytest

from attestors.wire.names import APPROVAL_SEAL_ANNOTATION, ENDORSEMENT_KEY_ANNOTATION
from signer.testing.api import Request
from signer.testing.fixtures import embedded_api
from signer.testing.world import Verdict, WorldCluster
from tests.integration.fixtures import CONTROLLER_USER, Harness, provider_id
from tests.integration.reporting import Reporting
from tests.integration.requests import approve_as_somebody_else
from tests.support.processes import wait_until

FORGED = {ENDORSEMENT_KEY_ANNOTATION: "sha256:forged", "example.com/note": "kept"}
KEPT = {"example.com/note": "kept"}
OURS = {ENDORSEMENT_KEY_ANNOTATION: "sha256:resolved"}


@pytest.fixture
def reporting(harness: Harness) -> Reporting:
    return Reporting(harness)


def forging(manifest: dict[str, Any]) -> dict[str, Any]:
    """The same request by a requester that sets annotations of the controller."""
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": dict(FORGED)}}


def joining(reporting: Reporting, cluster: WorldCluster, **settings: str) -> dict[str, Any]:
    cluster.add_machine("m1", provider_id=provider_id("m1"))
    return forging(reporting.node(cluster, "m1", **settings).client_request("join"))


def annotations_of(verdict: Verdict) -> dict[str, str]:
    """Without the seal of the controller's own approval, which must be there."""
    annotations = dict(verdict.annotations)
    assert annotations.pop(APPROVAL_SEAL_ANNOTATION)
    return annotations


def is_journaled(harness: Harness, cluster: WorldCluster) -> bool:
    return any(record["spec"]["certificates"] for record in harness.records(cluster))


def test_annotations_are_written_with_the_approval_over_the_requesters(reporting: Reporting) -> None:
    cluster = reporting.cluster()
    reporting.run()
    cluster.submit_with_token(joining(reporting, cluster, annotation="sha256:resolved"))
    reporting.of(cluster, "join")
    assert annotations_of(cluster.verdict("join")) == {**KEPT, **OURS}


def test_annotations_of_the_requester_are_removed(reporting: Reporting) -> None:
    cluster = reporting.cluster()
    reporting.run()
    cluster.submit_with_token(joining(reporting, cluster))
    reporting.of(cluster, "join")
    assert annotations_of(cluster.verdict("join")) == KEPT


@pytest.mark.parametrize(("settings", "expected"), [({"annotation": "sha256:resolved"}, {**KEPT, **OURS}), ({}, KEPT)])
def test_a_request_approved_by_another_client_is_no_exception(
    reporting: Reporting, settings: dict[str, str], expected: dict[str, str]
) -> None:
    cluster = reporting.cluster(policy={"approvalByOthers": "Honor"})
    cluster.submit_with_token(joining(reporting, cluster, **settings))
    approve_as_somebody_else(cluster, "join")
    reporting.run()
    reporting.of(cluster, "join", reason="ByHand")
    assert cluster.verdict("join").annotations == expected


def test_a_restart_between_approval_and_certificate_keeps_it(reporting: Reporting) -> None:
    cluster = reporting.cluster()
    embedded_api(cluster).faults.inject("PUT */status", status=503, times=None)
    first = reporting.run()
    cluster.submit_with_token(joining(reporting, cluster, annotation="sha256:resolved"))
    wait_until(lambda: bool(embedded_api(cluster).requests.matching("PUT */join/status")), "the certificate, held off")
    first.kill()
    reports = len(reporting.reports)
    reporting.run()
    wait_until(lambda: len(reporting.reports) > reports, "another attestation")
    embedded_api(cluster).faults.clear()  # now that no call of the first one is on its way
    verdict = cluster.wait_until_decided("join")
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested")
    assert annotations_of(verdict) == {**KEPT, **OURS}


def test_a_journaled_request_approved_by_another_client_keeps_no_forged_annotation(reporting: Reporting) -> None:
    """Another client approves between the journal and the controller's approval: the requester's annotations must not
    count.
    """
    cluster = reporting.cluster(policy={"approvalByOthers": "Honor"})

    def is_ours(request: Request) -> bool:
        return request.user.name == CONTROLLER_USER and request.path.endswith("/join/approval")

    embedded_api(cluster).faults.inject(is_ours, status=503, times=None)
    reporting.run()
    cluster.submit_with_token(joining(reporting, cluster, annotation="sha256:resolved"))
    wait_until(lambda: is_journaled(reporting.harness, cluster), "the journal")
    approve_as_somebody_else(cluster, "join")
    reporting.of(cluster, "join", reason="ByHand")
    assert cluster.verdict("join").annotations == {**KEPT, **OURS}
