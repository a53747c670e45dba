"""Every reason that the controller gives, with its cause and remedy.

CSR conditions, Events, metrics, logs and documents use the same words.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from attestors.contract import ReasonExplanation


class Reason(enum.StrEnum):
    """The reason of a decision. The API shows the value."""

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

    # Deny, because of the requester or the attestor
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

    # Deny, because of the identity or its Machine
    NODE_NAME_MISMATCH = "NodeNameMismatch"
    IDENTITY_CONFLICT = "IdentityConflict"
    MACHINE_DELETING = "MachineDeleting"
    CLUSTER_DELETING = "ClusterDeleting"
    BOOTSTRAP_TOKEN_MISMATCH = "BootstrapTokenMismatch"  # noqa: S105 - a reason, no secret

    # Fail
    APPROVED_BY_OTHERS = "ApprovedByOthers"

    # Defer: not provable yet
    MACHINE_NOT_FOUND = "MachineNotFound"
    PROVIDER_ID_DISAGREES = "ProviderIDDisagrees"
    PROVIDER_ID_TAKEN = "ProviderIDTaken"
    MACHINE_AMBIGUOUS = "MachineAmbiguous"
    MACHINE_ADDRESSES_UNKNOWN = "MachineAddressesUnknown"
    SERVICE_NETWORKS_UNKNOWN = "ServiceNetworksUnknown"
    CONTROL_PLANE_NAMES_UNKNOWN = "ControlPlaneNamesUnknown"
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
    CERTIFICATE_AUTHORITY_SHARED = "CertificateAuthorityShared"
    CERTIFICATE_AUTHORITY_NOT_TRUSTED = "CertificateAuthorityNotTrusted"
    CERTIFICATE_AUTHORITY_NOT_PROVEN = "CertificateAuthorityNotProven"
    CONTROLLER_KEY_UNAVAILABLE = "ControllerKeyUnavailable"
    CLOCKS_DIFFER = "ClocksDiffer"
    MANAGEMENT_CLUSTER_UNREACHABLE = "ManagementClusterUnreachable"
    NAMESPACE_OVER_LIMIT = "NamespaceOverLimit"
    WORKLOAD_CLUSTER_UNREACHABLE = "WorkloadClusterUnreachable"
    WORKLOAD_GRANT_MISSING = "WorkloadGrantMissing"
    AUDIT_LOG_UNAVAILABLE = "AuditLogUnavailable"
    INTERNAL_ERROR = "InternalError"


EXPLANATIONS: Final[Mapping[Reason, ReasonExplanation]] = MappingProxyType(
    {
        Reason.ATTESTED: ReasonExplanation(
            "The evidence proves the Machine, and the node name in the request is that Machine's.", "Nothing."
        ),
        Reason.ASSERTED: ReasonExplanation(
            "The insecure attestor accepted the node without proof.",
            "Use a secure attestor if the platform has one; see "
            "[the insecure attestor](operating.md#the-insecure-attestor).",
        ),
        Reason.CHALLENGE_ISSUED: ReasonExplanation(
            "The evidence is valid so far, and the attestor wants proof that the node is live.",
            "Nothing. The node answers the challenge with a second request for the same key.",
        ),
        Reason.MALFORMED_REQUEST: ReasonExplanation(
            "`spec.request` is not the three PEM blocks in their strict form, its PKCS#10 is not DER, or "
            "`expirationSeconds` is below 600.",
            "Upgrade or fix the program that made the request. The message names the line or the part.",
        ),
        Reason.INVALID_PROVIDER_ID: ReasonExplanation(
            "The provider-ID extension is missing, is not a UTF8String, or does not hold 1 to 512 characters of "
            "printable ASCII without spaces at the ends.",
            "Set the node's provider ID to the value of `Machine.spec.providerID`. If the controller runs with "
            "`--provider-id-oids`, the node must use one of those OIDs.",
        ),
        Reason.INVALID_SUBJECT: ReasonExplanation(
            "The subject is not exactly `O=system:nodes` and `CN=system:node:<name>`, or the name is not a valid node "
            "name.",
            "Fix the program that made the request.",
        ),
        Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES: ReasonExplanation(
            "A client request has alternative names. Or a serving request has none, has one that is neither a DNS name "
            "nor an IP address, or has one that is not the Machine's.",
            "Compare the alternative name in the message with the Machine's `status.addresses`. Names of the control "
            "plane, of services and of other Machines are never signed.",
        ),
        Reason.FORBIDDEN_EXTENSION: ReasonExplanation(
            "The request asks for a CA certificate, has an unknown critical extension, or has PKCS#10 attributes other "
            "than the extension request.",
            "Find out which program made the request: no kubelet asks for this. Fix that program.",
        ),
        Reason.INVALID_USAGES: ReasonExplanation(
            "`spec.usages` is not digital signature and client auth (server auth in a serving request), with or "
            "without key encipherment.",
            "Fix the program that made the request.",
        ),
        Reason.UNACCEPTABLE_KEY: ReasonExplanation(
            "The key is neither RSA of 2048 to 8192 bits nor ECDSA on P-256, P-384 or P-521, or it is encoded in an "
            "unusual way.",
            "Generate another key on the node.",
        ),
        Reason.INVALID_SIGNATURE: ReasonExplanation(
            "The request is not signed with its own key, or not with SHA-256, SHA-384 or SHA-512.",
            "Fix the program that made the request.",
        ),
        Reason.UNSUPPORTED_VERSION: ReasonExplanation(
            "The controller's attestor does not read this version of evidence.",
            "Upgrade the controller, or let the node write a version that the annotation "
            "`attestation.cluster.x-k8s.io/supported-evidence-versions` lists.",
        ),
        Reason.PROVIDER_MISMATCH: ReasonExplanation(
            "The request's provider block and its signer name disagree.", "Fix the program that made the request."
        ),
        Reason.SUPERSEDED: ReasonExplanation(
            "The controller has already approved a newer request of the same identity to the same signer.",
            "Nothing. The node no longer waits for this request. If it does wait, its clock or the API server's clock "
            "was set back.",
        ),
        Reason.REQUESTER_NOT_ALLOWED: ReasonExplanation(
            "The requester is neither a bootstrap token of `system:bootstrappers` nor the node itself. Only the node "
            "itself can request a serving certificate.",
            "Request with a bootstrap token, or with the node's own certificate. No user can request for another node.",
        ),
        Reason.ATTESTOR_NOT_AUTHORIZED: ReasonExplanation(
            "The cluster's policy does not name the attestor, or the controller's configuration does not name it or "
            "does not allow it in this namespace. For the insecure attestor, a flag may be missing.",
            "Name the attestor in the policy, or allow it in the controller's configuration. The message says which of "
            "them is missing.",
        ),
        Reason.RENEWAL_NOT_SUPPORTED: ReasonExplanation(
            "A node asks for renewal through an attestor that does not renew, such as the insecure one.",
            "Let the node join again with a new bootstrap token.",
        ),
        Reason.SERVING_NOT_SUPPORTED: ReasonExplanation(
            "The attestor does not support serving certificates.", "Let the kubelet use the built-in serving signer."
        ),
        Reason.FOREIGN_CREDENTIAL: ReasonExplanation(
            "A node asks for a serving certificate with a client certificate that this controller did not issue to it.",
            "Let the node get its client certificate by attestation first. The node then asks again by itself.",
        ),
        Reason.MALFORMED_EVIDENCE: ReasonExplanation(
            "The evidence block is not the JSON document that it must be, or its fields are not those that the "
            "attestor expects.",
            "Upgrade or fix the attestor on the node. The message names the field.",
        ),
        Reason.CLUSTER_MISMATCH: ReasonExplanation(
            "The CA that the node trusts is not one of the cluster's.",
            "Compare the first CA in the node's kubeconfig with Secret `<cluster>-ca`. If they differ, the node may "
            "have been sent to the wrong API server.",
        ),
        Reason.BINDING_MISMATCH: ReasonExplanation(
            "The evidence was made for another key, cluster or signer, or with a key that does not belong to this "
            "machine.",
            "If the node is genuine, compare the attestor's settings on the node with those in the controller's "
            "configuration. If it is not, the evidence was copied: find the machine that sent it.",
        ),
        Reason.PROVIDER_ID_MISMATCH: ReasonExplanation(
            "The evidence proves another provider ID than the one that the request claims.",
            "Correct the provider ID that is configured on the node. If it is correct, find the machine that sent the "
            "request.",
        ),
        Reason.NODE_NAME_MISMATCH: ReasonExplanation(
            "The evidence proves the machine, but the request asks for a node name that is not its Machine's. The "
            "request waits instead of being denied if the node was attested under that name before: its Machine's "
            "addresses, or the policy, have changed since.",
            "The message has both names. If the name in the request is wrong, correct the kubelet's host name. If the "
            "Machine's name is wrong, correct the Machine's addresses, or "
            "[`nodeNames`](internals.md#node-name) in the policy. If the node is not misconfigured, the machine asks "
            "for another node's name: treat it as compromised.",
        ),
        Reason.IDENTITY_CONFLICT: ReasonExplanation(
            "The identity belongs to another Machine, the Machine to another identity, or the node name to another "
            "Machine.",
            "Delete the Machine that no longer uses the hardware. If a Machine keeps its name and provider ID but has "
            "new hardware, delete its AttestedNode and its two IdentityReservations; see "
            "[reservations](recovering.md#reservations). If the Machine that holds the node name has another name by "
            "now and renews under that name, delete its AttestedNode of the old name.",
        ),
        Reason.MACHINE_DELETING: ReasonExplanation(
            "The Machine is being deleted, and a node asks to join as it; or its attested node renews, and the "
            "policy's `certificates.deletingDuration` is `0s`.",
            "Nothing: no node joins as it any more. If its node has to renew until it is drained, set "
            "`certificates.deletingDuration`.",
        ),
        Reason.CLUSTER_DELETING: ReasonExplanation(
            "The Cluster is being deleted, and a node asks to join it; or an attested node renews, and the "
            "policy's `certificates.deletingDuration` is `0s`.",
            "Nothing: no node joins it any more. If its nodes have to renew until they are gone, set "
            "`certificates.deletingDuration`.",
        ),
        Reason.BOOTSTRAP_TOKEN_MISMATCH: ReasonExplanation(
            "The bootstrap token was made for another Machine or MachinePool than the one that the evidence proves.",
            "Find out how this machine got the other one's bootstrap data. Treat that token as stolen.",
        ),
        Reason.APPROVED_BY_OTHERS: ReasonExplanation(
            "Another user or controller approved a request to one of this project's signers. Either the policy's "
            "`approvalByOthers` refuses that, or the controller would have denied the request.",
            "Find the user or controller that approves such requests, and stop it. This controller approves by itself "
            "when the node asks again.",
        ),
        Reason.MACHINE_NOT_FOUND: ReasonExplanation(
            "No Machine of this Cluster has the provider ID yet.",
            "Wait for the infrastructure provider to set `Machine.spec.providerID`. If the message names the nearest "
            "Machine, let both sides write the same: it says what differs, such as a region, a zone, a resource group, "
            "upper and lower case, or slashes. The node's side is the provider ID of `kubelet-authenticator`.",
        ),
        Reason.PROVIDER_ID_DISAGREES: ReasonExplanation(
            "The node claimed a provider ID while its Machine showed none, and the Machine shows another one now.",
            "Compare the node's configured provider ID with `Machine.spec.providerID`. If the Machine is right, "
            "correct the node's configuration: the node then renews by the Machine's provider ID. If not, find out "
            "which program wrote it. Until they agree, the node gets no certificates.",
        ),
        Reason.PROVIDER_ID_TAKEN: ReasonExplanation(
            "The Machine shows no provider ID, and the one that its node claims is that of another Machine, or another "
            "node claimed it before.",
            "Correct the provider ID in the configuration of the node that has the wrong one, and delete that node's "
            "Machine. Two nodes that claim one provider ID both wait.",
        ),
        Reason.MACHINE_AMBIGUOUS: ReasonExplanation(
            "Several Machines of this Cluster have the same provider ID, or share a name or address that the serving "
            "request contains.",
            "Delete or correct the wrong Machine. The message names them.",
        ),
        Reason.MACHINE_ADDRESSES_UNKNOWN: ReasonExplanation(
            "The Machine does not show its node's name yet, or has no address of the kind that the serving request "
            "contains.",
            "Wait for `status.addresses` or `spec.infrastructureRef`, or set other `nodeNames` in the policy.",
        ),
        Reason.SERVICE_NETWORKS_UNKNOWN: ReasonExplanation(
            "The serving request contains an address that may be one of the cluster's Services: the Cluster does not "
            "state the network that has it, or states none at all.",
            "State the networks in `spec.clusterNetwork.services.cidrBlocks` of the Cluster, or "
            "[let the controller read them](operating.md#networks-of-services) in the workload cluster. If the address "
            "is in a network of Services, nodes and Services overlap: give the nodes other addresses.",
        ),
        Reason.CONTROL_PLANE_NAMES_UNKNOWN: ReasonExplanation(
            "The controller cannot read the names in the certificate of the workload cluster's API server, or has not "
            "read kubeadm's configuration yet, so it does not know which names a node must not have.",
            "Nothing if it ends within a minute. The message says what is unknown. If it is the certificate, renew the "
            "API server's certificate. Kubeadm's configuration is waited for about six minutes at most.",
        ),
        Reason.MACHINE_NOT_READY: ReasonExplanation(
            "The Machine has no bootstrap data yet: neither condition BootstrapConfigReady (BootstrapReady in v1beta1) "
            "nor `status.initialization.bootstrapDataSecretCreated` says that it has.",
            "The bootstrap provider's controller makes the data. `kubectl describe machine` and that controller's log "
            "say what it waits for.",
        ),
        Reason.MACHINE_PAUSED: ReasonExplanation(
            "The Machine is paused.", "Remove the annotation `cluster.x-k8s.io/paused`."
        ),
        Reason.CLUSTER_PAUSED: ReasonExplanation(
            "The Cluster is paused, as it is during `clusterctl move`.",
            "Unpause the Cluster. During a move, the controller of the target management cluster continues.",
        ),
        Reason.NODE_REF_DISAGREES: ReasonExplanation(
            "The Machine's `status.nodeRef` names another node than the request does.",
            "Compare both nodes, and delete the wrong Node. A kubelet may have registered with a false provider ID.",
        ),
        Reason.NODE_NAME_BLOCKED: ReasonExplanation(
            "Another identity holds the node name: its certificates are still valid, its Machine is still being "
            "deleted, or an AttestedNode of another node has the same object name. Or this Machine is recorded as "
            "another node, or another Machine has the same node name.",
            "Wait until the time in the message, or choose another `nodeNameReuse` in the policy: see [names that come "
            "again](operating.md#names-that-come-again). If the message names another Machine, correct the name or "
            "address of the Machine that is not that node.",
        ),
        Reason.NODE_NOT_ATTESTED: ReasonExplanation(
            "The node asks for a serving certificate and has no valid attestation. There is no AttestedNode of an "
            "allowed secure attestor, the Machine was deleted or recreated since, no attestation of this very Machine "
            "and Cluster reserved them, or the node's certificates have expired. Before Kubernetes 1.32, the request "
            "may also be older than the attestation, or a former node of that name could have posted it.",
            "Let the node get its client certificate by attestation. The controller then approves the waiting request "
            "or, before Kubernetes 1.32, the one that the kubelet posts after 15 minutes. The message says what is "
            "missing.",
        ),
        Reason.BOOTSTRAP_TOKEN_UNTRACEABLE: ReasonExplanation(
            "No KubeadmConfig of the Cluster holds the bootstrap token, those of other Machines hold it too, or the "
            "controller does not trace tokens, and the policy's `bootstrapTokens.untraceable` refuses that.",
            "Join with the token that Cluster API made for the Machine. Delete other KubeadmConfigs with it that "
            "Cluster API did not make. If the message says that tokens are not "
            "traced, see the condition [BootstrapTokensTraceable](operating.md#bootstrap-tokens). Or set "
            "`bootstrapTokens.untraceable: Allow`.",
        ),
        Reason.RESERVATION_PENDING: ReasonExplanation(
            "Several requests compete for the same record or reservation, the objects that the decision rests on have "
            "just changed, the node asks too often, its kubelet has posted a newer serving request, or a reservation "
            "cannot be read.",
            "Nothing if requests compete, if objects have changed, or if the kubelet posted a newer request. If the "
            "node asks too often, find out why. If the message names an object that cannot be read, inspect that "
            "object, then delete it.",
        ),
        Reason.POLICY_INVALID: ReasonExplanation(
            "The NodeAttestationPolicy is not valid, or there is no policy or no Cluster of that name.",
            "Correct the field that the message names. If there is no policy, create one with the Cluster's name in "
            "the Cluster's namespace.",
        ),
        Reason.ATTESTOR_UNAVAILABLE: ReasonExplanation(
            "The attestor cannot be loaded, its settings are wrong, or it did not answer within 30 seconds.",
            "Install the extra, or correct the setting, that the message names. If the attestor did not answer, check "
            "the services that it calls, such as a cloud.",
        ),
        Reason.CERTIFICATE_AUTHORITY_UNAVAILABLE: ReasonExplanation(
            "Secret `<cluster>-ca` is missing, cannot be read or has no key, or its CA has expired or just changed. Or "
            "the controller has just started and reads the CAs of all Clusters, until none is answered for a minute.",
            "Read the message and the policy's condition "
            "[CertificateAuthorityAvailable](troubleshooting.md#the-ca): they say which.",
        ),
        Reason.CERTIFICATE_AUTHORITY_CHANGING: ReasonExplanation(
            "The node names a CA of this cluster that does not sign and that the CAs that sign do not chain to. It is "
            "coming in or going out: a CA's Secret lists it, or earlier certificates of the cluster's nodes are of it.",
            "Finish the change of CA: the request waits until a CA that signs is the one that the node names, or "
            "chains to it. Or give the node a kubeconfig whose first CA is one that signs.",
        ),
        Reason.CERTIFICATE_AUTHORITY_SHARED: ReasonExplanation(
            "Another Cluster has the private key of this Cluster's CA too, or the node names an issuer that another "
            "Cluster's CA chains to. Evidence for one of them would count in the other.",
            "Give each Cluster a CA of its own. If both have one owner, name them in one group of "
            "[`certificateAuthorities.sharedBy`](operating.md#shared-certificate-authorities). For an issuer, it is "
            "enough to put the CA that signs first into the nodes' kubeconfigs.",
        ),
        Reason.CERTIFICATE_AUTHORITY_NOT_TRUSTED: ReasonExplanation(
            "The API server refuses client certificates of the CA that the controller signs with. A node could not use "
            "its certificate, so none is issued.",
            "The message has the hashes of the CA that signs and, if the controller may read them, of the CAs that the "
            "API server accepts. Correct the CA's Secret, or name the right one in the policy's "
            "[`certificateAuthorities`](operating.md#certificate-authorities). The controller tries again once a "
            "minute.",
        ),
        Reason.CERTIFICATE_AUTHORITY_NOT_PROVEN: ReasonExplanation(
            "Nothing has shown yet that the API server accepts client certificates of the CA: the canary got no "
            "answer, or one that does not name its user.",
            "Nothing if it ends within a minute. Otherwise check the API server, and whether a proxy between it and "
            "the controller ends TLS.",
        ),
        Reason.CONTROLLER_KEY_UNAVAILABLE: ReasonExplanation(
            "Secret `node-attestation-controller-key` cannot be read or is malformed, or a record was sealed with a "
            "key that the controller has not read yet. The controller cannot tell its records from forgeries.",
            "Nothing if it ends within seconds. Otherwise repair the Secret, or restore it from its copy; see "
            "[the controller key](recovering.md#the-controller-key).",
        ),
        Reason.CLOCKS_DIFFER: ReasonExplanation(
            "The controller's clock differs by more than two minutes from that of the management or the workload API "
            "server, by the header Date of their answers; or one of them has sent no Date for five minutes. "
            "Certificates would be valid for another time than they should.",
            "Set the wrong clock: the message names both. If an API server sends no Date, look for a proxy that "
            "removes it. The controller asks again every ten seconds.",
        ),
        Reason.MANAGEMENT_CLUSTER_UNREACHABLE: ReasonExplanation(
            "A call to the management cluster failed, or the objects that decisions rest on could not be watched for a "
            "minute. Status 403 in the message means that a grant is missing; 422 means that the "
            "CustomResourceDefinitions are of another version.",
            "Check the management API server or the controller's [grants](operating.md#grants), or apply the "
            "[definitions of this version](upgrading.md#how-to-upgrade).",
        ),
        Reason.NAMESPACE_OVER_LIMIT: ReasonExplanation(
            "The Cluster's namespace, or that of a Machine that may hold the identity, has more objects of a kind than "
            "the operator's limit. The controller keeps none of them, so it decides nothing that rests on them. Or as "
            "many of its Machines are reserved as the operator's limit of AttestedNodes, with those that are gone.",
            "Delete objects of the kind that the message names until a tenth below the limit is left; the controller "
            "goes on within minutes, without a restart. The controller itself releases Machines that are gone. If the "
            "objects are all needed, have the operator raise [`namespaceLimits`](operating.md#namespace-limits).",
        ),
        Reason.WORKLOAD_CLUSTER_UNREACHABLE: ReasonExplanation(
            "The controller could not write the decision to the workload cluster.",
            "Check the workload API server and Secret `<cluster>-kubeconfig`.",
        ),
        Reason.WORKLOAD_GRANT_MISSING: ReasonExplanation(
            "The workload API server answered 403 when the controller wrote the decision: the controller's user lacks "
            "a grant, or admission refused the write. A restricted kubeconfig has rights for the attestors that the "
            "policy authorized when `workload-kubeconfig` made it.",
            "Repeat `node-attestation-controller workload-kubeconfig NAMESPACE/NAME` with the flags of the features in "
            "use, or grant ClusterRole `node-attestation-workload` of `deploy/rbac/workload.yaml` with the signers of "
            "every attestor of the policy; see [grants](operating.md#grants).",
        ),
        Reason.AUDIT_LOG_UNAVAILABLE: ReasonExplanation(
            "The request may be approved, but the controller cannot write the decision to the audit log. Or the "
            "approval was journaled before, and a flood of requests has used up the cluster's room in the log.",
            "Free space on the disk of `--audit-log-path`, or fix what the controller's log names. The controller "
            "tries again every few seconds. In a flood, revoke the bootstrap token that posts the requests.",
        ),
        Reason.INTERNAL_ERROR: ReasonExplanation(
            "The controller or an attestor has a defect. Nothing is approved or denied because of it.",
            "Read the controller's log at that time and report the defect. If the message names an attestor, report it "
            "to that attestor's author.",
        ),
    }
)
"""The explanation of every reason. The headings in ``docs/troubleshooting.md`` are generated from it."""
