"""What ``docs/troubleshooting.md`` says beside the program's own cause and remedy of a reason.

That is the result for the request, where to look first, and whether the node tries again by itself. The last is read
from the node's program. ``test_reasons`` compares the results with the code.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from attestors.wire.names import CHALLENGE_ANNOTATION, SUPPORTED_VERSIONS_ANNOTATION
from authenticator.model.answer import Challenged, Issued, Outdated, Refused, Undecided, VersionUnsupported, read_answer
from signer.model.reasons import Reason


class Result(enum.StrEnum):
    """The result for the request."""

    APPROVED = "approved"
    CHALLENGED = "challenged"
    DENIED = "denied"
    FAILED = "failed"
    WAITS = "waits"
    DENIED_OR_WAITS = "denied, or waits"


class Whose(enum.StrEnum):
    """Where to look first."""

    NOBODY = ""
    NODE = "the node"
    REQUESTER = "the requester"
    TENANT = "the policy"
    OPERATOR = "the controller"
    PLATFORM = "the platform"


_RETRIES: Final[Mapping[type, str]] = {
    Issued: "Not needed.",
    Challenged: "The node answers at once.",
    VersionUnsupported: "The node files again at once, in a version that both sides read; if there is none, it asks "
    "again after a [pause](#retries).",
    Outdated: "The node asks again at once, with a new key and new evidence.",
    Refused: "The node asks again after a [pause](#retries).",
    Undecided: "The controller decides the same request [again](#retries).",
}
_CONDITIONS: Final[Mapping[str, str]] = {
    Result.APPROVED: "Approved",
    Result.CHALLENGED: "Denied",
    Result.DENIED: "Denied",
    Result.FAILED: "Failed",
}


def retry(reason: str, result: str) -> str:
    """Whether somebody tries again without a person, as ``kubelet-authenticator`` reads that result."""
    if result == Result.DENIED_OR_WAITS:
        return f"If it was denied: {retry(reason, Result.DENIED)} If it waits: {retry(reason, Result.WAITS)}"
    return _RETRIES[type(read_answer(_shown(reason, result)))]


def _shown(reason: str, result: str) -> dict[str, Any]:
    """What the API server shows of a request with that result."""
    if result not in _CONDITIONS:
        return {}
    return {
        "metadata": {"annotations": {CHALLENGE_ANNOTATION: "{}", SUPPORTED_VERSIONS_ANNOTATION: "v1"}},
        "status": {"conditions": [{"type": _CONDITIONS[result], "reason": reason}], "certificate": "AAAA"},
    }


class Place(NamedTuple):
    """One reason's place."""

    result: Result
    whose: Whose


_A, _C, _D, _F, _W = Result.APPROVED, Result.CHALLENGED, Result.DENIED, Result.FAILED, Result.WAITS

PLACES: Final[Mapping[Reason, Place]] = {
    Reason.ATTESTED: Place(_A, Whose.NOBODY),
    Reason.ASSERTED: Place(_A, Whose.OPERATOR),
    Reason.CHALLENGE_ISSUED: Place(_C, Whose.NOBODY),
    Reason.MALFORMED_REQUEST: Place(_D, Whose.NODE),
    Reason.INVALID_PROVIDER_ID: Place(_D, Whose.NODE),
    Reason.INVALID_SUBJECT: Place(_D, Whose.NODE),
    Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES: Place(_D, Whose.NODE),
    Reason.FORBIDDEN_EXTENSION: Place(_D, Whose.REQUESTER),
    Reason.INVALID_USAGES: Place(_D, Whose.NODE),
    Reason.UNACCEPTABLE_KEY: Place(_D, Whose.NODE),
    Reason.INVALID_SIGNATURE: Place(_D, Whose.NODE),
    Reason.UNSUPPORTED_VERSION: Place(_D, Whose.OPERATOR),
    Reason.PROVIDER_MISMATCH: Place(_D, Whose.NODE),
    Reason.SUPERSEDED: Place(_D, Whose.NOBODY),
    Reason.REQUESTER_NOT_ALLOWED: Place(_D, Whose.REQUESTER),
    Reason.ATTESTOR_NOT_AUTHORIZED: Place(_D, Whose.TENANT),
    Reason.RENEWAL_NOT_SUPPORTED: Place(_D, Whose.NODE),
    Reason.SERVING_NOT_SUPPORTED: Place(_D, Whose.NODE),
    Reason.FOREIGN_CREDENTIAL: Place(_D, Whose.REQUESTER),
    Reason.MALFORMED_EVIDENCE: Place(_D, Whose.NODE),
    Reason.CLUSTER_MISMATCH: Place(_D, Whose.NODE),
    Reason.BINDING_MISMATCH: Place(_D, Whose.REQUESTER),
    Reason.PROVIDER_ID_MISMATCH: Place(_D, Whose.NODE),
    Reason.NODE_NAME_MISMATCH: Place(Result.DENIED_OR_WAITS, Whose.NODE),
    Reason.IDENTITY_CONFLICT: Place(Result.DENIED_OR_WAITS, Whose.REQUESTER),
    Reason.MACHINE_DELETING: Place(_D, Whose.NOBODY),
    Reason.CLUSTER_DELETING: Place(_D, Whose.NOBODY),
    Reason.BOOTSTRAP_TOKEN_MISMATCH: Place(_D, Whose.REQUESTER),
    Reason.APPROVED_BY_OTHERS: Place(_F, Whose.TENANT),
    Reason.MACHINE_NOT_FOUND: Place(_W, Whose.PLATFORM),
    Reason.PROVIDER_ID_DISAGREES: Place(_W, Whose.PLATFORM),
    Reason.PROVIDER_ID_TAKEN: Place(_W, Whose.PLATFORM),
    Reason.MACHINE_AMBIGUOUS: Place(_W, Whose.PLATFORM),
    Reason.MACHINE_ADDRESSES_UNKNOWN: Place(_W, Whose.PLATFORM),
    Reason.SERVICE_NETWORKS_UNKNOWN: Place(_W, Whose.TENANT),
    Reason.CONTROL_PLANE_NAMES_UNKNOWN: Place(_W, Whose.TENANT),
    Reason.MACHINE_NOT_READY: Place(_W, Whose.PLATFORM),
    Reason.MACHINE_PAUSED: Place(_W, Whose.TENANT),
    Reason.CLUSTER_PAUSED: Place(_W, Whose.TENANT),
    Reason.NODE_REF_DISAGREES: Place(_W, Whose.REQUESTER),
    Reason.NODE_NAME_BLOCKED: Place(_W, Whose.TENANT),
    Reason.NODE_NOT_ATTESTED: Place(_W, Whose.NODE),
    Reason.BOOTSTRAP_TOKEN_UNTRACEABLE: Place(_W, Whose.TENANT),
    Reason.RESERVATION_PENDING: Place(_W, Whose.NOBODY),
    Reason.POLICY_INVALID: Place(_W, Whose.TENANT),
    Reason.ATTESTOR_UNAVAILABLE: Place(_W, Whose.OPERATOR),
    Reason.CERTIFICATE_AUTHORITY_UNAVAILABLE: Place(_W, Whose.OPERATOR),
    Reason.CERTIFICATE_AUTHORITY_CHANGING: Place(_W, Whose.OPERATOR),
    Reason.CERTIFICATE_AUTHORITY_SHARED: Place(_W, Whose.OPERATOR),
    Reason.CERTIFICATE_AUTHORITY_NOT_TRUSTED: Place(_W, Whose.OPERATOR),
    Reason.CERTIFICATE_AUTHORITY_NOT_PROVEN: Place(_W, Whose.OPERATOR),
    Reason.CONTROLLER_KEY_UNAVAILABLE: Place(_W, Whose.OPERATOR),
    Reason.CLOCKS_DIFFER: Place(_W, Whose.OPERATOR),
    Reason.MANAGEMENT_CLUSTER_UNREACHABLE: Place(_W, Whose.OPERATOR),
    Reason.NAMESPACE_OVER_LIMIT: Place(_W, Whose.OPERATOR),
    Reason.WORKLOAD_CLUSTER_UNREACHABLE: Place(_W, Whose.OPERATOR),
    Reason.WORKLOAD_GRANT_MISSING: Place(_W, Whose.OPERATOR),
    Reason.AUDIT_LOG_UNAVAILABLE: Place(_W, Whose.OPERATOR),
    Reason.INTERNAL_ERROR: Place(_W, Whose.OPERATOR),
}
"""Every reason once, in the order of :class:`~signer.model.reasons.Reason`."""
