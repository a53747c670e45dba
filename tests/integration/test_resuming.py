"""Requests that were journaled, and approved by this controller or by another client, before the world changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from attestors.registry import Registry
from attestors.wire.names import APPROVAL_SEAL_ANNOTATION
from signer.decision.approval_seals import ApprovalSeals
from signer.kube.resources import (
    CERTIFICATE_SIGNING_REQUESTS,
    IDENTITY_RESERVATIONS,
    MACHINES_V1BETA2,
    NODE_ATTESTATION_POLICIES,
    SECRETS,
)
from signer.model.cluster import ClusterKey
from signer.model.reservation import Pair, ReservationSeals, ReservationSide, parse_reservation
from signer.model.seal import ControllerKeys
from signer.model.signing_request import SigningRequest, parse_signing_request
from signer.store.authentic_records import AuthenticRecords
from signer.store.controller_key import SECRET_NAME, controller_key_secret
from signer.testing.api import Request
from signer.testing.fixtures import embedded_api
from signer.testing.world import CONTROLLER_NAMESPACE, Verdict, WorldCluster
from tests.integration.fixtures import (
    CONTROLLER_USER,
    Harness,
    assert_one_certificate,
    certificate_of,
    keys_of,
    node_of,
    provider_id,
)
from tests.integration.requests import approve_as_somebody_else
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow

REFUSE_UNTRACEABLE: Final = {"bootstrapTokens": {"untraceable": "Refuse"}}


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    """A cluster with Machine ``m`` in it and a controller over it."""
    cluster = harness.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    harness.run()
    return cluster


def is_approved(csr: dict[str, Any]) -> bool:
    return bool((csr.get("status") or {}).get("conditions"))


def until_approved(cluster: WorldCluster) -> Callable[[], None]:
    """Submit ``csr`` and wait until the controller approved it; its certificate is held off until the result is
    called.
    """
    held = embedded_api(cluster).faults.inject("PUT */csr/status", status=503, times=None)
    cluster.submit_with_token(node_of(cluster, "m").client_request("csr"))
    cluster.client().wait_for(CERTIFICATE_SIGNING_REQUESTS.collection(), "csr", is_approved)

    def release() -> None:
        held.times = 0

    return release


def until_journaled(harness: Harness, cluster: WorldCluster) -> Callable[[], None]:
    """Submit ``csr`` and wait until it is journaled; the controller's approval is held off."""

    def is_ours(request: Request) -> bool:
        return request.user.name == CONTROLLER_USER and request.path.endswith("/csr/approval")

    held = embedded_api(cluster).faults.inject(is_ours, status=503, times=None)
    cluster.submit_with_token(node_of(cluster, "m").client_request("csr"))
    wait_until(lambda: any(record["spec"]["certificates"] for record in harness.records(cluster)), "the journal")

    def release() -> None:
        held.times = 0

    return release


def decide_again(cluster: WorldCluster) -> None:
    """Change the CSR, so that the controller decides it at once."""
    cluster.client().patch(
        CERTIFICATE_SIGNING_REQUESTS.object("csr"), {"metadata": {"annotations": {"example.com/woken": "now"}}}
    )


def assert_failed(verdict: Verdict, reason: str) -> None:
    assert (verdict.condition, verdict.reason, verdict.certificate) == ("Failed", reason, b""), verdict


# Whose approval it is


def test_what_is_journaled_and_approved_by_another_client_fails(harness: Harness, cluster: WorldCluster) -> None:
    until_journaled(harness, cluster)
    approve_as_somebody_else(cluster, "csr")
    assert_failed(cluster.wait_until_decided("csr"), "ApprovedByOthers")


def test_the_controllers_own_words_do_not_make_an_approval_its_own(harness: Harness, cluster: WorldCluster) -> None:
    """Whoever may approve may write any reason, message and annotation."""
    harness.join(cluster, "other")
    own = embedded_api(cluster).get("certificatesigningrequests", "join-workload-other")
    until_journaled(harness, cluster)
    api = embedded_api(cluster)
    forged = api.get("certificatesigningrequests", "csr")
    (condition,) = own["status"]["conditions"]
    message = condition["message"].replace("other", "m")
    forged["status"] = {"conditions": [{**condition, "message": message}]}
    forged["metadata"]["annotations"] = dict(own["metadata"]["annotations"])
    assert APPROVAL_SEAL_ANNOTATION in forged["metadata"]["annotations"]
    api.update(forged, "approval")
    assert_failed(cluster.wait_until_decided("csr"), "ApprovedByOthers")


def test_an_approval_under_a_key_that_this_replica_has_not_read_yet_waits_for_the_key(
    harness: Harness, cluster: WorldCluster
) -> None:
    """The operator rotated the key, and another replica read it first."""
    harness.join(cluster, "other")
    own = embedded_api(cluster).get("certificatesigningrequests", "join-workload-other")
    until_journaled(harness, cluster)
    former = keys_of(harness)
    rotated = ControllerKeys(hashlib.sha256(former.current).digest(), former.current)
    _approve_as_replica(cluster, own, rotated)
    harness.wait_for_event("ControllerKeyUnavailable", "m", part="the approval of this request")
    assert cluster.verdict("csr").condition == "Approved"
    secret = SECRETS.object(SECRET_NAME, CONTROLLER_NAMESPACE)
    harness.management.client.patch(secret, {"data": controller_key_secret(CONTROLLER_NAMESPACE, rotated)["data"]})
    verdict = cluster.wait_until_decided("csr")
    assert (verdict.condition, bool(verdict.certificate)) == ("Approved", True), verdict


def test_an_approval_under_a_key_of_nobody_fails_after_the_key_was_read_again(
    harness: Harness, cluster: WorldCluster
) -> None:
    harness.join(cluster, "other")
    own = embedded_api(cluster).get("certificatesigningrequests", "join-workload-other")
    until_journaled(harness, cluster)
    _approve_as_replica(cluster, own, ControllerKeys(bytes(32)))
    assert_failed(cluster.wait_until_decided("csr"), "ApprovedByOthers")


def _approve_as_replica(cluster: WorldCluster, own: dict[str, Any], keys: ControllerKeys) -> None:
    """Approve ``csr`` as a replica with these keys; ``own`` was approved by the controller."""
    authentic = AuthenticRecords()
    authentic.use_keys(keys)
    api = embedded_api(cluster)
    found = api.get("certificatesigningrequests", "csr")
    parsed = parse_signing_request(found, Registry().providers)
    assert isinstance(parsed, SigningRequest)
    seal = ApprovalSeals(ClusterKey(cluster.namespace, cluster.name), authentic).seal(parsed.header)
    found["status"] = {"conditions": own["status"]["conditions"]}
    found["metadata"]["annotations"] = {**own["metadata"]["annotations"], **seal}
    api.update(found, "approval")


def test_a_copy_that_another_client_approved_gets_no_certificate(harness: Harness, cluster: WorldCluster) -> None:
    node = node_of(cluster, "m")
    cluster.submit_with_token(node.client_request("csr"))
    assert cluster.wait_until_decided("csr").condition == "Approved"
    held = embedded_api(cluster).faults.inject(
        lambda request: request.user.name == CONTROLLER_USER and request.path.endswith("/copy/approval"),
        status=503,
        times=None,
    )
    cluster.submit_with_token(node.client_request("copy"))
    approve_as_somebody_else(cluster, "copy")
    held.times = 0
    assert_failed(cluster.wait_until_decided("copy"), "ApprovedByOthers")


# What changed since this controller approved


def test_what_did_not_change_gets_the_journaled_certificate(harness: Harness, cluster: WorldCluster) -> None:
    release = until_approved(cluster)
    release()
    assert cluster.wait_until_decided("csr").condition == "Approved"
    assert_one_certificate(harness, cluster, "m", "csr")


def test_a_shorter_lifetime_holds_for_what_was_journaled_before(harness: Harness) -> None:
    """The workload API server, which holds the certificate off, gains none that is below the operator's floor."""
    cluster = harness.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    controller = harness.run()
    release = until_approved(cluster)
    controller.stop()
    policy = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    harness.management.client.patch(policy, {"spec": {"certificates": {"clientDuration": "1h"}}})
    release()
    harness.run()
    certificate = certificate_of(cluster.wait_until_decided("csr"))
    assert certificate.not_valid_after_utc <= datetime.now(UTC) + timedelta(hours=1)


def _refuse_tokens(harness: Harness, cluster: WorldCluster) -> None:
    policy = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    harness.management.client.patch(policy, {"spec": REFUSE_UNTRACEABLE})


def _pause_machine(harness: Harness, cluster: WorldCluster) -> None:
    cluster.patch_machine("m", {"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}})


def _make_machine_anew(harness: Harness, cluster: WorldCluster) -> None:
    harness.management.client.delete(MACHINES_V1BETA2.object("m", cluster.namespace))
    cluster.add_machine("m", provider_id=provider_id("m"), bootstrap_ready=False)


CHANGES: Final = {
    "tokens": (_refuse_tokens, "BootstrapTokenUntraceable"),
    "paused": (_pause_machine, "MachinePaused"),
    "made anew": (_make_machine_anew, "MachineNotReady"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_would_wait_now_waits(harness: Harness, cluster: WorldCluster, change: str) -> None:
    until_approved(cluster)
    act, reason = CHANGES[change]
    act(harness, cluster)
    decide_again(cluster)
    harness.wait_for_event(reason, "m")
    verdict = cluster.verdict("csr")
    assert (verdict.condition, verdict.certificate) == ("Approved", b"")


def _give_reservation_to_another(harness: Harness, cluster: WorldCluster) -> None:
    """As if operators had released Machine and identity, and the identity had joined as another Machine since."""
    client = harness.management.client
    mine = [parse_reservation(item) for item in harness.reservations()]
    for one in mine:
        client.delete(IDENTITY_RESERVATIONS.object(one.name, CONTROLLER_NAMESPACE))
    cluster.add_machine("other", provider_id=provider_id("other"))
    theirs = Pair(replace(mine[0].pair.machine, name="other", provider_id=provider_id("other")), mine[0].pair.identity)
    seals = ReservationSeals(keys_of(harness))
    for side in ReservationSide:
        client.create(
            IDENTITY_RESERVATIONS.collection(CONTROLLER_NAMESPACE),
            {
                "apiVersion": IDENTITY_RESERVATIONS.api_version,
                "kind": "IdentityReservation",
                "metadata": {"name": theirs.name(side), "namespace": CONTROLLER_NAMESPACE},
                "spec": seals.spec(side, theirs, mine[0].basis),
            },
        )


def test_another_machine_that_got_the_identity_keeps_it(harness: Harness) -> None:
    cluster = harness.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    controller = harness.run()
    release = until_approved(cluster)
    controller.stop()
    controller.wait_ended()
    _give_reservation_to_another(harness, cluster)
    release()
    harness.run()
    assert_failed(cluster.wait_until_decided("csr"), "IdentityConflict")
