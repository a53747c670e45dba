"""What the agent plugin gathers, the server plugin believes: real signatures, real TLS, the real clock."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from attestors.aws import plugin
from attestors.aws.node.plugin import AWSAgentPlugin
from attestors.aws.node.web_identity import web_identity_token
from attestors.clouds.calls import CloudCalls
from attestors.contract import GatherRequest, VerifiedIdentity
from attestors.wire import evidence as header
from attestors.wire.binding import BindingMismatch, CACertHash
from attestors.wire.names import Purpose
from tests.integration.aws.fixtures import BINDING, PROVIDER_ID, ROLE, PluginHarness, settings
from tests.support.aws_documents import ACCOUNT, INSTANCE
from tests.support.fake_aws import FakeAWS
from tests.support.fake_instance_metadata import FakeInstanceMetadata, Instance
from tests.unit.attestors.support import CLUSTER, binding_for

GATHER = GatherRequest(BINDING, CLUSTER.text, "v1", Purpose.CLIENT, "")


@pytest.fixture
def harness(calls: CloudCalls) -> Iterator[PluginHarness]:
    """In this test it is really now."""
    with FakeAWS() as cloud:
        yield PluginHarness(cloud, calls)


@pytest.fixture
def agent_plugin(harness: PluginHarness) -> Iterator[AWSAgentPlugin]:
    """On an instance whose metadata service hands out the credentials that STS knows."""
    session = harness.session
    instance = Instance(
        role=ROLE,
        access_key_id=session.access_key_id,
        secret_access_key=session.secret_key,
        session_token=session.session_token,
    )
    with FakeInstanceMetadata(instance) as metadata:
        yield plugin.agent_plugin({"metadata-endpoint": metadata.url})


async def judged(harness: PluginHarness, plugin: AWSAgentPlugin) -> object:
    """Gathered, sent and judged."""
    sent = header.encode(await asyncio.to_thread(plugin.gather, GATHER))
    received = header.decode(sent)
    request = replace(harness.request(received.fields, now=datetime.now(UTC)), evidence=received)
    return await harness.plugin.verify_client(request)


async def test_a_presigned_request_is_believed(harness: PluginHarness, agent_plugin: AWSAgentPlugin) -> None:
    assert agent_plugin.provider_id() == PROVIDER_ID
    outcome = await judged(harness, agent_plugin)
    assert isinstance(outcome, VerifiedIdentity), outcome
    assert outcome.provider_id == PROVIDER_ID


async def test_a_web_identity_token_is_believed(harness: PluginHarness, agent_plugin: AWSAgentPlugin) -> None:
    harness.settings = settings({"webIdentityIssuers": {ACCOUNT: harness.aws.issuer.url}})
    source = functools.partial(web_identity_token, endpoint=harness.aws.sts_endpoint)
    with_token = AWSAgentPlugin(
        replace(agent_plugin.settings, proof=type(agent_plugin.settings.proof)("web-identity")), source
    )
    outcome = await judged(harness, with_token)
    assert isinstance(outcome, VerifiedIdentity), outcome
    assert outcome.identity.endswith(f":{INSTANCE}")
    assert [seen.method for seen in harness.aws.sts_requests] == ["POST"]


async def test_what_was_gathered_for_one_request_is_no_good_for_another(
    harness: PluginHarness, agent_plugin: AWSAgentPlugin
) -> None:
    gathered = await asyncio.to_thread(agent_plugin.gather, GATHER)
    other = binding_for(provider="aws", cluster=CACertHash("sha256:" + "cc" * 32))
    with pytest.raises(BindingMismatch):
        await harness.plugin.verify_client(harness.request(gathered.fields, binding=other, now=datetime.now(UTC)))
