"""``explain --objects`` with AWS's evidence: what is local is judged, STS and EC2 are not asked, and it says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from attestors.aws import AWSAttestor
from attestors.aws.controller import AWSServerPlugin
from attestors.aws.services import make_services
from attestors.clouds.calls import CloudCalls
from attestors.contract import Denied, NotProvableYet, VerifiedIdentity
from attestors.wire.evidence import MalformedEvidence
from signer.explain.offline import NOT_ASKED, _CountedKeys, _OfflinePlugin
from signer.explain.recorded_calls import _NotingPlugin
from tests.integration.aws.fixtures import PluginHarness, fields, presigned
from tests.support.aws_documents import REGION
from tests.support.yaml_documents import safe_load

pytestmark = pytest.mark.slow


@pytest.fixture
def offline(harness: PluginHarness, calls: CloudCalls) -> _OfflinePlugin:
    """The attestor as the controller has it, with AWS's own names to ask."""
    plugin = AWSServerPlugin(harness.settings, make_services({}, calls=calls))
    return _OfflinePlugin(plugin, _CountedKeys(lambda: ()))


async def test_good_evidence_waits_for_the_calls_it_would_need(harness: PluginHarness, offline: _OfflinePlugin) -> None:
    request = harness.request(fields(presigned(harness.session)))
    outcome = await offline.verify_client(request)
    assert isinstance(outcome, NotProvableYet)
    assert outcome.reason == NOT_ASKED
    assert f"not called: offline (sts.{REGION}.amazonaws.com" in outcome.message


@pytest.mark.parametrize("kind", ["presigned", "forged"])
async def test_cloud_answers_are_replayed_from_a_recording(
    harness: PluginHarness, offline: _OfflinePlugin, kind: str
) -> None:
    """Without signature and session token, which a recording does not hold."""
    url = presigned(harness.session)
    request = harness.request(fields(url if kind == "presigned" else url[:-8] + "00000000"))
    noted: list[dict[str, Any]] = []
    live = await _NotingPlugin(harness.plugin, noted).verify_client(request)
    assert isinstance(live, VerifiedIdentity if kind == "presigned" else Denied)
    recorded = safe_load(yaml.safe_dump(noted))
    redacted = AWSAttestor().redacted_fields(request.evidence)
    assert redacted != request.evidence.fields
    kept = replace(request, evidence=replace(request.evidence, fields=redacted))
    assert await replace(offline, answers=recorded).verify_client(kept) == live
    less = await replace(offline, answers=recorded[:-1] or [{"question": "another", "answer": {}}]).verify_client(kept)
    assert isinstance(less, NotProvableYet)
    assert less.reason == NOT_ASKED


async def test_a_request_for_another_server_is_denied_without_a_call(
    harness: PluginHarness, offline: _OfflinePlugin
) -> None:
    url = presigned(harness.session, host="sts.attacker.example")
    with pytest.raises(MalformedEvidence):
        await offline.verify_client(harness.request(fields(url)))
