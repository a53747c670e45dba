"""A CertificateSigningRequest object becomes a typed, immutable ``SigningRequest``; or it is said why not.

Everything behind this edge takes these values; nothing else reads the object. Source of the fields:
``certificates.k8s.io/v1`` (``staging/src/k8s.io/api/certificates/v1/types.go``).
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from attestors.wire import evidence as evidence_format
from attestors.wire import request as request_format
from attestors.wire.evidence import Evidence, MalformedEvidence, UnsupportedVersion
from attestors.wire.names import MAXIMUM_REQUEST_BYTES, PROVIDER_ID_OID, ForeignSigner, SignerName, parse_signer_name
from attestors.wire.request import MalformedRequestBlocks
from signer.model.certificate_request import (
    CertificateRequest,
    MalformedCertificateRequest,
    parse_certificate_request,
)
from signer.model.reasons import Reason

MAXIMUM_REQUEST_TEXT: Final = (MAXIMUM_REQUEST_BYTES + 2) // 3 * 4
_MAXIMUM_GROUPS: Final = 256


class Condition(enum.Enum):
    """What has been said of a CSR."""

    APPROVED = "Approved"
    DENIED = "Denied"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class RequestEnvelope:
    """What is known of one of our CSRs before its content is read: enough to answer it."""

    name: str
    uid: str
    resource_version: str
    signer: SignerName
    username: str
    groups: frozenset[str]
    usages: tuple[str, ...]
    expiration_seconds: int | None
    created: str
    """``metadata.creationTimestamp`` as it stands; workload data, shown and never decided on."""
    conditions: frozenset[Condition]
    spec_digest: str
    """SHA-256 of the canonical JSON of ``spec``, hexadecimal: what the journal pins."""


@dataclass(frozen=True, slots=True)
class SigningRequest:
    """One of our CSRs, read completely; every part of it is still a claim."""

    envelope: RequestEnvelope
    certificate_request: CertificateRequest
    provider: str
    """The provider block."""
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class NotOurs:
    """Another signer's, or of a provider that is not installed here, or an object that no API server would send."""


@dataclass(frozen=True, slots=True)
class Settled:
    """Ours, and ended: it has its certificate, or was denied, or has failed."""

    envelope: RequestEnvelope


@dataclass(frozen=True, slots=True)
class Malformed:
    """Ours, and its content cannot be read: to be denied."""

    envelope: RequestEnvelope
    reason: Reason
    message: str


Parsed: TypeAlias = SigningRequest | NotOurs | Settled | Malformed


def parse_signing_request(
    manifest: Mapping[str, Any], providers: frozenset[str], provider_id_oid: str = PROVIDER_ID_OID
) -> Parsed:
    """Read a CSR object; ``providers`` are the installed attestors.

    Never raises for any content: what an API server can store comes out as one of the four types.
    """
    envelope, has_certificate = _envelope(manifest, providers)
    if envelope is None:
        return NotOurs()
    if has_certificate or envelope.conditions & {Condition.DENIED, Condition.FAILED}:
        return Settled(envelope)
    try:
        blocks = request_format.decode(_request_bytes(manifest["spec"].get("request")))
        certificate_request = parse_certificate_request(blocks.certificate_request, provider_id_oid)
    except (MalformedRequestBlocks, MalformedCertificateRequest) as error:
        return Malformed(envelope, Reason.MALFORMED_REQUEST, str(error))
    try:
        evidence = evidence_format.decode(blocks.evidence)
    except MalformedEvidence as error:
        return Malformed(envelope, Reason.MALFORMED_EVIDENCE, str(error))
    except UnsupportedVersion as error:
        return Malformed(envelope, Reason.UNSUPPORTED_VERSION, str(error))
    return SigningRequest(envelope, certificate_request, blocks.provider, evidence)


def spec_digest(spec: Mapping[str, Any]) -> str:
    """SHA-256 of ``spec`` in JSON with sorted keys, hexadecimal.

    Raises:
        TypeError, ValueError, RecursionError: JSON cannot hold it; nothing that came as JSON is like that.
    """
    return hashlib.sha256(msgspec.json.encode(spec, order="sorted")).hexdigest()


def _envelope(manifest: Mapping[str, Any], providers: frozenset[str]) -> tuple[RequestEnvelope | None, bool]:
    metadata, spec, status = (_mapping(manifest.get(key)) for key in ("metadata", "spec", "status"))
    signer = parse_signer_name(_string(spec.get("signerName")))
    if isinstance(signer, ForeignSigner) or signer.provider not in providers:
        return None, False
    name, uid = _string(metadata.get("name")), _string(metadata.get("uid"))
    if not name or not uid:
        return None, False
    conditions = status.get("conditions")
    types = {
        _string(condition.get("type"))
        for condition in (conditions if isinstance(conditions, list) else [])
        if isinstance(condition, Mapping)
    }
    try:
        digest = spec_digest(spec)
    except (TypeError, ValueError, RecursionError):
        return None, False
    envelope = RequestEnvelope(
        name=name,
        uid=uid,
        resource_version=_string(metadata.get("resourceVersion")),
        signer=signer,
        username=_string(spec.get("username")),
        groups=frozenset(_strings(spec.get("groups"))[:_MAXIMUM_GROUPS]),
        usages=_strings(spec.get("usages")),
        expiration_seconds=_integer(spec.get("expirationSeconds")),
        created=_string(metadata.get("creationTimestamp")),
        conditions=frozenset(condition for condition in Condition if condition.value in types),
        spec_digest=digest,
    )
    return envelope, bool(status.get("certificate"))


def _request_bytes(text: Any) -> bytes:
    if not isinstance(text, str) or not text:
        raise MalformedRequestBlocks("the request is empty")
    if len(text) > MAXIMUM_REQUEST_TEXT:
        raise MalformedRequestBlocks(f"the request is larger than {MAXIMUM_REQUEST_BYTES} bytes")
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise MalformedRequestBlocks("the request is not base64") from error


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
