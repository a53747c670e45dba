"""Parses a CertificateSigningRequest object into a typed, immutable value.

The rest of the controller uses these values and never reads the object. While thousands of requests may be waiting, a
peek reads only the provider ID that a CSR claims. The result orders requests and decides nothing.

The header (:class:`CSRHeader`) has the fields other than the content. They are enough to write a decision. Source of
the fields: ``certificates.k8s.io/v1`` (``staging/src/k8s.io/api/certificates/v1/types.go``).
"""

from __future__ import annotations

import base64
import binascii
import enum
import functools
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from attestors.wire import evidence as evidence_format
from attestors.wire import pem, provider_id
from attestors.wire import request as request_format
from attestors.wire.evidence import Evidence, MalformedEvidence, UnsupportedVersion
from attestors.wire.names import (
    APPROVAL_SEAL_ANNOTATION,
    CERTIFICATE_CREDENTIAL_PREFIX,
    CERTIFICATE_REQUEST_LABEL,
    CREDENTIAL_ID_KEY,
    MAXIMUM_REQUEST_BYTES,
    PROVIDER_ID_OID,
    BuiltinSigner,
    ForeignSigner,
    SignerName,
    parse_signer_name,
)
from attestors.wire.provider_id import InvalidProviderID
from attestors.wire.request import MalformedRequestBlocks
from signer.model.certificate_request import (
    CertificateRequest,
    MalformedCertificateRequest,
    parse_certificate_request,
    peek_provider_id,
)
from signer.model.fields import items_of, mapping_of, text_of
from signer.model.reasons import Reason

_MAXIMUM_GROUPS: Final = 256
_CERTIFICATE_CREDENTIAL: Final = re.compile(f"{CERTIFICATE_CREDENTIAL_PREFIX}([0-9a-f]{{64}})")


class Condition(enum.Enum):
    """The conditions of a CSR."""

    APPROVED = "Approved"
    DENIED = "Denied"
    FAILED = "Failed"


_CONDITIONS: Final[Mapping[str, Condition]] = {condition.value: condition for condition in Condition}


@dataclass(frozen=True, slots=True)
class NoCredentialNamed:
    """The API server does not name the requester's credential: it is older than 1.32."""


@dataclass(frozen=True, slots=True)
class CertificateCredential:
    """The requester authenticated with this client certificate."""

    digest: str
    """SHA-256 of its DER, lower-case hexadecimal."""


@dataclass(frozen=True, slots=True)
class OtherCredential:
    """The requester used another credential than one certificate, or ``spec.extra`` has an unknown form."""


Credential: TypeAlias = NoCredentialNamed | CertificateCredential | OtherCredential


@dataclass(frozen=True, slots=True)
class CSRHeader:
    """The fields of a CSR other than its content."""

    name: str
    uid: str
    resource_version: str
    username: str
    groups: frozenset[str]
    usages: tuple[str, ...]
    expiration_seconds: int | None
    created: str
    """``metadata.creationTimestamp``, unparsed. It is workload data and can only make checks stricter."""
    conditions: frozenset[Condition]
    spec_digest: str
    """SHA-256 of the canonical JSON of ``spec``, hexadecimal. The journal pins it."""
    credential: Credential
    """The requester's credential, as far as the API server names it."""
    approval_seal: str
    """The annotation with the seal of the controller's approval, not verified; empty if there is none."""


_AnyCSRHeader = TypeVar("_AnyCSRHeader", bound=CSRHeader)


@dataclass(frozen=True, slots=True)
class AttestedCSRHeader(CSRHeader):
    """Header of a CSR to one of our signers."""

    signer: SignerName


@dataclass(frozen=True, slots=True)
class BuiltinCSRHeader(CSRHeader):
    """Header of a CSR to a signer of kube-controller-manager."""

    signer: BuiltinSigner


@dataclass(frozen=True, slots=True)
class NotOurs:
    """The CSR is to another signer or a provider that is not installed, or no API server would send the object."""


def signer_of(manifest: Mapping[str, Any], providers: frozenset[str]) -> SignerName | BuiltinSigner | ForeignSigner:
    """The CSR's signer. A signer of a provider that is not installed counts as foreign."""
    name = text_of(mapping_of(manifest, "spec"), "signerName")
    if name == BuiltinSigner.KUBELET_SERVING.value:
        return BuiltinSigner.KUBELET_SERVING
    signer = parse_signer_name(name)
    if isinstance(signer, SignerName) and signer.provider not in providers:
        return ForeignSigner(name)
    return signer


def read_csr_header(manifest: Mapping[str, Any], make: Callable[..., _AnyCSRHeader]) -> _AnyCSRHeader | NotOurs:
    """The header, made with ``make``; ``NotOurs`` for an object that no API server would send."""
    metadata, spec, status = (mapping_of(manifest, key) for key in ("metadata", "spec", "status"))
    name, uid = text_of(metadata, "name"), text_of(metadata, "uid")
    if not name or not uid:
        return NotOurs()
    types = {
        text_of(condition, "type") for condition in items_of(status, "conditions") if isinstance(condition, Mapping)
    }
    try:
        digest = spec_digest(spec)
    except (TypeError, ValueError, RecursionError):
        return NotOurs()
    return make(
        name=name,
        uid=uid,
        resource_version=text_of(metadata, "resourceVersion"),
        username=text_of(spec, "username"),
        groups=frozenset(_strings(spec.get("groups"))[:_MAXIMUM_GROUPS]),
        usages=_strings(spec.get("usages")),
        expiration_seconds=_integer(spec.get("expirationSeconds")),
        created=text_of(metadata, "creationTimestamp"),
        conditions=frozenset(_CONDITIONS[kind] for kind in types & _CONDITIONS.keys()),
        spec_digest=digest,
        credential=_credential(spec),
        approval_seal=approval_seal_of(metadata),
    )


def approval_seal_of(metadata: Mapping[str, Any]) -> str:
    """The seal on the approval of a CSR, as its writer claims; empty if there is none."""
    return text_of(mapping_of(metadata, "annotations"), APPROVAL_SEAL_ANNOTATION)


def spec_digest(spec: Mapping[str, Any]) -> str:
    """SHA-256 of ``spec`` in JSON with sorted keys, hexadecimal.

    Raises:
        TypeError, ValueError, RecursionError: it cannot be encoded as JSON; never for an object that came as JSON.
    """
    return hashlib.sha256(msgspec.json.encode(spec, order="sorted")).hexdigest()


def has_certificate(manifest: Mapping[str, Any]) -> bool:
    """Whether ``status.certificate`` is set."""
    return bool(mapping_of(manifest, "status").get("certificate"))


def _credential(spec: Mapping[str, Any]) -> Credential:
    extra = spec.get("extra")
    if extra is None:
        return NoCredentialNamed()
    if not isinstance(extra, Mapping):
        return OtherCredential()
    if CREDENTIAL_ID_KEY not in extra:
        return NoCredentialNamed()
    values = extra[CREDENTIAL_ID_KEY]
    if isinstance(values, list) and len(values) == 1 and isinstance(values[0], str):
        named = _CERTIFICATE_CREDENTIAL.fullmatch(values[0])
        if named is not None:
            return CertificateCredential(named[1])
    return OtherCredential()


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


MAXIMUM_REQUEST_TEXT: Final = (MAXIMUM_REQUEST_BYTES + 2) // 3 * 4
_KEPT_CONTENTS: Final = 64
_MAXIMUM_KEPT_TEXT: Final = 24 * 1024
"""Longer requests are not cached, so the cache takes at most 5 MiB."""


@dataclass(frozen=True, slots=True)
class SigningRequest:
    """A parsed CSR to one of our signers. Every part of it is still only a claim."""

    header: AttestedCSRHeader
    certificate_request: CertificateRequest
    provider: str
    """The provider block."""
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class BuiltinServingRequest:
    """A kubelet's own parsed request to ``kubernetes.io/kubelet-serving``. It carries no evidence."""

    header: BuiltinCSRHeader
    certificate_request: CertificateRequest


@dataclass(frozen=True, slots=True)
class Settled:
    """The CSR has a certificate, was denied or has failed. A built-in serving request is also settled once approved."""

    header: AttestedCSRHeader | BuiltinCSRHeader


@dataclass(frozen=True, slots=True)
class Malformed:
    """A CSR to one of our signers with malformed content. It is to be denied."""

    header: AttestedCSRHeader
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class MalformedBuiltinServingRequest:
    """A built-in serving request with malformed content. It is to be denied if the policy approves such requests."""

    header: BuiltinCSRHeader
    message: str


Parsed: TypeAlias = (
    SigningRequest | BuiltinServingRequest | NotOurs | Settled | Malformed | MalformedBuiltinServingRequest
)


def parse_signing_request(
    manifest: Mapping[str, Any], providers: frozenset[str], provider_id_oids: tuple[str, ...] = (PROVIDER_ID_OID,)
) -> Parsed:
    """Parse a CSR object. ``providers`` are the installed attestors.

    It never raises: every object that an API server can store gives one of these types.
    """
    signer = signer_of(manifest, providers)
    if isinstance(signer, ForeignSigner):
        return NotOurs()
    if isinstance(signer, BuiltinSigner):
        return _parse_builtin_serving(manifest, signer, provider_id_oids)
    header = read_csr_header(manifest, partial(AttestedCSRHeader, signer=signer))
    if isinstance(header, NotOurs):
        return header
    if has_certificate(manifest) or header.conditions & {Condition.DENIED, Condition.FAILED}:
        return Settled(header)
    content = _content_of(manifest["spec"].get("request"), provider_id_oids)
    if isinstance(content, _Unreadable):
        return Malformed(header, content.reason, content.message)
    return SigningRequest(header, content.certificate_request, content.provider, content.evidence)


NO_CLAIM: Final = ""
"""For a CSR to another signer, or one without a readable claim. Its turn decides whether it is denied or ignored."""


def peek_claimed_provider_id(
    manifest: Mapping[str, Any], providers: frozenset[str], provider_id_oids: tuple[str, ...] = (PROVIDER_ID_OID,)
) -> str:
    """The provider ID that a CSR to one of our signers claims, or :data:`NO_CLAIM`. No other part is read.

    For every request that :func:`parse_signing_request` can read, both give the same provider ID. The result orders
    requests and decides nothing.
    """
    if not isinstance(signer_of(manifest, providers), SignerName):
        return NO_CLAIM
    try:
        block = pem.first(request_bytes(manifest["spec"].get("request")), maximum_bytes=MAXIMUM_REQUEST_BYTES)
        value = peek_provider_id(block.content, provider_id_oids)
        return provider_id.decode(value) if value else NO_CLAIM
    except (MalformedRequestBlocks, pem.MalformedPEM, MalformedCertificateRequest, InvalidProviderID):
        return NO_CLAIM


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of ``spec.request``."""

    certificate_request: CertificateRequest
    provider: str
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """Why ``spec.request`` cannot be read."""

    reason: Reason
    message: str


def _content_of(text: Any, provider_id_oids: tuple[str, ...]) -> _Content | _Unreadable:
    if isinstance(text, str) and len(text) <= _MAXIMUM_KEPT_TEXT:
        return _kept_content(text, provider_id_oids)
    return _read_content(text, provider_id_oids)


def _read_content(text: Any, provider_id_oids: tuple[str, ...]) -> _Content | _Unreadable:
    try:
        blocks = request_format.decode(request_bytes(text))
        certificate_request = parse_certificate_request(blocks.certificate_request, provider_id_oids)
    except (MalformedRequestBlocks, MalformedCertificateRequest) as error:
        return _Unreadable(Reason.MALFORMED_REQUEST, str(error))
    try:
        evidence = evidence_format.decode(blocks.evidence)
    except MalformedEvidence as error:
        return _Unreadable(Reason.MALFORMED_EVIDENCE, str(error))
    except UnsupportedVersion as error:
        return _Unreadable(Reason.UNSUPPORTED_VERSION, str(error))
    return _Content(certificate_request, blocks.provider, evidence)


# A request is parsed for the pre-filter, for the decision, and when the watch returns its approval: 0.25 ms each time.
# Values are immutable, so equal texts can share one.
_kept_content = functools.lru_cache(maxsize=_KEPT_CONTENTS)(_read_content)


def _parse_builtin_serving(
    manifest: Mapping[str, Any], signer: BuiltinSigner, provider_id_oids: tuple[str, ...]
) -> BuiltinServingRequest | NotOurs | Settled | MalformedBuiltinServingRequest:
    """Parse a single ``CERTIFICATE REQUEST`` block, as kubelets write it (``util/certificate/csr/csr.go``)."""
    header = read_csr_header(manifest, partial(BuiltinCSRHeader, signer=signer))
    if isinstance(header, NotOurs):
        return header
    if has_certificate(manifest) or header.conditions:
        return Settled(header)
    try:
        data = request_bytes(manifest["spec"].get("request"))
        (block,) = pem.split(data, maximum_bytes=MAXIMUM_REQUEST_BYTES, maximum_blocks=1)
        if block.label != CERTIFICATE_REQUEST_LABEL:
            raise MalformedRequestBlocks(f"the block is not {CERTIFICATE_REQUEST_LABEL}")
        certificate_request = parse_certificate_request(block.content, provider_id_oids)
    except (MalformedRequestBlocks, pem.MalformedPEM, MalformedCertificateRequest) as error:
        return MalformedBuiltinServingRequest(header, str(error))
    return BuiltinServingRequest(header, certificate_request)


def request_bytes(text: Any) -> bytes:
    """``spec.request``, decoded from base64.

    Raises:
        MalformedRequestBlocks: it is empty, not base64, or too large.
    """
    if not isinstance(text, str) or not text:
        raise MalformedRequestBlocks("the request is empty")
    if len(text) > MAXIMUM_REQUEST_TEXT:
        raise MalformedRequestBlocks(f"the request is larger than {MAXIMUM_REQUEST_BYTES} bytes")
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise MalformedRequestBlocks("the request is not base64") from error
