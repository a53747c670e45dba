"""The fields of a CertificateSigningRequest other than its content. They are enough to write a decision.

Source of the fields: ``certificates.k8s.io/v1`` (``staging/src/k8s.io/api/certificates/v1/types.go``).
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from attestors.wire.names import (
    CERTIFICATE_CREDENTIAL_PREFIX,
    CREDENTIAL_ID_KEY,
    BuiltinSigner,
    ForeignSigner,
    SignerName,
    parse_signer_name,
)
from signer.model.fields import items_of, mapping_of, text_of

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
    )


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
