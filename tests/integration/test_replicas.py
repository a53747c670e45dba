"""Two controllers at once, as in every rolling update: one completes the requests that the other journaled."""

from __future__ import annotations

import pytest

from signer.testing.api import Request
from signer.testing.fixtures import embedded_api
from tests.integration.fixtures import MASTERS, Harness, assert_one_certificate, keyed_mac, node_of, provider_id


@pytest.mark.slow
def test_a_replica_whose_watch_lags_does_not_fail_what_the_other_approved(harness: Harness) -> None:
    cluster = harness.cluster()
    harness.start(connection=harness.api.connection("seeing", MASTERS), attestors=keyed_mac())
    harness.join(cluster)  # it watches
    started: list[bool] = []

    def is_blind(request: Request) -> bool:
        records = request.user.name == "blind" and request.path.endswith("/attestednodes")
        return records and (bool(started) or "watch=true" in request.query)

    harness.api.faults.inject(is_blind, status=503, times=None)
    workload = embedded_api(cluster)
    # It sees the request only when that is approved, and before the certificate is there.
    workload.faults.inject("GET */certificatesigningrequests", delay_seconds=1.0, times=1)
    harness.start(connection=harness.api.connection("blind", MASTERS), attestors=keyed_mac())
    started.append(True)
    workload.faults.inject("PUT */status", delay_seconds=2.5, times=1)
    cluster.add_machine("m", provider_id=provider_id("m"))
    cluster.submit_with_token(node_of(cluster, "m").client_request("join"))
    verdict = cluster.wait_until_decided("join")
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    assert_one_certificate(harness, cluster, "m", "join")


def test_a_ca_that_was_just_replaced_causes_no_denial(harness: Harness) -> None:
    second = harness.cluster("second", ())
    other = embedded_api(second)
    first = harness.cluster("first", api={"client_authorities": other.ca_certificate_pem})
    harness.run()
    harness.join(first)
    first.put_secret("ca", {"tls.crt": other.ca_certificate_pem, "tls.key": other.ca_key_pem})
    first.add_machine("late", provider_id=provider_id("late"))
    knows_the_new_one = node_of(first, "late").but(ca_cert_hash=second.ca_cert_hash)
    first.submit_with_token(knows_the_new_one.client_request("late"))
    verdict = first.wait_until_decided("late")
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
