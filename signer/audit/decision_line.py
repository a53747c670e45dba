"""One decision in the audit log: the request without bearer credentials, the decision inputs, and the result."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from attestors.contract import Auditable, digest_of
from attestors.registry import AttestorFailed, AttestorUnavailable, Registry, attestor_code
from attestors.wire import evidence as evidence_format
from attestors.wire import request as request_format
from attestors.wire.evidence import Evidence, MalformedEvidence
from attestors.wire.request import MalformedRequestBlocks, RequestBlocks
from signer.audit.decision_inputs import DecisionInputs
from signer.audit.errors import NotRedacted
from signer.audit.older_lines import with_present_fields
from signer.audit.values import MAY_BE_MISSING, InvalidValue, read, write
from signer.model.decision import Approve, ApproveOnly, Challenge, Decision, Defer, Deny, Fail, Ignore, LeftAlone
from signer.model.host_keys import (
    NO_HOST_KEYS,
    AttestedHostKeys,
    HostCertificates,
    HostCertificatesIssued,
    HostCertificatesRefused,
    NoHostKeys,
    NotAsked,
)
from signer.model.reasons import Reason
from signer.model.record import JournalEntry
from signer.model.signing_request import (
    MAXIMUM_REQUEST_TEXT,
    Malformed,
    MalformedBuiltinServingRequest,
    NotOurs,
    Parsed,
    SigningRequest,
)

WHOLE_REQUEST: Final = "request"
"""In ``redacted``: ``spec.request`` as a whole."""


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """The CSR as it was when decided."""

    name: str
    uid: str
    created: str
    conditions: tuple[str, ...]
    """Types of its conditions before the decision."""
    spec: Mapping[str, Any]
    spec_digest: str
    """Digest of the original ``spec``, even if a part of ``spec.request`` is redacted here."""
    redacted: tuple[str, ...]
    """Redacted fields of the evidence, or :data:`WHOLE_REQUEST`."""
    provider_id_oid: str
    """The OIDs that counted as provider-ID extensions, separated by commas."""

    def manifest(self) -> Mapping[str, Any]:
        """The CSR as an object that can be parsed."""
        return {
            "metadata": {"name": self.name, "uid": self.uid, "creationTimestamp": self.created},
            "spec": self.spec,
            "status": {"conditions": [{"type": kind} for kind in self.conditions]},
        }


@dataclass(frozen=True, slots=True)
class NoEntry:
    """The decision issued no certificate."""


@dataclass(frozen=True, slots=True)
class LoggedDecision:
    """The result of a decision."""

    kind: str
    """Name of the decision's class."""
    reason: str
    message: str
    instead_of: str = ""
    """For an ignored request: the kind of decision that the policy prevented."""
    node_name: str = ""
    entry: JournalEntry | NoEntry = NoEntry()
    certificate: str = ""
    """PEM."""
    host_keys: AttestedHostKeys | NoHostKeys = field(default=NO_HOST_KEYS, metadata=MAY_BE_MISSING)
    """What the record holds of the host certificates below."""
    host_certificates: tuple[str, ...] = field(default=(), metadata=MAY_BE_MISSING)
    """Certificate lines of sshd."""
    host_certificates_refused: str = field(default="", metadata=MAY_BE_MISSING)
    """Why the host keys in the request got none; empty if they did, or if there are none."""
    host_certificates_message: str = field(default="", metadata=MAY_BE_MISSING)

    @classmethod
    def of(cls, decision: Decision) -> LoggedDecision:
        """Record a decision.

        Raises:
            ValueError: it is :class:`Ignore`, which is not logged.
        """
        kind = type(decision).__name__
        match decision:
            case Approve():
                logged = cls(
                    kind,
                    str(decision.reason),
                    decision.message,
                    node_name=decision.node_name,
                    entry=decision.entry,
                    certificate=decision.certificate.decode("ascii"),
                )
                return _with_host_certificates(logged, decision.host_certificates)
            case ApproveOnly():
                return cls(kind, str(decision.reason), decision.message, node_name=decision.node_name)
            case Challenge():
                return cls(kind, str(Reason.CHALLENGE_ISSUED), "")
            case LeftAlone(would_be):
                return cls(kind, str(would_be.reason), would_be.message, instead_of=type(would_be).__name__)
            case Deny() | Fail() | Defer():
                return cls(kind, str(decision.reason), decision.message)
            case Ignore():
                raise ValueError("decision Ignore is not logged")


def _with_host_certificates(logged: LoggedDecision, answer: HostCertificates) -> LoggedDecision:
    match answer:
        case HostCertificatesIssued():
            return replace(logged, host_keys=answer.recorded, host_certificates=answer.certificates)
        case HostCertificatesRefused():
            return replace(
                logged, host_certificates_refused=answer.reason.value, host_certificates_message=answer.message
            )
        case NotAsked():
            return logged


@dataclass(frozen=True, slots=True)
class DecisionLine:
    """The content of one line."""

    cluster: str
    """``namespace/name`` of the Cluster."""
    time: datetime
    request: LoggedRequest
    decision_inputs: DecisionInputs
    decision: LoggedDecision

    def encode(self) -> bytes:
        """The line as a JSON object.

        Raises:
            TypeError, ValueError: it cannot be encoded as JSON.
        """
        return write(self)


def read_decision_line(content: Mapping[str, Any]) -> DecisionLine:
    """Read the fields of a line other than those of the chain.

    Raises:
        InvalidValue: they are not exactly those of a decision.
    """
    line = read(DecisionLine, with_present_fields(content), "decision")
    if not isinstance(line, DecisionLine):
        raise InvalidValue("decision is not a decision")
    return line


@dataclass(frozen=True, slots=True)
class _Redacted:
    spec: Mapping[str, Any]
    fields: tuple[str, ...] = field(default=())


def logged_request(
    manifest: Mapping[str, Any], parsed: Parsed, registry: Registry, provider_id_oids: tuple[str, ...]
) -> LoggedRequest:
    """The CSR for the log, without credentials that let a reader act as the node.

    Raises:
        ValueError: the request is not logged, because it is to another signer.
        NotRedacted: its attestor does not say which fields to redact.
    """
    if isinstance(parsed, NotOurs):
        raise ValueError("a request to another signer is not logged")
    header = parsed.header
    redacted = _redacted(manifest["spec"], parsed, registry)
    return LoggedRequest(
        name=header.name,
        uid=header.uid,
        created=header.created,
        conditions=tuple(sorted(condition.value for condition in header.conditions)),
        spec=redacted.spec,
        spec_digest=header.spec_digest,
        redacted=redacted.fields,
        provider_id_oid=",".join(provider_id_oids),
    )


def _redacted(spec: Mapping[str, Any], parsed: Parsed, registry: Registry) -> _Redacted:
    match parsed:
        case SigningRequest():
            fields = _redacted_fields(parsed.header.signer.provider, parsed.evidence, registry)
            if dict(fields) == dict(parsed.evidence.fields):
                return _Redacted(spec)  # unchanged: the same evidence encoded again may have another digest
            return _with_fields(spec, parsed, fields)
        case Malformed():
            # In a malformed request, the position of a credential is unknown.
            return _without_request(spec)
        case MalformedBuiltinServingRequest() if len(str(spec.get("request"))) > MAXIMUM_REQUEST_TEXT:
            return _without_request(spec)
        case _:
            return _Redacted(spec)


def _redacted_fields(provider: str, evidence: Evidence, registry: Registry) -> Mapping[str, str]:
    try:
        attestor: object = registry.load(provider)
    except AttestorUnavailable:
        attestor = None
    if isinstance(attestor, Auditable):
        return _redacted_by(attestor, provider, evidence)
    return {name: digest_of(value) for name, value in evidence.fields.items()}


def _redacted_by(attestor: Auditable, provider: str, evidence: Evidence) -> Mapping[str, str]:
    try:
        with attestor_code():
            fields: dict[Any, Any] = dict(attestor.redacted_fields(evidence))
    except AttestorFailed as failed:
        raise NotRedacted(f"redacted_fields() of attestor {provider} failed with {failed}") from failed.fault
    if not all(isinstance(text, str) for field in fields.items() for text in field):
        raise NotRedacted(f"redacted_fields() of attestor {provider} returned values that are not strings")
    return fields


def _with_fields(spec: Mapping[str, Any], request: SigningRequest, fields: Mapping[str, str]) -> _Redacted:
    original = request.evidence.fields
    changed = tuple(sorted(name for name in original if fields.get(name) != original[name]))
    evidence = Evidence(request.evidence.version, request.evidence.cluster, MappingProxyType(dict(fields)))
    try:
        blocks = request_format.decode(base64.b64decode(spec["request"]))
        content = request_format.encode(
            RequestBlocks(blocks.certificate_request, blocks.provider, evidence_format.encode(evidence))
        )
    except (MalformedRequestBlocks, MalformedEvidence):
        return _without_request(spec)  # the redacted request is too large
    return _Redacted({**spec, "request": base64.b64encode(content).decode("ascii")}, changed)


def _without_request(spec: Mapping[str, Any]) -> _Redacted:
    return _Redacted({**spec, "request": digest_of(str(spec.get("request")))}, (WHOLE_REQUEST,))
