"""Judges a recorded request with today's code, at the recorded time, with what clouds answered then."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, cast

from cryptography import x509

from attestors.aws.caller_identity.answer import read_answer
from attestors.aws.caller_identity.presigned import PresignedRequest
from attestors.aws.caller_identity.role_session import CallerIdentity
from attestors.aws.controller import AWSServerPlugin
from attestors.aws.document.certificates import RegionCertificates, pin
from attestors.aws.services import AWSServices
from attestors.aws.settings import AWSSettings
from attestors.clouds.calls import CloudCalls
from attestors.contract import AttestationRequest, AttestorSettings, ClaimedMachine, Outcome, ServerPlugin
from attestors.gcp.certificate_source import CertificateSource
from attestors.gcp.certificates import GoogleKey, parse_certificates
from attestors.gcp.controller import GCPServerPlugin
from attestors.gcp.instances import NoLookUp
from attestors.gcp.settings import GCPSettings
from attestors.registry import Registry
from attestors.wire import binding as binding_format
from attestors.wire.binding import ProvenBinding
from attestors.wire.names import Purpose
from signer.model.signing_request import SigningRequest, parse_signing_request
from signer.rules.request import claimed_provider_id
from tests.releases.recording import Document

PROVIDERS = frozenset({"aws", "gcp", "insecure", "keyed-mac", "tpm"})


async def judge(recording: Document) -> Outcome:
    """Read the stored object, compute its binding, and ask the attestor's server plugin."""
    parsed = parse_signing_request(recording["certificateSigningRequest"], PROVIDERS)
    assert isinstance(parsed, SigningRequest), parsed
    plugin = _plugin(parsed.header.signer.provider, recording)
    purpose = parsed.header.signer.purpose
    verify = plugin.verify_client if purpose is Purpose.CLIENT else plugin.verify_serving
    return await verify(_request(parsed, recording))


def decision(outcome: Outcome) -> Document:
    """What is recorded of an outcome: all that it decides."""
    said: Document = {"kind": type(outcome).__name__}
    for name in ("provider_id", "identity", "reason"):
        if hasattr(outcome, name):
            said[name] = getattr(outcome, name)
    bound = getattr(outcome, "binding", None)
    if isinstance(bound, ProvenBinding):
        said["binding"] = bound.value.hex()
    return said


def _request(parsed: SigningRequest, recording: Document) -> AttestationRequest:
    request = parsed.certificate_request
    expected = binding_format.compute(
        evidence_version=parsed.evidence.version,
        cluster=parsed.evidence.cluster,
        signer_name=parsed.header.signer,
        subject_public_key_info=request.subject_public_key_info,
    )
    return AttestationRequest(
        provider_id=claimed_provider_id(parsed),
        evidence=parsed.evidence,
        binding=expected,
        cluster_namespace="default",
        cluster_name="workload",
        cluster_uid="recorded",
        csr_uid=parsed.header.uid,
        dns_names=request.dns_names,
        ip_addresses=request.ip_addresses,
        now=datetime.fromisoformat(recording["now"]),
        machine=ClaimedMachine("recorded", MappingProxyType(dict(recording.get("annotations", {})))),
    )


def _plugin(provider: str, recording: Document) -> ServerPlugin:
    keys = tuple(bytes.fromhex(key) for key in recording.get("challengeKeys", ()))
    settings = AttestorSettings(operator=recording["operator"], challenge_keys=lambda: keys)
    if provider == "aws":
        return _aws(settings, recording["cloud"])
    if provider == "gcp":
        return _gcp(settings, recording["cloud"])
    return Registry().load(provider).server_plugin(settings)


@dataclass(frozen=True)
class RecordedSTS:
    """Says what STS said; that it would verify the signature is not recorded."""

    answer: Mapping[str, Any]

    async def caller_of(self, request: PresignedRequest, binding: ProvenBinding) -> CallerIdentity:
        """As :class:`attestors.aws.caller_identity.service.SecurityTokenService`."""
        assert request.region.name
        assert binding.value
        return read_answer(200, "application/json", json.dumps(self.answer).encode())


def _aws(settings: AttestorSettings, cloud: Document) -> ServerPlugin:
    pinned = pin(x509.load_der_x509_certificate(base64.b64decode(cloud["regionCertificate"])))
    regions = RegionCertificates(MappingProxyType({cloud["region"]: (pinned,)}))
    parsed = replace(AWSSettings.parse(settings), certificates=regions)
    nobody = cast("Any", CloudCalls)  # roles and instances are not asked about under the recorded settings
    services = AWSServices(cast("Any", RecordedSTS(cloud["callerIdentity"])), nobody, nobody, nobody)
    return AWSServerPlugin(parsed, services)


@dataclass(frozen=True)
class RecordedCertificates:
    """The certificates that Google published."""

    body: bytes

    async def key(self, key_id: str, *, issued: datetime, now: datetime) -> GoogleKey:
        """As :class:`attestors.gcp.certificate_source.CertificateSource`."""
        assert issued <= now
        return parse_certificates(self.body)[key_id]


def _gcp(settings: AttestorSettings, cloud: Document) -> ServerPlugin:
    source = RecordedCertificates(json.dumps(cloud["certificates"]).encode())
    return GCPServerPlugin(GCPSettings.parse(settings), lambda: cast("CertificateSource", source), NoLookUp())
