"""By tokens alone: no call but the one for Google's certificates, which may fail."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_address

import pytest

from attestors.gcp import certificate_source
from signer.configuration import OperatorAttestor
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, assert_readable, pending
from tests.integration.gcp.virtual_machine import PROJECT, PROJECT_NUMBER, VirtualMachine, csr
from tests.support.fake_google import FakeGoogle, Fault, Service, encode_token, identity_claims, signing_key

pytestmark = pytest.mark.slow

FLOOD = 60


@pytest.fixture
def cluster(harness: Harness, google: FakeGoogle) -> WorldCluster:
    """A cluster under a controller of its own, which has fetched nothing yet."""
    cluster = harness.cluster("cloud", ["gcp"])
    harness.run(attestors={"gcp": OperatorAttestor(settings={"projects": {PROJECT: PROJECT_NUMBER}})})
    harness.wait_for_condition(cluster, "Ready", "True")
    return cluster


def asked(google: FakeGoogle) -> int:
    return google.counts()[Service.CERTIFICATES]


def test_serving_certificates_by_the_machines_addresses(
    harness: Harness, google: FakeGoogle, cluster: WorldCluster
) -> None:
    """A token names no address: they are the Machine's to say."""
    before = google.counts()
    machine = VirtualMachine.start(google, cluster, addresses=[("InternalIP", "10.9.8.7")]).joined()
    name = machine.instance.name
    verdict = machine.ask_to_serve(csr("serve"), [f"{name}.c.{PROJECT}.internal"], [ip_address("10.9.8.7")])
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    verdict = machine.ask_to_serve(csr("serve"), [name], [ip_address(machine.instance.addresses[0])])
    assert (verdict.condition, verdict.reason) == ("Denied", "InvalidSubjectAlternativeNames"), verdict
    assert google.counts()[Service.CERTIFICATES] == before[Service.CERTIFICATES] + 1
    assert google.counts()[Service.COMPUTE] == before[Service.COMPUTE]


@pytest.mark.parametrize(
    "fault",
    [
        Fault.status(503),
        Fault.redirect("https://example.com/"),
        Fault.endless(),
        Fault.content(b"<html>sign in</html>"),
    ],
    ids=["503", "redirect", "endless", "garbage"],
)
def test_an_outage_of_the_certificates_waits(
    harness: Harness, google: FakeGoogle, cluster: WorldCluster, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    google.fail(Service.CERTIFICATES, fault)
    machine = VirtualMachine.start(google, cluster)
    name = csr()
    machine.post(name, machine.node.client_request(name))
    message = harness.wait_for_event("CloudUnavailable", machine.instance.name)
    assert "Google's certificates (www.googleapis.com)" in message
    assert_readable(message, "eyJ")
    pending(cluster, name)
    google.mend(Service.CERTIFICATES)
    monkeypatch.setattr(certificate_source, "FAILURE_INTERVAL", timedelta())
    machine.with_new_key().joined()


def test_a_flood_of_unknown_keys_makes_one_call(harness: Harness, google: FakeGoogle, cluster: WorldCluster) -> None:
    before = asked(google)
    machine = VirtualMachine.start(google, cluster)
    names = []
    for number in range(FLOOD):
        thief = machine.with_new_key()
        claims = identity_claims(machine.instance, thief.audience(), google.clock())
        header = {"alg": "RS256", "kid": f"random-{number}", "typ": "JWT"}
        names.append(csr("flood"))
        forged = encode_token(claims, signing_key(90), header)
        thief.post(names[-1], thief.node.client_request(names[-1], evidence_of=thief.evidence(forged)))
    harness.wait_for_event("TokenKeyNotPublished", machine.instance.name)
    machine.joined()
    for name in names:
        pending(cluster, name)
    assert asked(google) == before + 1


def test_a_flood_of_older_tokens_is_denied(google: FakeGoogle, cluster: WorldCluster) -> None:
    before = asked(google)
    machine = VirtualMachine.start(google, cluster)
    for number in range(10):
        claims = identity_claims(machine.instance, machine.audience(), google.clock() - timedelta(minutes=5))
        header = {"alg": "RS256", "kid": f"random-{number}", "typ": "JWT"}
        verdict = machine.ask(csr("flood"), encode_token(claims, signing_key(90), header))
        assert (verdict.condition, verdict.reason) == ("Denied", "TokenKeyUnknown"), verdict
    assert asked(google) == before + 1
