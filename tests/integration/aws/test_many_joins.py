"""500 joins that arrive within 10 seconds are few calls of DescribeInstances, which everybody in an account shares."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from attestors.aws import AWSAttestor, wire
from attestors.aws.controller import AWSServerPlugin
from attestors.aws.services import Elsewhere
from attestors.contract import AttestationRequest, AttestorSettings, Outcome, VerifiedIdentity
from tests.integration.aws.fixtures import BINDING, OPERATOR, ROLE, token_fields
from tests.support import aws_documents
from tests.support.aws_documents import ACCOUNT, REGION
from tests.support.fake_aws import FakeAWS
from tests.support.fake_aws.counting_ec2 import CountingEC2
from tests.unit.attestors.support import attestation_request, evidence_of

pytestmark = pytest.mark.slow

JOINS: Final = 500
SECONDS: Final = 10.0
MAXIMUM_CALLS: Final = 15


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingEC2]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x" * 40)
    with CountingEC2() as counting:
        yield counting


@pytest.fixture
def plugins(ec2: CountingEC2) -> Iterator[tuple[list[AWSServerPlugin], FakeAWS]]:
    """Of two clusters of one operator; what they ask, they ask together."""
    with FakeAWS() as aws:
        attestor = AWSAttestor(Elsewhere(routes=aws.elsewhere.routes, endpoints=ec2.endpoints))
        operator = {**OPERATOR, "webIdentityIssuers": {ACCOUNT: aws.issuer.url}}
        made = [attestor.server_plugin(AttestorSettings(operator=operator)) for _ in range(2)]
        certificates = aws_documents.certificates()
        yield [replace(plugin, settings=replace(plugin.settings, certificates=certificates)) for plugin in made], aws


def join(aws: FakeAWS, number: int) -> AttestationRequest:
    """An instance of its own, with a token: STS is not what is counted here."""
    instance = f"i-{number:017x}"
    session = aws.credentials(instance, account=ACCOUNT, role_name=ROLE)
    now = datetime.now(UTC)
    claims = aws.issuer.claims(session, wire.audience(BINDING.value), now, timedelta(minutes=5))
    document = aws_documents.sign(aws_documents.document(instanceId=instance))
    evidence = evidence_of(token_fields(aws.issuer.token(claims), document=document))
    made = attestation_request(evidence, binding=BINDING, provider_id=f"aws:///{REGION}a/{instance}")
    return replace(made, now=now)


@pytest.mark.parametrize("seconds", [SECONDS, 0.0], ids=["evenly", "at once"])
async def test_500_joins(ec2: CountingEC2, plugins: tuple[list[AWSServerPlugin], FakeAWS], seconds: float) -> None:
    clusters, aws = plugins
    requests = [join(aws, number) for number in range(JOINS)]

    async def arrive(number: int) -> Outcome:
        await asyncio.sleep(seconds * number / JOINS)
        return await clusters[number % 2].verify_client(requests[number])

    outcomes = await asyncio.gather(*(arrive(number) for number in range(JOINS)))
    assert [outcome for outcome in outcomes if not isinstance(outcome, VerifiedIdentity)] == []
    assert sorted(name for call in ec2.calls for name in call) == [f"i-{number:017x}" for number in range(JOINS)]
    assert len(ec2.calls) <= MAXIMUM_CALLS
