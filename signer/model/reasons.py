"""Every reason the controller gives, once: the CamelCase word, and what it means to the person who reads it.

The same words stand in CSR conditions, Events, metrics, logs and documents.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from attestors.contract import ReasonExplanation


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
    SUPERSEDED = "Superseded"

    # Deny: who asks, and by which attestor
    REQUESTER_NOT_ALLOWED = "RequesterNotAllowed"
    ATTESTOR_NOT_AUTHORIZED = "AttestorNotAuthorized"
    RENEWAL_NOT_SUPPORTED = "RenewalNotSupported"
    SERVING_NOT_SUPPORTED = "ServingNotSupported"
    FOREIGN_CREDENTIAL = "ForeignCredential"

    # Deny: what the evidence proves
    MALFORMED_EVIDENCE = "MalformedEvidence"
    CLUSTER_MISMATCH = "ClusterMismatch"
    BINDING_MISMATCH = "BindingMismatch"
    PROVIDER_ID_MISMATCH = "ProviderIDMismatch"

    # Deny: whose identity it is
    NODE_NAME_MISMATCH = "NodeNameMismatch"
    IDENTITY_CONFLICT = "IdentityConflict"
    MACHINE_DELETING = "MachineDeleting"
    CLUSTER_DELETING = "ClusterDeleting"
    BOOTSTRAP_TOKEN_MISMATCH = "BootstrapTokenMismatch"  # noqa: S105 - a reason, no secret

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
    NODE_NOT_ATTESTED = "NodeNotAttested"
    BOOTSTRAP_TOKEN_UNTRACEABLE = "BootstrapTokenUntraceable"  # noqa: S105 - a reason, no secret
    RESERVATION_PENDING = "ReservationPending"
    POLICY_INVALID = "PolicyInvalid"
    ATTESTOR_UNAVAILABLE = "AttestorUnavailable"
    CERTIFICATE_AUTHORITY_UNAVAILABLE = "CertificateAuthorityUnavailable"
    CERTIFICATE_AUTHORITY_CHANGING = "CertificateAuthorityChanging"
    CONTROLLER_KEY_UNAVAILABLE = "ControllerKeyUnavailable"
    MANAGEMENT_CLUSTER_UNREACHABLE = "ManagementClusterUnreachable"
    WORKLOAD_CLUSTER_UNREACHABLE = "WorkloadClusterUnreachable"
    AUDIT_LOG_UNAVAILABLE = "AuditLogUnavailable"
    INTERNAL_ERROR = "InternalError"


EXPLANATIONS: Final[Mapping[Reason, ReasonExplanation]] = MappingProxyType(
    {
        Reason.ATTESTED: ReasonExplanation(
            "The evidence proves the Machine, and the Machine's node name is the one asked for.", "Nothing to do."
        ),
        Reason.ASSERTED: ReasonExplanation(
            "The insecure attestor believed the node: nothing was proven.",
            "Use a secure attestor where there is one; see "
            "[the insecure attestor](operating.md#the-insecure-attestor).",
        ),
        Reason.CHALLENGE_ISSUED: ReasonExplanation(
            "The evidence is good so far, and the attestor wants proof that it is live.",
            "Nothing to do: the node answers the challenge with a second request for the same key.",
        ),
        Reason.MALFORMED_REQUEST: ReasonExplanation(
            "`spec.request` is not the three PEM blocks in their strict form, its PKCS#10 is not DER, or "
            "`expirationSeconds` is below 600.",
            "The message names the line or part. Upgrade or mend the program that made the request.",
        ),
        Reason.INVALID_PROVIDER_ID: ReasonExplanation(
            "The provider-ID extension is missing, is no UTF8String, is longer than 512 characters, or is not "
            "`<provider>://<identifier>`.",
            "Set the provider ID on the node as it stands in `Machine.spec.providerID`; under an OID of your own where "
            "the controller has `--provider-id-oids`.",
        ),
        Reason.INVALID_SUBJECT: ReasonExplanation(
            "The subject is not exactly `O=system:nodes` and `CN=system:node:<name>`, or the name is no node name.",
            "Mend the program that made the request.",
        ),
        Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES: ReasonExplanation(
            "A client request has alternative names; or a serving request has none, one that is neither DNS name nor "
            "IP address, or one that is not the Machine's.",
            "The message names the alternative name. Compare it with the Machine's `status.addresses`; names of the "
            "control plane, of services and of other Machines are never signed.",
        ),
        Reason.FORBIDDEN_EXTENSION: ReasonExplanation(
            "The request asks to become a certificate authority, has an unknown critical extension, or has PKCS#10 "
            "attributes beside the extension request.",
            "Mend the program that made the request. No kubelet asks for this: find out who does.",
        ),
        Reason.INVALID_USAGES: ReasonExplanation(
            "`spec.usages` is not digital signature and client auth (serving: server auth), with or without key "
            "encipherment.",
            "Mend the program that made the request.",
        ),
        Reason.UNACCEPTABLE_KEY: ReasonExplanation(
            "The key is neither RSA of 2048 to 8192 bits nor ECDSA on P-256, P-384 or P-521, or is encoded unusually.",
            "Make another key on the node.",
        ),
        Reason.INVALID_SIGNATURE: ReasonExplanation(
            "The request is not signed with its own key, or not with SHA-256, SHA-384 or SHA-512.",
            "Mend the program that made the request.",
        ),
        Reason.UNSUPPORTED_VERSION: ReasonExplanation(
            "The attestor does not read this version of evidence.",
            "Upgrade the controller, or let the node write a version of the annotation "
            "`attestation.cluster.x-k8s.io/supported-evidence-versions`.",
        ),
        Reason.PROVIDER_MISMATCH: ReasonExplanation(
            "The provider block and the signer name disagree.", "Mend the program that made the request."
        ),
        Reason.SUPERSEDED: ReasonExplanation(
            "A newer request of the same identity to the same signer was approved already.",
            "Nothing to do: the node no longer waits for this one. Where it does, its clock or the API server's was "
            "set back.",
        ),
        Reason.REQUESTER_NOT_ALLOWED: ReasonExplanation(
            "The requester is neither a bootstrap token of `system:bootstrappers` nor the node itself; serving "
            "certificates are for the node itself only.",
            "Request with a bootstrap token, or with the node's own certificate. Nobody can ask for somebody else.",
        ),
        Reason.ATTESTOR_NOT_AUTHORIZED: ReasonExplanation(
            "The cluster's policy does not name the attestor, or the controller's configuration does not allow it in "
            "this namespace; for the insecure attestor, a flag is missing.",
            "The message says which of them. Name the attestor in the policy, or allow it in the controller's "
            "configuration.",
        ),
        Reason.RENEWAL_NOT_SUPPORTED: ReasonExplanation(
            "A node asks for renewal through an attestor that does not renew, such as the insecure one.",
            "Let the node join again with a new bootstrap token.",
        ),
        Reason.SERVING_NOT_SUPPORTED: ReasonExplanation(
            "The attestor signs no serving certificates.", "Let the kubelet use the built-in serving signer."
        ),
        Reason.FOREIGN_CREDENTIAL: ReasonExplanation(
            "A node asks for a serving certificate with a client certificate that this controller did not issue to it.",
            "Let the node get its client certificate by attestation first; then it asks again by itself.",
        ),
        Reason.MALFORMED_EVIDENCE: ReasonExplanation(
            "The evidence block is not the JSON envelope, or its fields are not what the attestor expects.",
            "The message names the field. Upgrade or mend the attestor on the node.",
        ),
        Reason.CLUSTER_MISMATCH: ReasonExplanation(
            "The CA that the node believes in is not one of the cluster's.",
            "Compare the first CA in the node's kubeconfig with Secret `<cluster>-ca`. A node that was sent to the "
            "wrong API server shows here too.",
        ),
        Reason.BINDING_MISMATCH: ReasonExplanation(
            "The evidence was made for another key, cluster or signer, or with a key that is not this machine's.",
            "On an honest node: check the attestor's settings there and in the controller's configuration. Else it is "
            "copied evidence: find out who asks.",
        ),
        Reason.PROVIDER_ID_MISMATCH: ReasonExplanation(
            "The evidence proves another provider ID than the request claims.",
            "Correct the provider ID that is configured on the node.",
        ),
        Reason.NODE_NAME_MISMATCH: ReasonExplanation(
            "The machine is proven, but asks for a node name that is not its Machine's. A node that was attested under "
            "that name waits: its Machine's addresses, or the policy, have changed since.",
            "The message names both. Correct the kubelet's host name, the Machine's addresses, or the policy's "
            "`nodeNameSource`.",
        ),
        Reason.IDENTITY_CONFLICT: ReasonExplanation(
            "The identity belongs to another Machine, the Machine to another identity, or the node name to another "
            "Machine.",
            "Delete the Machine that no longer uses the hardware. Where a Machine keeps its name and provider ID but "
            "has new hardware, delete its AttestedNode and its two IdentityReservations; see "
            "[reservations](recovering.md#reservations). Where the Machine that has the node name has another one "
            "by now, and renews under that, delete its AttestedNode of the old one.",
        ),
        Reason.MACHINE_DELETING: ReasonExplanation(
            "The Machine is being deleted.", "Nothing to do: its node gets no further certificate."
        ),
        Reason.CLUSTER_DELETING: ReasonExplanation(
            "The Cluster is being deleted.", "Nothing to do: its nodes get no further certificates."
        ),
        Reason.BOOTSTRAP_TOKEN_MISMATCH: ReasonExplanation(
            "The bootstrap token was made for another Machine or MachinePool than the one that the evidence proves.",
            "Find out how this machine came by the other one's bootstrap data; treat that token as stolen.",
        ),
        Reason.APPROVED_BY_OTHERS: ReasonExplanation(
            "Somebody else approved a request to one of our signers, and the policy's `approvalByOthers` refuses that, "
            "or the request would have been denied.",
            "Find out who approves. Let the node file again; the controller approves by itself.",
        ),
        Reason.MACHINE_NOT_FOUND: ReasonExplanation(
            "No Machine of this Cluster has the provider ID yet.",
            "Wait for the infrastructure provider to set `Machine.spec.providerID`, or compare it with the node's.",
        ),
        Reason.MACHINE_AMBIGUOUS: ReasonExplanation(
            "Several Machines of this Cluster have the same provider ID, or share a name or address that a serving "
            "certificate is asked for.",
            "Delete or correct the wrong one; the message names them.",
        ),
        Reason.MACHINE_ADDRESSES_UNKNOWN: ReasonExplanation(
            "The Machine does not show yet what its node is called, or no address of the kind that a serving "
            "certificate is asked for.",
            "Wait for `status.addresses` or `spec.infrastructureRef`, or choose another `nodeNameSource`.",
        ),
        Reason.MACHINE_NOT_READY: ReasonExplanation(
            "The Machine has no bootstrap data yet.",
            "Wait for its condition BootstrapConfigReady (BootstrapReady in v1beta1).",
        ),
        Reason.MACHINE_PAUSED: ReasonExplanation(
            "The Machine is paused.", "Remove annotation `cluster.x-k8s.io/paused`."
        ),
        Reason.CLUSTER_PAUSED: ReasonExplanation(
            "The Cluster is paused, as during `clusterctl move`.",
            "Unpause it. During a move, the controller of the other management cluster goes on.",
        ),
        Reason.NODE_REF_DISAGREES: ReasonExplanation(
            "The Machine's `status.nodeRef` names another node than the one asked for.",
            "Look at both nodes: a kubelet may have registered under a false provider ID. Delete the wrong Node.",
        ),
        Reason.NODE_NAME_BLOCKED: ReasonExplanation(
            "Another identity holds the node name: its certificates are still valid, its Machine is still being "
            "deleted, or an AttestedNode of another node has the same object name. Or this Machine is recorded as "
            "another node, or another Machine is called so as well.",
            "Wait until the time in the message, or set the policy's `nodeNameReuse: Immediate`. Where the message "
            "names another Machine: correct the name or address of the one that is not that node.",
        ),
        Reason.NODE_NOT_ATTESTED: ReasonExplanation(
            "The node asks for a serving certificate, and has no valid attestation: no AttestedNode of a secure "
            "attestor that is allowed, a Machine that was deleted or made anew since, no reservation, or its "
            "certificates have run out. Before Kubernetes 1.32 also: the request is from before the node was attested, "
            "or a former node of the name could have posted it.",
            "The message says which. Let the node get its client certificate by attestation; the waiting request is "
            "then approved, or, before Kubernetes 1.32, the one that the kubelet posts after 15 minutes.",
        ),
        Reason.BOOTSTRAP_TOKEN_UNTRACEABLE: ReasonExplanation(
            "No KubeadmConfig of the Cluster holds the bootstrap token, or tokens are not traced, and the policy's "
            "`bootstrapTokens.untraceable` refuses that.",
            "Join with the token that Cluster API made for the Machine; where the message says that tokens are not "
            "traced, see condition [BootstrapTokensTraceable](operating.md#bootstrap-tokens). Or set "
            "`bootstrapTokens.untraceable: Allow`.",
        ),
        Reason.RESERVATION_PENDING: ReasonExplanation(
            "Several requests contend for the same record or reservation, what the request is judged by has just "
            "changed, the node asks too often, its kubelet has posted a newer serving request, or a reservation cannot "
            "be read.",
            "The first two end by themselves, and a request that a kubelet has given up needs nothing. Of a node that "
            "asks too often, find out what has it ask again. Where the message names an object that cannot be read: "
            "look at it, then delete it.",
        ),
        Reason.POLICY_INVALID: ReasonExplanation(
            "The NodeAttestationPolicy cannot be followed, or there is none, or no Cluster, of that name.",
            "Correct the field that the message names. Where there is no policy, write one of the Cluster's name, in "
            "the Cluster's namespace.",
        ),
        Reason.ATTESTOR_UNAVAILABLE: ReasonExplanation(
            "The attestor cannot be loaded, its settings are wrong, or it did not answer within 30 seconds.",
            "The message says which extra to install or which setting to correct. Where it did not answer, see to what "
            "it asks, such as a cloud.",
        ),
        Reason.CERTIFICATE_AUTHORITY_UNAVAILABLE: ReasonExplanation(
            "Secret `<cluster>-ca` is missing, cannot be read, has no key, or its CA has run out or just changed.",
            "The message and the policy's condition CertificateAuthorityAvailable say which.",
        ),
        Reason.CERTIFICATE_AUTHORITY_CHANGING: ReasonExplanation(
            "The node names a CA that Secret `<cluster>-ca` lists beside the CA that signs, and that this CA does not "
            "chain to: a CA that is coming in or going out.",
            "Finish the change of CA: the request waits until the Secret's first certificate is the CA that the node "
            "names, or chains to it. Or give the node a kubeconfig whose first CA is the one that signs.",
        ),
        Reason.CONTROLLER_KEY_UNAVAILABLE: ReasonExplanation(
            "Secret `node-attestation-controller-key` cannot be read or is malformed, or a record was sealed with a "
            "key that is not read yet: our records cannot be told from forgeries.",
            "Nothing to do where it ends within seconds. Else mend the Secret, or restore it from its copy; see "
            "[the controller key](recovering.md#the-controller-key).",
        ),
        Reason.MANAGEMENT_CLUSTER_UNREACHABLE: ReasonExplanation(
            "A call to the management cluster failed, or what decisions rest upon could not be watched for a minute; "
            "403 in the message means that a grant is missing; 422, that the CustomResourceDefinitions are of another "
            "version.",
            "Check the management API server, or the controller's [grants](operating.md#grants), or apply the "
            "[definitions of this version](upgrading.md#how).",
        ),
        Reason.WORKLOAD_CLUSTER_UNREACHABLE: ReasonExplanation(
            "The decision could not be written to the workload cluster; 403 in the message means that a grant is "
            "missing.",
            "Check the workload API server and Secret `<cluster>-kubeconfig`, or the [grants](operating.md#grants).",
        ),
        Reason.AUDIT_LOG_UNAVAILABLE: ReasonExplanation(
            "The request may be approved, and the line that says why cannot be written to the audit log.",
            "Make room on the disk of `--audit-log-path`, or mend what the controller's log names; the request is "
            "tried again every few seconds.",
        ),
        Reason.INTERNAL_ERROR: ReasonExplanation(
            "A fault of the controller or of an attestor. Nothing is approved and nothing denied by it.",
            "Read the controller's log at that time and report it; where the message names an attestor, to its author.",
        ),
    }
)
"""Every reason explained; the table in ``docs/troubleshooting.md`` is made from it."""
