"""Google's answers are recorded while a request is explained, and replayed to the attestor."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import yaml

from attestors.contract import Auditable, ExplainsReasons, VerifiedIdentity
from attestors.gcp import GCPAttestor
from attestors.gcp.certificate_source import CertificatesAnswer, CertificateSource
from attestors.gcp.controller import GCPServerPlugin
from attestors.gcp.instances import NoLookUp
from attestors.registry import Registry
from signer.explain.offline import OfflineRegistry, _CountedKeys, _OfflinePlugin
from signer.explain.recorded_calls import NotingRegistry, _NotingPlugin
from tests.support.yaml_documents import safe_load
from tests.unit.attestors.gcp import support as google


def plugin(*, reachable: bool) -> GCPServerPlugin:
    async def fetch() -> CertificatesAnswer:
        if not reachable:
            raise AssertionError("Google was asked")
        body = json.dumps({google.KEY.key_id: google.KEY.certificate_pem}).encode()
        return CertificatesAnswer(body, timedelta(hours=1), timedelta())

    source = CertificateSource(fetch)
    return GCPServerPlugin(google.SETTINGS, lambda: source, NoLookUp())


async def test_a_token_is_replayed_without_its_signature() -> None:
    request = google.request(google.token())
    noted: list[dict[str, Any]] = [{"question": "of a judgement before"}]
    live = await _NotingPlugin(plugin(reachable=True), noted).verify_client(request)
    assert isinstance(live, VerifiedIdentity)
    fields = GCPAttestor().redacted_fields(request.evidence)
    kept = replace(request, evidence=replace(request.evidence, fields=fields))
    recorded = safe_load(yaml.safe_dump(noted))
    assert google.token().rpartition(".")[2] not in yaml.safe_dump([recorded, dict(fields)])
    again = await _OfflinePlugin(plugin(reachable=False), _CountedKeys(lambda: ()), recorded).verify_client(kept)
    assert again == live


@pytest.mark.parametrize("registry", [NotingRegistry(), OfflineRegistry()], ids=["noting", "offline"])
def test_a_wrapped_attestor_keeps_its_other_abilities(registry: Registry) -> None:
    attestor, own = registry.load("gcp"), GCPAttestor()
    assert isinstance(attestor, Auditable)
    evidence = google.request(google.token()).evidence
    assert attestor.redacted_fields(evidence) == own.redacted_fields(evidence) != evidence.fields
    assert isinstance(attestor, ExplainsReasons)
    assert attestor.explanations() == own.explanations() != {}
    assert attestor.description.provider == "gcp"


@pytest.mark.parametrize("registry", [NotingRegistry(), OfflineRegistry()], ids=["noting", "offline"])
def test_a_wrapped_attestor_gains_no_abilities(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain:
        description = GCPAttestor().description

    monkeypatch.setattr(Registry, "load", lambda self, provider: Plain())
    attestor = registry.load("plain")
    assert not isinstance(attestor, Auditable)
    assert not isinstance(attestor, ExplainsReasons) or attestor.explanations() == {}
