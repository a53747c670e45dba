"""The agent plugin against a metadata server, right and wrong."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from attestors.contract import EvidenceUnavailable, GatherRequest
from attestors.gcp import plugin, wire
from attestors.gcp.local_checks import check_locally
from attestors.gcp.node import metadata
from attestors.gcp.node.metadata import MetadataServer
from attestors.gcp.node.plugin import GCPAgentPlugin
from attestors.gcp.node.settings import MetadataEndpoint, NodeSettings
from attestors.wire.evidence import decode, encode
from attestors.wire.names import Purpose
from tests.support.fake_google import FakeGoogle, FakeInstance, Fault, Service
from tests.support.silent_address import resolve, silent
from tests.unit.attestors.gcp.support import ABSENT, AUDIENCE, BINDING, INSTANCE, SETTINGS, claims, token
from tests.unit.attestors.support import CLUSTER, attestation_request

REQUEST = GatherRequest(BINDING, CLUSTER.text, "v1", Purpose.CLIENT, "")
FLAVOR = {"Metadata-Flavor": "Google"}


@pytest.fixture(scope="module")
def running() -> Iterator[FakeGoogle]:
    with FakeGoogle() as google:
        google.add(INSTANCE)
        yield google


@pytest.fixture(scope="module")
def endpoint(running: FakeGoogle) -> str:
    return running.metadata_of(INSTANCE)


@pytest.fixture
def google(running: FakeGoogle) -> Iterator[FakeGoogle]:
    yield running
    running.mend(Service.METADATA)


@pytest.fixture
def agent_plugin(endpoint: str) -> GCPAgentPlugin:
    """It asks once."""
    found = plugin.agent_plugin({"metadata-endpoint": endpoint})
    return replace(found, metadata=replace(found.metadata, timeout_seconds=0))


def answer(body: str, status: int = 200, headers: dict[str, str] | None = None) -> Fault:
    """What the metadata server answers, as the metadata server."""
    return Fault.status(status, body, FLAVOR if headers is None else headers)


def told(agent_plugin: GCPAgentPlugin, *, evidence: bool = True) -> str:
    with pytest.raises(EvidenceUnavailable) as found:
        agent_plugin.gather(REQUEST) if evidence else agent_plugin.provider_id()
    message = str(found.value)
    assert message.isascii()
    assert message.isprintable()
    assert "eyJ" not in message
    return message


def test_the_provider_id(agent_plugin: GCPAgentPlugin) -> None:
    assert agent_plugin.provider_id() == "gce://capi-workloads/europe-west1-b/worker-1"


def test_a_project_inside_a_domain(running: FakeGoogle) -> None:
    inside = running.add(FakeInstance(name="inside", project="example.com:web"))
    endpoint = running.metadata_of(inside)
    assert plugin.agent_plugin({"metadata-endpoint": endpoint}).provider_id() == inside.provider_id


def test_evidence(google: FakeGoogle, agent_plugin: GCPAgentPlugin) -> None:
    evidence = agent_plugin.gather(REQUEST)
    assert decode(encode(evidence)) == evidence
    assert set(evidence.fields) == {wire.IDENTITY_TOKEN_FIELD}
    read = check_locally(
        replace(attestation_request(evidence, binding=BINDING, provider_id=INSTANCE.provider_id), now=google.clock()),
        SETTINGS,
    )
    assert read.claims.audience == AUDIENCE
    seen = google.seen(Service.METADATA)[-1]
    assert seen.headers["Host"] == "metadata.google.internal"
    assert seen.query.endswith("&format=full")


def test_another_version_of_evidence(agent_plugin: GCPAgentPlugin) -> None:
    with pytest.raises(EvidenceUnavailable, match="writes evidence v1 only"):
        agent_plugin.gather(replace(REQUEST, evidence_version="v2"))


def test_a_challenge(agent_plugin: GCPAgentPlugin) -> None:
    with pytest.raises(EvidenceUnavailable, match="supports no challenges"):
        agent_plugin.gather(replace(REQUEST, challenge="{}"))


@pytest.mark.parametrize(
    ("fault", "part"),
    [
        (answer("no such account", 404), "attach a service account to this instance"),
        (answer("forbidden", 403), "refuses with status 403"),
        (answer("see elsewhere", 302, {**FLAVOR, "Location": "http://192.0.2.1/"}), "refuses with status 302"),
        (answer("busy", 503), "does not answer: status 503"),
        (answer("busy", 429), "does not answer: status 429"),
        (answer(token(), headers={}), "something answers in place of the metadata server"),
        (answer(token(), headers={"Metadata-Flavor": "Other"}), "something answers in place of the metadata server"),
        (answer("", 404, {}), "something answers in place of the metadata server"),
        (answer(""), "something other than an identity token"),
        (answer("<html>"), "something other than an identity token"),
        (answer("é"), "not ASCII text"),
        (answer("x" * (wire.MAXIMUM_TOKEN_CHARACTERS + 1)), f"larger than {wire.MAXIMUM_TOKEN_CHARACTERS} bytes"),
        (answer(token(alg="none")), "something other than an identity token"),
        (answer(token(claims(aud="https://example.com"))), "for another audience"),
        (answer(token(claims(google=ABSENT))), "names no instance"),
        (Fault.breaks_off(), "does not answer"),
    ],
    ids=[
        "not a service account",
        "forbidden",
        "redirect",
        "unavailable",
        "throttled",
        "not the metadata server",
        "another flavor",
        "not found elsewhere",
        "nothing",
        "HTML",
        "not ASCII",
        "huge",
        "alg none",
        "another audience",
        "standard format",
        "connection closed",
    ],
)
def test_every_fault_is_reported(google: FakeGoogle, agent_plugin: GCPAgentPlugin, fault: Fault, part: str) -> None:
    google.fail(Service.METADATA, fault)
    assert part in told(agent_plugin)


def dribbles() -> Fault:
    """Byte by byte without end, as the metadata server."""

    async def slowly(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=FLAVOR)
        await response.prepare(request)
        while True:
            await response.write(b"x")
            await asyncio.sleep(0.02)

    return Fault(slowly)


@pytest.mark.parametrize("fault", [Fault.hangs(), dribbles()], ids=["hangs", "dribbles"])
def test_an_answer_that_takes_too_long(
    google: FakeGoogle, agent_plugin: GCPAgentPlugin, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setattr(metadata, "_ANSWER_SECONDS", 0.2)
    google.fail(Service.METADATA, fault)
    assert "takes too long" in told(agent_plugin)


@pytest.mark.parametrize("size", [b"-1", b"-5"])
def test_a_chunk_of_a_size_that_is_none_is_not_read(
    google: FakeGoogle, agent_plugin: GCPAgentPlugin, size: bytes
) -> None:
    async def pours(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        head = b"HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nTransfer-Encoding: chunked\r\n\r\n"
        request.transport.write(head + size + b"\r\nworker")
        request.transport.close()
        return web.Response()

    google.fail(Service.METADATA, Fault(pours), path="instance/name")
    assert "does not answer: MalformedSize" in told(agent_plugin, evidence=False)


def test_an_answer_that_breaks_off(google: FakeGoogle, agent_plugin: GCPAgentPlugin) -> None:
    """A shorter name is a name too."""

    async def shorter(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={**FLAVOR, "Content-Length": "8"})
        await response.prepare(request)
        await response.write(b"work")
        assert request.transport is not None
        request.transport.close()
        return response

    google.fail(Service.METADATA, Fault(shorter), path="instance/name")
    assert "its answer is incomplete" in told(agent_plugin, evidence=False)


@pytest.mark.parametrize(
    ("path", "fault", "part"),
    [
        ("instance/zone", answer("", 404), "has no entry instance/zone"),
        ("instance/zone", answer("projects/1/zones/"), "no valid project, zone and name of an instance: not a zone"),
        ("instance/name", answer("Worker"), "no valid project, zone and name of an instance: not a instance name"),
        (
            "project/project-id",
            answer("730000000001"),
            "no valid project, zone and name of an instance: not a project ID",
        ),
        ("project/project-id", answer("x" * 513), "larger than 512 bytes"),
    ],
    ids=["no zone", "empty zone", "no name", "a number", "huge"],
)
def test_no_provider_id(google: FakeGoogle, agent_plugin: GCPAgentPlugin, path: str, fault: Fault, part: str) -> None:
    google.fail(Service.METADATA, fault, path=path)
    assert part in told(agent_plugin, evidence=False)


def test_a_server_that_is_busy_is_asked_again(
    google: FakeGoogle, agent_plugin: GCPAgentPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "_FIRST_DELAY_SECONDS", 0.001)
    google.fail(Service.METADATA, answer("busy", 503), times=3)
    patient = replace(agent_plugin, metadata=replace(agent_plugin.metadata, timeout_seconds=30))
    before = google.counts()[Service.METADATA]
    assert patient.gather(REQUEST).fields
    assert google.counts()[Service.METADATA] == before + 4


def test_no_server_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    plugin = GCPAgentPlugin(MetadataServer(MetadataEndpoint("127.0.0.1", port), timeout_seconds=0))
    message = told(plugin)
    assert "Connection refused" in message
    assert "is this a virtual machine of Compute Engine" in message


def test_a_silent_address_does_not_delay_the_next(
    agent_plugin: GCPAgentPlugin, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name has addresses of both families, of which one may not be there."""
    resolve(monkeypatch, "metadata.google.internal", "::1", "127.0.0.1")
    port = int(endpoint.rpartition(":")[2])
    by_name = replace(agent_plugin.metadata, endpoint=MetadataEndpoint("metadata.google.internal", port))
    with silent("::1", port):
        assert replace(agent_plugin, metadata=by_name).provider_id() == agent_plugin.provider_id()


def test_patience_ends() -> None:
    """On a clock of the test's own: nobody sleeps."""
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    made = list(metadata.attempts(metadata.TIMEOUT_SECONDS, lambda: now, sleep))
    assert 5 < len(made) < 12
    assert metadata.TIMEOUT_SECONDS - 2 <= now < metadata.TIMEOUT_SECONDS


def test_proxies_are_not_asked(agent_plugin: GCPAgentPlugin, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert agent_plugin.gather(REQUEST).fields


def test_nothing_is_configured() -> None:
    found: Any = plugin.agent_plugin({})
    assert found == GCPAgentPlugin(MetadataServer(NodeSettings().endpoint))
