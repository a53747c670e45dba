"""What stands beside each reason in ``docs/troubleshooting.md``: what becomes of the request, and whose matter it is.

Cause and cure are the program's (``signer/model/reasons.py``). ``test_reasons`` compares the results with the code.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from signer.model.reasons import Reason


class Result(enum.StrEnum):
    """What becomes of the request."""

    APPROVED = "approved"
    CHALLENGED = "challenged"
    DENIED = "denied"
    FAILED = "failed"
    WAITS = "waits"
    DENIED_OR_WAITS = "denied, or waits"


class Whose(enum.StrEnum):
    """Who has to look at it first."""

    NOBODY = "nobody"
    NODE = "the node"
    REQUESTER = "who asks"
    TENANT = "the policy"
    OPERATOR = "the operator"
    PLATFORM = "the platform"


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
    Reason.MACHINE_AMBIGUOUS: Place(_W, Whose.PLATFORM),
    Reason.MACHINE_ADDRESSES_UNKNOWN: Place(_W, Whose.PLATFORM),
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
    Reason.CONTROLLER_KEY_UNAVAILABLE: Place(_W, Whose.OPERATOR),
    Reason.MANAGEMENT_CLUSTER_UNREACHABLE: Place(_W, Whose.OPERATOR),
    Reason.WORKLOAD_CLUSTER_UNREACHABLE: Place(_W, Whose.OPERATOR),
    Reason.AUDIT_LOG_UNAVAILABLE: Place(_W, Whose.OPERATOR),
    Reason.INTERNAL_ERROR: Place(_W, Whose.OPERATOR),
}
"""Every reason once, in the order of :class:`~signer.model.reasons.Reason`."""
