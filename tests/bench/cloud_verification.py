"""Measures the controller's CPU time for AWS and GCP evidence: ``python -m tests.bench.cloud_verification``.

It runs the whole server plugin without network: STS's response and the published keys are given, and EC2, IAM and
Compute Engine are not called. Every run parses document, request and token from bytes; keys are cached, as in
production.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from attestors.aws import wire
from attestors.aws.caller_identity import SecurityTokenService
from attestors.aws.controller import AWSServerPlugin
from attestors.aws.issuers import IssuerKeys
from attestors.aws.services import make_services
from attestors.clouds.https import HTTPSAnswer
from attestors.contract import AttestationRequest, ServerPlugin, VerifiedIdentity
from attestors.gcp.certificate_source import CertificatesAnswer, CertificateSource
from attestors.gcp.controller import GCPServerPlugin
from attestors.gcp.instances import NoLookUp
from tests.bench.verification import RUNS, Verification, measure
from tests.integration.aws.fixtures import BINDING, PROVIDER_ID, ROLE, fields, presigned, settings, token_fields
from tests.support.aws_documents import ACCOUNT, INSTANCE, REGION
from tests.support.fake_aws.accounts import Issuer, Session
from tests.unit.attestors.gcp import support as google
from tests.unit.attestors.support import NOW, attestation_request, evidence_of

_AWS_ALONE: Final = {"describeInstances": False, "checkRoleTrust": False}


def measure_cloud_verification(runs: int = RUNS) -> list[Verification]:
    """Verify valid evidence of each kind."""
    session = Session.of_instance(
        INSTANCE, account=ACCOUNT, region=REGION, role_name=ROLE, expires_at=NOW + timedelta(hours=6)
    )
    issuer = Issuer()
    aws = _aws(session, issuer)
    claims = issuer.claims(session, wire.audience(BINDING.value), NOW, timedelta(minutes=5))
    with asyncio.Runner() as loop:
        measured = [
            _measure(loop, "AWS, document and presigned request", aws, _to_aws(fields(presigned(session))), runs)
        ]
        for key_id in issuer.keys:
            request = _to_aws(token_fields(issuer.token(claims, key_id)))
            measured.append(_measure(loop, f"AWS, document and token by {key_id}", aws, request, runs))
        measured.append(_measure(loop, "GCP, identity token", _gcp(), google.request(google.token()), runs))
    return measured


@dataclass(frozen=True)
class _Answers:
    """Implements :class:`attestors.clouds.https.HTTPS` with fixed responses by path."""

    documents: Mapping[str, bytes]

    async def get(
        self,
        service: str,
        operation: str,
        host: str,
        target: str,
        *,
        headers: Mapping[str, str] | None = None,
        maximum_bytes: int,
    ) -> HTTPSAnswer:
        return HTTPSAnswer(200, "application/json", self.documents[target.partition("?")[0]])


def _aws(session: Session, issuer: Issuer) -> AWSServerPlugin:
    result = {"Account": session.account, "Arn": session.arn, "UserId": session.user_id}
    documents: Mapping[str, object] = {
        "/": {"GetCallerIdentityResponse": {"GetCallerIdentityResult": result}},
        "/.well-known/openid-configuration": issuer.discovery(),
        "/.well-known/jwks.json": issuer.key_set(),
    }
    https = _Answers({path: json.dumps(document).encode() for path, document in documents.items()})
    defaults = make_services({})
    services = type(defaults)(SecurityTokenService(https), IssuerKeys(https), defaults.instances, defaults.roles)
    return AWSServerPlugin(settings({**_AWS_ALONE, "webIdentityIssuers": {ACCOUNT: issuer.url}}), services)


def _to_aws(evidence: Mapping[str, str]) -> AttestationRequest:
    return attestation_request(evidence_of(evidence), binding=BINDING, provider_id=PROVIDER_ID)


def _gcp() -> GCPServerPlugin:
    async def fetch() -> CertificatesAnswer:
        body = json.dumps({google.KEY.key_id: google.KEY.certificate_pem}).encode()
        return CertificatesAnswer(body, timedelta(hours=1), timedelta())

    source = CertificateSource(fetch)
    return GCPServerPlugin(google.SETTINGS, lambda: source, NoLookUp())


def _measure(
    loop: asyncio.Runner, title: str, plugin: ServerPlugin, request: AttestationRequest, runs: int
) -> Verification:
    def verify() -> None:
        outcome = loop.run(plugin.verify_client(request))
        if not isinstance(outcome, VerifiedIdentity):
            raise TypeError(f"{title}: {outcome}")

    return measure(title, verify, runs)


def main() -> int:
    """Print the measurements."""
    for measured in measure_cloud_verification():
        print(measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
