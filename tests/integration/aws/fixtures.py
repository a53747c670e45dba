"""A server plugin at the fake AWS, and the evidence that an instance's agent plugin would bring to it."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from unittest import mock
from urllib.parse import urlencode

import botocore.auth
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from attestors.aws import wire
from attestors.aws.controller import AWSServerPlugin
from attestors.aws.ec2.directory import InstanceDirectory
from attestors.aws.ec2.instance import Instance
from attestors.aws.ec2.trust import RoleTrust
from attestors.aws.partitions import Region
from attestors.aws.services import AWSServices, make_services
from attestors.aws.settings import AWSSettings
from attestors.clouds.calls import CloudCalls
from attestors.contract import AttestationRequest, AttestorSettings, Denied, NotProvableYet, Outcome
from attestors.wire.binding import Binding
from tests.support import aws_documents
from tests.support.aws_documents import ACCOUNT, INSTANCE, REGION
from tests.support.fake_aws import FakeAWS, Session
from tests.unit.attestors.aws.ec2.descriptions import description
from tests.unit.attestors.support import NOW, attestation_request, binding_for, evidence_of

ROLE: Final = "nodes.example"
BINDING: Final = binding_for(provider="aws")
PROVIDER_ID: Final = f"aws:///{REGION}a/{INSTANCE}"
OPERATOR: Final[Mapping[str, Any]] = {"allowedRoles": [f"arn:aws:iam::{ACCOUNT}:role/control-plane/{ROLE}"]}


def settings(operator: Mapping[str, Any] | None = None, policy: Mapping[str, Any] | None = None) -> AWSSettings:
    """The operator's usual ones, with some more, and the test's region certificates in place of AWS's."""
    parsed = AWSSettings.parse(AttestorSettings(operator={**OPERATOR, **(operator or {})}, policy=policy or {}))
    return replace(parsed, certificates=aws_documents.certificates())


def presigned(
    session: Session,
    binding: str = BINDING.value.hex(),
    *,
    region: str = REGION,
    host: str = "",
    parameters: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    at: datetime.datetime = NOW,
    expires: int = 300,
) -> str:
    """URL of a request, signed by botocore: what a agent plugin makes, and what it never should."""
    query = urlencode(parameters or {"Action": "GetCallerIdentity", "Version": "2011-06-15"})
    signed = {wire.BINDING_HEADER: binding} if headers is None else headers
    request = AWSRequest("GET", f"https://{host or f'sts.{region}.amazonaws.com'}/?{query}", headers=dict(signed))
    signer = Credentials(session.access_key_id, session.secret_key, session.session_token)
    with mock.patch.object(botocore.auth, "get_current_datetime", return_value=at.replace(tzinfo=None)):
        SigV4QueryAuth(signer, "sts", region, expires=expires).add_auth(request)
    return str(request.url)


def fields(url: str, *, binding: str = BINDING.value.hex(), document: bytes | None = None) -> dict[str, str]:
    """The fields of evidence with a presigned request."""
    signed = aws_documents.sign(aws_documents.document()) if document is None else document
    return {
        wire.IDENTITY_DOCUMENT_FIELD: base64.b64encode(signed).decode(),
        wire.CALLER_IDENTITY_REQUEST_FIELD: url,
        wire.CALLER_IDENTITY_BINDING_FIELD: binding,
    }


def token_fields(token: str, *, document: bytes | None = None) -> dict[str, str]:
    """The fields of evidence with a web identity token."""
    signed = aws_documents.sign(aws_documents.document()) if document is None else document
    return {
        wire.IDENTITY_DOCUMENT_FIELD: base64.b64encode(signed).decode(),
        wire.WEB_IDENTITY_TOKEN_FIELD: token,
    }


@dataclass
class FakeEC2:
    """What EC2 and IAM say, without them."""

    instances: dict[str, dict[str, Any]] = field(default_factory=lambda: {INSTANCE: description()})
    trust: RoleTrust | Exception | None = None
    owner: str = ACCOUNT
    failure: Exception | None = None
    described: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    roles_asked: list[tuple[str, str]] = field(default_factory=list)

    async def describe(self, account: str, region: Region, instance_ids: Sequence[str]) -> Sequence[Instance]:
        self.described.append((account, region.name, tuple(instance_ids)))
        if self.failure is not None:
            raise self.failure
        return [
            Instance.read(self.instances[name], account=self.owner, region=region.name)
            for name in instance_ids
            if name in self.instances
        ]

    async def find(self, account: str, region: Region, role_name: str) -> RoleTrust:
        """As :meth:`attestors.aws.services.RoleTrusts.find`."""
        self.roles_asked.append((account, role_name))
        if isinstance(self.trust, Exception):
            raise self.trust
        assert self.trust is not None
        return self.trust


async def at_once(seconds: float) -> None:
    """For a directory that need not wait for other questions."""


@dataclass
class PluginHarness:
    """A server plugin; STS is real enough to verify signatures, EC2 and IAM are fakes."""

    aws: FakeAWS
    calls: CloudCalls
    ec2: FakeEC2 = field(default_factory=FakeEC2)
    settings: AWSSettings = field(default_factory=settings)

    @property
    def session(self) -> Session:
        """Credentials of the instance's role, from its metadata service."""
        session = self.aws.credentials(INSTANCE, account=ACCOUNT, role_name=ROLE)
        self.ec2.trust = self.ec2.trust or RoleTrust(session.user_id.partition(":")[0], True)
        return session

    @property
    def services(self) -> AWSServices:
        made = make_services({}, calls=self.calls, elsewhere=self.aws.elsewhere)
        directory = InstanceDirectory(self.ec2.describe, at_once=200, sleep=at_once)
        return replace(made, instances=directory, roles=self.ec2)  # type: ignore[arg-type]  # it finds alike

    @property
    def plugin(self) -> AWSServerPlugin:
        return AWSServerPlugin(self.settings, self.services)

    def request(
        self,
        evidence: Mapping[str, str],
        *,
        binding: Binding = BINDING,
        provider_id: str = PROVIDER_ID,
        now: datetime.datetime = NOW,
    ) -> AttestationRequest:
        made = attestation_request(evidence_of(evidence), binding=binding, provider_id=provider_id)
        return replace(made, now=now)

    async def ask(self, evidence: Mapping[str, str], **changes: Any) -> Outcome:
        return await self.plugin.verify_client(self.request(evidence, **changes))

    async def denied(self, evidence: Mapping[str, str], **changes: Any) -> str:
        """The reason of the denial."""
        outcome = await self.ask(evidence, **changes)
        assert isinstance(outcome, Denied), outcome
        return outcome.reason

    async def waits(self, evidence: Mapping[str, str], **changes: Any) -> str:
        """What the request waits for."""
        outcome = await self.ask(evidence, **changes)
        assert isinstance(outcome, NotProvableYet), outcome
        return outcome.message

    @property
    def nobody_was_called(self) -> bool:
        """Whether the answer came from local checks alone."""
        return not (self.aws.sts_requests or self.aws.issuer_paths or self.ec2.described or self.ec2.roles_asked)
