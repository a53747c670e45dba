"""The server plugin: in its order, an honest instance passes, and each attack ends with a reason of its own."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from attestors.clouds.errors import CloudUnavailable
from attestors.contract import AttestorSettings, Denied, NotProvableYet, Outcome, Plausible, VerifiedIdentity
from attestors.gcp import GCPAttestor, plugin
from attestors.gcp.certificate_source import CertificatesAnswer, CertificateSource
from attestors.gcp.claims import InstanceClaims, read_claims
from attestors.gcp.controller import GCPServerPlugin, internal_dns_names
from attestors.gcp.instances import InstanceLookUp, NoLookUp
from attestors.gcp.settings import GCPSettings
from attestors.wire.binding import Binding, BindingMismatch
from attestors.wire.evidence import MalformedEvidence
from attestors.wire.names import Purpose
from tests.support.fake_google import SigningKey, signing_key
from tests.unit.attestors.gcp.support import (
    ABSENT,
    BINDING,
    INSTANCE,
    KEY,
    NOW,
    OPERATOR,
    OTHER_KEY,
    SETTINGS,
    claims,
    engine,
    request,
    settings,
    token,
)
from tests.unit.attestors.support import binding_for

HOUR = timedelta(hours=1)
ATTACKER = signing_key(7)
ROTATED = signing_key(8)


@dataclass
class PluginHarness:
    """A server plugin, and Google's certificates."""

    settings: GCPSettings = SETTINGS
    published: tuple[SigningKey, ...] = (KEY, OTHER_KEY)
    down: bool = False
    now: datetime = NOW
    calls: int = 0
    source: CertificateSource = field(init=False)

    def __post_init__(self) -> None:
        self.source = CertificateSource(self.fetch, lambda: 1000.0)

    async def fetch(self) -> CertificatesAnswer:
        self.calls += 1
        if self.down:
            raise CloudUnavailable("Google's certificates", "is down")
        body = json.dumps({key.key_id: key.certificate_pem for key in self.published}).encode()
        return CertificatesAnswer(body, HOUR, timedelta())

    @property
    def plugin(self) -> GCPServerPlugin:
        return GCPServerPlugin(self.settings, lambda: self.source, NoLookUp())

    async def ask(self, text: str, binding: Binding = BINDING, provider_id: str = INSTANCE.provider_id) -> Outcome:
        asked = replace(request(text, now=self.now, provider_id=provider_id), binding=binding)
        outcome = await self.plugin.verify_client(asked)
        assert outcome == await self.plugin.verify_serving(asked)
        return outcome

    async def reason(self, text: str) -> tuple[str, str]:
        """How it ends, and the reason."""
        outcome = await self.ask(text)
        assert isinstance(outcome, Denied | NotProvableYet), outcome
        return type(outcome).__name__, outcome.reason


async def test_an_honest_instance() -> None:
    outcome = await PluginHarness().ask(token())
    assert isinstance(outcome, VerifiedIdentity)
    assert outcome.provider_id == "gce://capi-workloads/europe-west1-b/worker-1"
    assert outcome.identity == f"gcp:730000000001:{INSTANCE.instance_id}"
    assert outcome.binding.value == BINDING.value
    assert outcome.node_names == ("worker-1",)
    assert outcome.dns_names == (
        "worker-1",
        "worker-1.europe-west1-b.c.capi-workloads.internal",
        "worker-1.c.capi-workloads.internal",
    )
    assert outcome.ip_addresses == ()
    assert outcome.annotations == {}


async def test_an_instance_that_was_made_again_is_another_identity() -> None:
    again = INSTANCE.created_again("4711000000000000009", NOW)
    outcome = await PluginHarness().ask(token(claims(again)))
    assert isinstance(outcome, VerifiedIdentity)
    assert outcome.provider_id == INSTANCE.provider_id
    assert outcome.identity == "gcp:730000000001:4711000000000000009"


async def test_a_project_inside_a_domain_has_other_dns_names() -> None:
    domain = replace(INSTANCE, project="example.com:web")
    harness = PluginHarness(settings(projects={"example.com:web": 730000000001}))
    outcome = await harness.ask(token(claims(domain)), provider_id=domain.provider_id)
    assert isinstance(outcome, VerifiedIdentity)
    assert outcome.dns_names == ("worker-1",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (token(alg="none"), "TokenAlgorithmRefused"),
        (token(alg="HS256"), "TokenAlgorithmRefused"),
        (token(alg="ES256"), "TokenAlgorithmRefused"),
        (token(claims(iss="https://example.com")), "TokenIssuerRefused"),
        (token(claims(issued=NOW - 2 * HOUR)), "EvidenceExpired"),
        (token(claims(exp=int((NOW + 48 * HOUR).timestamp()))), "TokenLifetimeRefused"),
        (token(claims(google=ABSENT)), "TokenOfNoInstance"),
        (token(claims(google=engine(project_id="another-project"))), "ProjectNotAllowed"),
        (token(claims(google=engine(project_number=5))), "ProjectNumberMismatch"),
        (token(claims(google=engine(zone="europe-west1-c"))), "ProviderIDMismatch"),
        (token(claims(google=engine(instance_name="worker-2"))), "ProviderIDMismatch"),
    ],
    ids=[
        "alg none",
        "HS256",
        "ES256",
        "issuer",
        "expired",
        "long life",
        "no instance",
        "project",
        "project number",
        "zone",
        "instance",
    ],
)
async def test_what_is_wrong_anyway_costs_no_call(text: str, reason: str) -> None:
    harness = PluginHarness(down=True)
    assert await harness.reason(text) == ("Denied", reason)
    pre_filtered = harness.plugin.pre_filter(request(text))
    assert isinstance(pre_filtered, Denied)
    assert pre_filtered.reason == reason
    assert harness.calls == 0


async def test_evidence_that_cannot_be_read_costs_no_call() -> None:
    harness = PluginHarness()
    with pytest.raises(MalformedEvidence):
        await harness.ask(token(kid=ABSENT))
    with pytest.raises(MalformedEvidence):
        harness.plugin.pre_filter(request(token(kid=ABSENT)))
    assert harness.calls == 0


async def test_another_requests_token_costs_no_call() -> None:
    harness = PluginHarness()
    other = binding_for(provider="gcp", purpose=Purpose.SERVING)
    with pytest.raises(BindingMismatch):
        await harness.ask(token(), binding=other)
    with pytest.raises(BindingMismatch):
        harness.plugin.pre_filter(replace(request(token()), binding=other))
    assert harness.calls == 0


class TestSignature:
    async def test_an_attackers_key_under_googles_id(self) -> None:
        assert await PluginHarness().reason(token(key=ATTACKER, kid=KEY.key_id)) == ("Denied", "TokenSignatureInvalid")

    async def test_an_attackers_key(self) -> None:
        """Its token is older than the certificates: Google would have published the key."""
        text = token(claims(issued=NOW - timedelta(minutes=5)), key=ATTACKER)
        assert await PluginHarness().reason(text) == ("Denied", "TokenKeyUnknown")

    async def test_a_key_that_was_rotated_out(self) -> None:
        text = token(claims(issued=NOW - timedelta(minutes=5)), key=ROTATED)
        assert await PluginHarness(published=(KEY, ROTATED)).reason(token(alg="none")) == (
            "Denied",
            "TokenAlgorithmRefused",
        )
        assert isinstance(await PluginHarness(published=(KEY, ROTATED)).ask(text), VerifiedIdentity)
        assert await PluginHarness(published=(KEY,)).reason(text) == ("Denied", "TokenKeyUnknown")

    async def test_a_new_key_of_a_new_token(self) -> None:
        """Perhaps Google has published it a moment ago."""
        harness = PluginHarness()
        outcome = await harness.ask(token(key=ATTACKER))
        assert isinstance(outcome, NotProvableYet)
        assert outcome.reason == "TokenKeyNotPublished"
        assert outcome.retry_after == timedelta(seconds=60)
        assert harness.calls == 1

    async def test_many_new_keys(self) -> None:
        harness = PluginHarness()
        for number in range(20):
            assert (await harness.reason(token(kid=f"random-{number}")))[1] == "TokenKeyNotPublished"
        assert harness.calls == 1

    async def test_screening_does_not_look_at_it(self) -> None:
        harness = PluginHarness(down=True)
        assert harness.plugin.pre_filter(request(token(key=ATTACKER))) == Plausible()
        assert harness.calls == 0


async def test_a_token_from_the_future_that_google_signed() -> None:
    harness = PluginHarness()
    assert await harness.reason(token(claims(issued=NOW + 2 * HOUR))) == ("NotProvableYet", "ClockBehind")
    assert harness.plugin.pre_filter(request(token(claims(issued=NOW + 2 * HOUR)))) == Plausible()


async def test_a_token_from_the_future_that_google_did_not_sign() -> None:
    text = token(claims(issued=NOW + 2 * HOUR), key=ATTACKER, kid=KEY.key_id)
    assert await PluginHarness().reason(text) == ("Denied", "TokenSignatureInvalid")


async def test_an_outage_is_reported_and_never_denies() -> None:
    outcome = await PluginHarness(down=True).ask(token())
    assert isinstance(outcome, NotProvableYet)
    assert outcome.reason == "CloudUnavailable"
    assert "Google's certificates" in outcome.message


async def test_messages_quote_nothing_of_the_token() -> None:
    """No message and no representation has a part of it that could be used."""
    texts = [token(), token(key=ATTACKER), token(claims(iss="x")), token(claims(google=engine(zone="a-b")))]
    for text in texts:
        outcome = await PluginHarness().ask(text)
        for segment in text.split("."):
            assert segment not in repr(outcome)


def test_it_is_found_by_its_entry_point_and_light() -> None:
    """The agent plugin needs neither google-auth nor requests, and importing the plugin needs nothing at all."""
    program = (
        "import sys\n"
        "from attestors.registry import Registry\n"
        "found = Registry().load('gcp')\n"
        "assert not any(name.startswith('attestors.gcp.') for name in sys.modules), 'heavy'\n"
        "assert found.description.renews and found.description.serves\n"
        "found.agent_plugin({})\n"
        "heavy = {'google.auth', 'requests', 'aiohttp', 'attestors.gcp.controller'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_missing_library_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("google.auth.crypt", "requests"):
        with monkeypatch.context() as missing:
            missing.setitem(sys.modules, name, None)
            with pytest.raises(ImportError):
                plugin.server_plugin(AttestorSettings(operator=OPERATOR))


async def test_all_clusters_share_the_certificates() -> None:
    attestor = GCPAttestor()
    plugins = [attestor.server_plugin(AttestorSettings(operator=operator)) for operator in (OPERATOR, OPERATOR)]
    assert plugins[0].certificates() is plugins[1].certificates()
    proxied: Mapping[str, Any] = {**OPERATOR, "proxy": "https://proxy.example.com"}
    other = attestor.server_plugin(AttestorSettings(operator=proxied))
    assert other.certificates() is not plugins[0].certificates()


def test_each_event_loop_has_its_own_certificates() -> None:
    plugin = GCPAttestor().server_plugin(AttestorSettings(operator=OPERATOR))

    async def certificates() -> CertificateSource:
        return plugin.certificates()

    with asyncio.Runner() as one, asyncio.Runner() as two:
        first = one.run(certificates())
        assert first is one.run(certificates())
        assert first is not two.run(certificates())


def test_instances_are_looked_up_where_the_operator_says_so() -> None:
    server_plugin = plugin.server_plugin(AttestorSettings(operator={**OPERATOR, "checkInstance": True}))
    assert isinstance(server_plugin.instances, InstanceLookUp)
    assert isinstance(plugin.server_plugin(AttestorSettings(operator=OPERATOR)).instances, NoLookUp)


def test_names_are_host_names() -> None:
    instance = read_claims(claims()).instance
    assert isinstance(instance, InstanceClaims)
    assert all(name.startswith("worker-1") and name == name.lower() for name in internal_dns_names(instance))
