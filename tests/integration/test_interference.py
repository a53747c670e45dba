"""Another client changes a CSR before the controller decides it, or between its decision and its write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS, MACHINES_V1BETA2
from signer.testing.api import User
from signer.testing.fixtures import embedded_api
from signer.testing.world import WorldCluster
from tests.integration.fixtures import (
    CONTROLLER_USER,
    Harness,
    assert_one_certificate,
    assert_readable,
    certificate_of,
    node_of,
    provider_id,
    writes,
)
from tests.integration.requests import approve_as_somebody_else, manifest_of, plant
from tests.support.journal import journal_of

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    """A cluster with Machine ``m`` in it; the controller is still to be started."""
    cluster = harness.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    return cluster


def _before_approval(cluster: WorldCluster, act: Callable[[], object]) -> None:
    """Do ``act`` once, when the controller's first write of ``/approval`` has arrived and is not yet carried out."""
    api = embedded_api(cluster)

    def hook(method: str, path: str, user: User) -> None:
        if user.name == CONTROLLER_USER and method == "PUT" and path.endswith("/approval"):
            api.on_request(None)
            act()

    api.on_request(hook)


# Approved before the controller looks


def test_approved_by_another_client_is_refused(harness: Harness, cluster: WorldCluster) -> None:
    cluster.submit_with_token(node_of(cluster, "m").client_request("csr"))
    approve_as_somebody_else(cluster, "csr")
    harness.run()
    verdict = cluster.wait_until_decided("csr")
    assert (verdict.condition, verdict.reason, verdict.certificate) == ("Failed", "ApprovedByOthers", b"")
    assert_readable(verdict.message)
    assert_readable(harness.wait_for_event("ApprovedByOthers", "m"))
    assert harness.records(cluster) == []
    assert harness.reservations() == []


def test_approved_by_another_client_is_honoured_and_attested(harness: Harness) -> None:
    cluster = harness.cluster(policy={"approvalByOthers": "Honor"})
    cluster.add_machine("m", provider_id=provider_id("m"))
    cluster.submit_with_token(node_of(cluster, "m").client_request("csr"))
    approve_as_somebody_else(cluster, "csr")
    harness.run()
    verdict = cluster.wait_until_decided("csr")
    assert (verdict.condition, verdict.reason) == ("Approved", "ByHand")
    assert_one_certificate(harness, cluster, "m", "csr")


@pytest.mark.parametrize("policy", ["Refuse", "Honor"])
def test_an_approved_request_fails_where_it_would_be_denied(harness: Harness, policy: str) -> None:
    cluster = harness.cluster(policy={"approvalByOthers": policy})
    cluster.add_machine("m", provider_id=provider_id("m"))
    cluster.submit_with_token(node_of(cluster, "m", "another-name").client_request("csr"))
    plant(cluster, manifest_of("malformed", b"no block"))
    for name in ("csr", "malformed"):
        approve_as_somebody_else(cluster, name)
    harness.run()
    for name, why in (("csr", "NodeNameMismatch"), ("malformed", "MalformedRequest")):
        verdict = cluster.wait_until_decided(name)
        assert (verdict.condition, verdict.reason, verdict.certificate) == ("Failed", "ApprovedByOthers", b"")
        if policy == "Honor" or name == "malformed":
            assert f"approved by another client. {why}: " in verdict.message
        assert_readable(verdict.message)
    assert harness.records(cluster) == []


def test_an_approved_request_fails_with_the_reason_if_its_machine_is_deleted_before_the_certificate(
    harness: Harness, cluster: WorldCluster
) -> None:
    unpublished = embedded_api(cluster).faults.inject("PUT */csr/status", status=503, times=None)
    cluster.patch_machine("m", {"metadata": {"finalizers": ["test.example/hold"]}})
    harness.run()
    cluster.submit_with_token(node_of(cluster, "m").client_request("csr"))
    cluster.client().wait_for(
        CERTIFICATE_SIGNING_REQUESTS.collection(), "csr", lambda csr: bool((csr.get("status") or {}).get("conditions"))
    )
    cluster.management.client.delete(MACHINES_V1BETA2.object("m", cluster.namespace))
    # Machines are told in order: who knows of one that came later knows of the deletion.
    harness.join(cluster)
    unpublished.times = 0
    verdict = cluster.wait_until_decided("csr")
    assert (verdict.condition, verdict.reason, verdict.certificate) == ("Failed", "MachineDeleting", b"")
    assert "approved by us before this changed: Machine default/m is being deleted" in verdict.message


# Between judgement and write


def test_approved_in_between(harness: Harness, cluster: WorldCluster) -> None:
    """It is attested and journaled by then, and the approval is another client's all the same."""
    _before_approval(cluster, lambda: approve_as_somebody_else(cluster, "csr"))
    harness.run()
    cluster.submit_with_token(node_of(cluster, "m").client_request("csr"))
    verdict = cluster.wait_until_decided("csr")
    assert (verdict.condition, verdict.reason, verdict.certificate) == ("Failed", "ApprovedByOthers", b"")


def test_denied_in_between(harness: Harness, cluster: WorldCluster) -> None:
    _before_approval(cluster, lambda: approve_as_somebody_else(cluster, "csr", "Denied"))
    harness.run()
    cluster.submit_with_token(node_of(cluster, "m").client_request("csr"))
    verdict = cluster.wait_until_decided("csr")
    assert (verdict.condition, verdict.reason, verdict.certificate) == ("Denied", "ByHand", b"")
    harness.join(cluster)
    assert [entry.path for entry in writes(embedded_api(cluster)) if "/csr/" in entry.path] == []


def test_deleted_in_between(harness: Harness, cluster: WorldCluster) -> None:
    api = embedded_api(cluster)
    _before_approval(cluster, lambda: api.delete("certificatesigningrequests", "csr"))
    harness.run()
    cluster.submit_with_token(node_of(cluster, "m").client_request("csr"))
    harness.join(cluster)
    attempts = [entry.status for entry in api.requests.matching("PUT */csr/*")]
    # One attempt and its refusal; the API server answers 404, or 409 for the UID that is gone.
    assert attempts in ([404], [409])
    assert [item for item in api.objects("certificatesigningrequests") if item["metadata"]["name"] == "csr"] == []


def test_recreated_under_the_same_name_in_between(harness: Harness, cluster: WorldCluster) -> None:
    """The first is dropped; the second is another request with its own decision."""
    api = embedded_api(cluster)
    second = node_of(cluster, "m").client_request("csr")
    token_user = User("system:bootstrap:abcdef", ("system:bootstrappers", "system:authenticated"))
    created: list[dict[str, Any]] = []

    def recreate() -> None:
        api.delete("certificatesigningrequests", "csr")
        created.append(api.create(second, token_user))

    _before_approval(cluster, recreate)
    harness.run()
    cluster.submit_with_token(node_of(cluster, "m").client_request("csr"))
    verdict = cluster.wait_until_decided("csr")
    assert verdict.condition == "Approved"
    journal = journal_of(harness.records(cluster)[0]["spec"])
    uid = created[0]["metadata"]["uid"]
    (entry,) = [entry for entry in journal if entry["csrUID"] == uid]
    assert f"{certificate_of(verdict).serial_number:x}" == entry["serialNumber"]
    assert len(journal) == 2
    # The key in the certificate is the second request's.
    issued = certificate_of(verdict).public_key()
    assert issued != node_of(cluster, "m").key.public_key()


def test_changed_in_between(harness: Harness, cluster: WorldCluster) -> None:
    """409, read again, decided again: one approval, one certificate, one journal entry."""
    api = embedded_api(cluster)
    patch = {"metadata": {"annotations": {"somebody": "was here"}}}
    _before_approval(cluster, lambda: api.patch("certificatesigningrequests", "csr", patch))
    harness.run()
    cluster.submit_with_token(node_of(cluster, "m").client_request("csr"))
    verdict = cluster.wait_until_decided("csr")
    assert verdict.annotations["somebody"] == "was here"
    assert_one_certificate(harness, cluster, "m", "csr")
    path = CERTIFICATE_SIGNING_REQUESTS.object("csr", subresource="approval")
    assert [entry.status for entry in api.requests.matching(f"PUT {path}")] == [409, 200]
