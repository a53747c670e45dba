"""What clouds sign and answer: identity documents, presigned requests, tokens, keys, descriptions."""

from __future__ import annotations

from typing import Final

from attestors.aws.caller_identity.answer import read_answer
from attestors.aws.caller_identity.presigned import PresignedRequest
from attestors.aws.caller_identity.role_session import CallerIdentity
from attestors.aws.document import certificates
from attestors.aws.document.errors import IdentityDocumentMalformed, IdentityDocumentRefused
from attestors.aws.document.identity_document import InstanceIdentityDocument, parse_identity_document
from attestors.aws.document.signed_data import SignedData, parse_signed_data
from attestors.aws.document.verification import verify_identity_document
from attestors.aws.web_identity import WebIdentity, parse_web_identity_token
from attestors.clouds.errors import CloudUnavailable
from attestors.clouds.google.answers import Instance, ShieldedInstanceIdentity
from attestors.clouds.google.provider_id import GCEProviderID, InvalidGCEProviderID
from attestors.clouds.json_objects import InvalidObject, parse_object
from attestors.clouds.json_web_token import InvalidKeySet, InvalidToken, UnverifiedToken, parse_key_set
from attestors.clouds.urls import InvalidURL, check_url
from attestors.gcp.certificates import CertificatesUnreadable, parse_certificates
from attestors.gcp.token import IdentityToken, MalformedToken, UnsuitableAlgorithm, parse_token
from attestors.verdict import Ended
from attestors.wire.evidence import MalformedEvidence
from tests.fuzz.target import Shape, Target, require, text_of

_REGIONS: Final = certificates.shipped_certificates()


def _signed_data(data: bytes) -> SignedData:
    return parse_signed_data(data)


def _signed_document(data: bytes) -> InstanceIdentityDocument:
    return verify_identity_document(data, _REGIONS)


def _document(data: bytes) -> InstanceIdentityDocument:
    return parse_identity_document(data)


def _presigned(data: bytes) -> PresignedRequest:
    request = PresignedRequest.parse(text_of(data))
    require(request.region.sts_host in text_of(data), "for a host that is not the one asked")
    return request


def _caller(data: bytes) -> CallerIdentity:
    return read_answer(200, "application/json", data)


def _caller_refused(data: bytes) -> CallerIdentity:
    return read_answer(403, "application/json", data)


def _web_identity(data: bytes) -> WebIdentity:
    return WebIdentity.read(parse_web_identity_token(text_of(data)))


def _json_web_token(data: bytes) -> UnverifiedToken:
    return UnverifiedToken.parse(text_of(data))


def _key_set(data: bytes) -> list[str]:
    return sorted(parse_key_set(data))


def _identity_token(data: bytes) -> IdentityToken:
    return parse_token(text_of(data))


def _google_certificates(data: bytes) -> list[str]:
    return sorted(parse_certificates(data))


def _google_instance(data: bytes) -> Instance:
    return Instance.read(parse_object(data), "capi-workloads", "europe-west1-b", "worker-1")


def _shielded(data: bytes) -> ShieldedInstanceIdentity:
    return ShieldedInstanceIdentity.read(parse_object(data))


def _provider_id(data: bytes) -> GCEProviderID:
    read = GCEProviderID.parse(text_of(data))
    require(str(read) == text_of(data), "what is written is not what was read")
    return read


def _url(data: bytes) -> str:
    return check_url(text_of(data))


TARGETS: Final = (
    Target("aws-signed-data", _signed_data, (IdentityDocumentMalformed,)),
    Target("aws-signed-document", _signed_document, (IdentityDocumentRefused,)),
    Target("aws-document", _document, (IdentityDocumentMalformed,), Shape.JSON),
    Target("aws-presigned-request", _presigned, (MalformedEvidence,)),
    Target("aws-caller", _caller, (Ended, CloudUnavailable), Shape.JSON),
    Target("aws-caller-refused", _caller_refused, (Ended, CloudUnavailable), Shape.JSON),
    Target("aws-web-identity", _web_identity, (MalformedEvidence,)),
    Target("json-web-token", _json_web_token, (InvalidToken,)),
    Target("json-web-key-set", _key_set, (InvalidKeySet,), Shape.JSON),
    Target("gcp-token", _identity_token, (MalformedToken, UnsuitableAlgorithm)),
    Target("gcp-certificates", _google_certificates, (CertificatesUnreadable,), Shape.JSON),
    Target("gcp-instance", _google_instance, (InvalidObject,), Shape.JSON),
    Target("gcp-shielded-instance", _shielded, (InvalidObject,), Shape.JSON),
    Target("gce-provider-id", _provider_id, (InvalidGCEProviderID,)),
    Target("cloud-url", _url, (InvalidURL,)),
)
