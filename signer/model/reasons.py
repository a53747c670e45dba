"""Every reason the controller gives, once: the CamelCase word, and what it means to the person who reads it.

The same words stand in CSR conditions, Events, metrics, logs and documents.
"""

from __future__ import annotations

import enum


class Reason(enum.StrEnum):
    """Why a request was decided as it was. The value is what the API shows."""

    # Approve
    ATTESTED = "Attested"
    ASSERTED = "AssertedInsecurely"

    # Challenge
    CHALLENGE_ISSUED = "ChallengeIssued"

    # Deny: the request itself
    MALFORMED_REQUEST = "MalformedRequest"
    INVALID_PROVIDER_ID = "InvalidProviderID"
    INVALID_SUBJECT = "InvalidSubject"
    INVALID_SUBJECT_ALTERNATIVE_NAMES = "InvalidSubjectAlternativeNames"
    FORBIDDEN_EXTENSION = "ForbiddenExtension"
    INVALID_USAGES = "InvalidUsages"
    UNACCEPTABLE_KEY = "UnacceptableKey"
    INVALID_SIGNATURE = "InvalidSignature"
    UNSUPPORTED_VERSION = "UnsupportedVersion"
    PROVIDER_MISMATCH = "ProviderMismatch"

    # Deny: who asks, and by which attestor
    REQUESTER_NOT_ALLOWED = "RequesterNotAllowed"
    ATTESTOR_NOT_AUTHORIZED = "AttestorNotAuthorized"
    RENEWAL_NOT_SUPPORTED = "RenewalNotSupported"
    SERVING_NOT_SUPPORTED = "ServingNotSupported"

    # Deny: what the evidence proves
    MALFORMED_EVIDENCE = "MalformedEvidence"
    CLUSTER_MISMATCH = "ClusterMismatch"
    BINDING_MISMATCH = "BindingMismatch"
    PROVIDER_ID_MISMATCH = "ProviderIDMismatch"

    # Deny: whose identity it is
    NODE_NAME_MISMATCH = "NodeNameMismatch"
    IDENTITY_CONFLICT = "IdentityConflict"
    MACHINE_DELETING = "MachineDeleting"

    # Fail
    APPROVED_BY_OTHERS = "ApprovedByOthers"

    # Defer: not provable yet
    MACHINE_NOT_FOUND = "MachineNotFound"
    MACHINE_AMBIGUOUS = "MachineAmbiguous"
    MACHINE_ADDRESSES_UNKNOWN = "MachineAddressesUnknown"
    MACHINE_NOT_READY = "MachineNotReady"
    MACHINE_PAUSED = "MachinePaused"
    CLUSTER_PAUSED = "ClusterPaused"
    NODE_REF_DISAGREES = "NodeRefDisagrees"
    NODE_NAME_BLOCKED = "NodeNameBlocked"
    RESERVATION_PENDING = "ReservationPending"
    POLICY_INVALID = "PolicyInvalid"
    ATTESTOR_UNAVAILABLE = "AttestorUnavailable"
    CERTIFICATE_AUTHORITY_UNAVAILABLE = "CertificateAuthorityUnavailable"
    MANAGEMENT_CLUSTER_UNREACHABLE = "ManagementClusterUnreachable"
    WORKLOAD_CLUSTER_UNREACHABLE = "WorkloadClusterUnreachable"
    INTERNAL_ERROR = "InternalError"
