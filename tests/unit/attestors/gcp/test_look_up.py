"""Instances looked up at Compute Engine, over HTTP: what is found, and what an outage or a refusal means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest

from attestors.clouds.calls import CloudCalls
from attestors.clouds.google import ComputeEngine, GoogleAccess
from attestors.contract import Denied, NotProvableYet, Outcome, VerifiedIdentity
from attestors.gcp.certificate_service import certificate_service
from attestors.gcp.certificate_source import CertificateSource
from attestors.gcp.controller import GCPServerPlugin
from attestors.gcp.instances import InstanceLookUp
from tests.support.fake_google import FakeGoogle, FakeInstance, Fault, Service
from tests.unit.attestors.gcp.support import AUDIENCE, INSTANCE, NOW, SETTINGS, claims, request, token

OTHER_ID = "4711000000000000002"


@pytest.fixture(scope="module")
def running() -> Iterator[FakeGoogle]:
    with FakeGoogle() as google:
        yield google


@pytest.fixture
def google(running: FakeGoogle) -> Iterator[FakeGoogle]:
    running.add(INSTANCE)
    yield running
    for service in Service:
        running.mend(service)


@pytest.fixture
def plugin(google: FakeGoogle, tmp_path: Path) -> Iterator[GCPServerPlugin]:
    calls = CloudCalls(deadline_seconds=2)
    access = GoogleAccess(google.write_account_key(tmp_path), google.compute_url)
    source = CertificateSource(certificate_service(google.pem_certificates_url, calls=calls))
    engine = ComputeEngine(access, calls=calls)
    yield GCPServerPlugin(SETTINGS, lambda: source, InstanceLookUp(lambda: engine))
    engine.close()
    calls.close()


async def ask(plugin: GCPServerPlugin, instance: FakeInstance = INSTANCE) -> Outcome:
    return await plugin.verify_client(request(token(claims(instance))))


async def reason(plugin: GCPServerPlugin, instance: FakeInstance = INSTANCE) -> tuple[str, str]:
    outcome = await ask(plugin, instance)
    assert isinstance(outcome, Denied | NotProvableYet), outcome
    return type(outcome).__name__, outcome.reason


async def test_an_instance_that_runs(google: FakeGoogle, plugin: GCPServerPlugin) -> None:
    google.add(
        replace(
            INSTANCE,
            created=INSTANCE.created + timedelta(milliseconds=417),
            addresses=("10.132.0.7", "fd20:1::7"),
            external_addresses=("203.0.113.5",),
        )
    )
    outcome = await ask(plugin)
    assert isinstance(outcome, VerifiedIdentity)
    assert outcome.ip_addresses == (ip_address("10.132.0.7"), ip_address("fd20:1::7"))


async def test_a_token_that_is_wrong_costs_no_look(google: FakeGoogle, plugin: GCPServerPlugin) -> None:
    asked = google.counts()
    forged = token(key=google.keys[0], kid=google.keys[1].key_id)
    outcome = await plugin.verify_client(request(forged))
    assert isinstance(outcome, Denied)
    assert outcome.reason == "TokenSignatureInvalid"
    assert google.counts()[Service.COMPUTE] == asked[Service.COMPUTE]
    assert google.counts()[Service.TOKEN] == asked[Service.TOKEN]


async def test_the_token_of_an_instance_whose_name_another_one_has(google: FakeGoogle, plugin: GCPServerPlugin) -> None:
    google.add(INSTANCE.created_again(OTHER_ID, NOW))
    assert await reason(plugin) == ("Denied", "InstanceReplaced")


async def test_an_instance_that_was_made_again(google: FakeGoogle, plugin: GCPServerPlugin) -> None:
    again = google.add(INSTANCE.created_again(OTHER_ID, NOW))
    outcome = await ask(plugin, again)
    assert isinstance(outcome, VerifiedIdentity)
    assert outcome.identity == f"gcp:730000000001:{OTHER_ID}"


async def test_an_instance_that_compute_engine_does_not_know(google: FakeGoogle, plugin: GCPServerPlugin) -> None:
    google.delete(INSTANCE)
    assert await reason(plugin) == ("NotProvableYet", "CloudObjectMissing")


@pytest.mark.parametrize("status", ["TERMINATED", "STOPPING"])
async def test_an_instance_that_does_not_run(google: FakeGoogle, plugin: GCPServerPlugin, status: str) -> None:
    google.add(replace(INSTANCE, status=status))
    assert await reason(plugin) == ("NotProvableYet", "InstanceNotRunning")


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (Fault.status(500), "CloudUnavailable"),
        (Fault.throttled(), "CloudUnavailable"),
        (Fault.status(403), "CloudAccessRefused"),
        (Fault.content(b"<html>"), "CloudUnavailable"),
        (Fault.redirect("https://example.com"), "CloudUnavailable"),
    ],
    ids=["500", "429", "403", "HTML", "redirect"],
)
async def test_no_answer_of_compute_engine_denies(
    google: FakeGoogle, plugin: GCPServerPlugin, fault: Fault, found: str
) -> None:
    google.fail(Service.COMPUTE, fault)
    outcome = await ask(plugin)
    assert isinstance(outcome, NotProvableYet)
    assert outcome.reason == found
    assert "Google Compute Engine" in outcome.message


def test_the_token_is_for_this_request() -> None:
    """What the tests above rest on."""
    assert claims()["aud"] == AUDIENCE
