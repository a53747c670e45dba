"""Every check and step, in order. The controller approves only a request that passes all of them.

:data:`REQUEST_PLAN` is for requests to our signers. :data:`BUILTIN_PLAN` is for a kubelet's own request to the built-in
serving signer, which carries no evidence: the node's attestation was recorded before. The decision, ``explain`` and
``audit verify`` walk these plans (:mod:`signer.rules.plan`). The documents' check tables are generated from them.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from signer.rules import builtin_serving as builtin_serving
from signer.rules import machine, request, required_attestors, serving, shape
from signer.rules import machine_comparisons as matched
from signer.rules import request_comparisons as asked
from signer.rules.builtin_serving import BuiltinRequestFacts, BuiltinServingFacts, StandingFacts
from signer.rules.machine import MachineFacts
from signer.rules.plan import SILENCE, CheckGroup, Plan, Step, Trace, walk
from signer.rules.plan import Check as Check
from signer.rules.plan import run_checks as run_checks
from signer.rules.request import IdentityFacts, RequestFacts
from signer.rules.shape import ClusterFacts
from signer.rules.supplies import BuiltinSupplies, RequestSupplies

Result = TypeVar("Result")

CLUSTER_CHECKS: Final[tuple[Check[ClusterFacts], ...]] = (
    Check(shape.cluster_is_not_paused, "the Cluster is not paused", asked.paused),
    Check(shape.cluster_is_not_moving, "the Cluster is not being moved", asked.moving),
)
"""Run before all other checks."""

REQUEST_CHECKS: Final[tuple[Check[RequestFacts], ...]] = (
    Check(
        request.facts_belong_together,
        "the policy is of this cluster, the attestor of this signer",
        asked.policy_and_attestor,
    ),
    Check(shape.requester_may_ask, "the requester is a bootstrap token or a node", asked.requester),
    Check(request.provider_is_the_signers, "the provider block agrees with the signer name", asked.provider),
    Check(request.attestor_is_authorized, "the cluster's policy authorizes the attestor", asked.authorization),
    Check(
        request.attestor_supports_the_purpose,
        "the attestor supports this certificate for this requester",
        asked.purpose,
    ),
    Check(request.version_is_supported, "the evidence version is supported", asked.version),
    Check(shape.subject_is_a_node, "the subject is exactly that of a node", asked.subject),
    Check(shape.requester_is_the_node, "a node requests only its own certificate", asked.asks_for),
    Check(shape.attributes_are_known, "no unknown PKCS#10 attributes", asked.attributes),
    Check(shape.extensions_are_harmless, "no CA extension and no unknown critical extension", asked.extensions),
    Check(shape.alternative_names_fit_the_purpose, "the alternative names fit the purpose", asked.kinds_of_names),
    Check(shape.usages_fit_the_purpose, "the usages fit the purpose", asked.usages),
    Check(shape.key_is_acceptable, "the key is strong and of a known kind", asked.key),
    Check(request.provider_id_is_well_formed, "the provider ID is present and well formed", asked.provider_id),
    Check(
        request.certificate_authority_is_not_shared,
        "no other Cluster has the CA, or the operator allows both to share it",
        asked.shared_authority,
    ),
    Check(request.evidence_names_this_cluster, "the evidence names this cluster's CA", asked.cluster_authority),
    Check(shape.self_signature_verifies, "the request is signed with its own key", asked.signature),
)

IDENTITY_CHECKS: Final[tuple[Check[IdentityFacts], ...]] = (
    Check(request.security_is_declared, "only an insecure attestor returns an unproven identity", matched.security),
    Check(request.binding_is_this_requests, "the evidence commits to this key, cluster and signer", matched.binding),
    Check(request.provider_id_is_proven, "the evidence proves the claimed provider ID", matched.proven_provider_id),
)

MACHINE_CHECKS: Final[tuple[Check[MachineFacts], ...]] = (
    Check(machine.machine_is_of_this_cluster, "the Machine is of this cluster", matched.machines_cluster),
    Check(
        required_attestors.attestor_is_accepted_for_the_role,
        "the operator's floor accepts the attestor for the Machine's role",
        required_attestors.accepted_attestor,
    ),
    Check(
        machine.cluster_admits_the_request,
        "the Cluster is not being deleted, or an attested node renews",
        matched.cluster_deleting,
    ),
    Check(
        machine.machine_admits_the_request,
        "the Machine is not being deleted, or its attested node renews",
        matched.machine_deleting,
    ),
    Check(machine.machine_is_not_paused, "the Machine is not paused", matched.machine_paused),
    Check(
        machine.machine_has_bootstrap_data,
        "the Machine has its bootstrap data, or its node has joined",
        matched.bootstrap_data,
    ),
    Check(machine.node_name_is_the_machines, "the node name is that of the Machine", matched.node_name),
    Check(machine.node_ref_agrees, "the Machine's nodeRef is empty or names this node", matched.node_ref),
    Check(machine.node_name_is_free, "the node name is free, or held by this identity", matched.name_holder),
    Check(
        machine.node_name_is_no_other_machines,
        "no other Machine of the cluster has the node name",
        matched.others_names,
    ),
    Check(machine.machine_has_one_node_name, "the Machine is not recorded as another node", matched.names_of_machine),
    Check(
        machine.request_is_not_superseded, "no newer request of the same identity was approved", matched.newer_requests
    ),
    Check(
        serving.credential_is_attested,
        "a node requests serving certificates with a client certificate issued here",
        matched.credential,
    ),
    Check(
        serving.alternative_names_are_the_machines,
        "the alternative names belong to that Machine",
        matched.alternative_names,
    ),
)

BUILTIN_REQUEST_CHECKS: Final[tuple[Check[BuiltinRequestFacts], ...]] = (
    Check(shape.requester_may_ask, "the requester is a node", asked.requester),
    Check(shape.subject_is_a_node, "the subject is exactly that of a node", asked.subject),
    Check(shape.requester_is_the_node, "a node requests only its own certificate", asked.asks_for),
    Check(shape.attributes_are_known, "no unknown PKCS#10 attributes", asked.attributes),
    Check(shape.extensions_are_harmless, "no CA extension and no unknown critical extension", asked.extensions),
    Check(
        shape.alternative_names_fit_the_purpose,
        "there are DNS names or IP addresses, and no other names",
        asked.kinds_of_names,
    ),
    Check(shape.usages_fit_the_purpose, "the usages are those of a serving certificate", asked.usages),
    Check(shape.key_is_acceptable, "the key is strong and of a known kind", asked.key),
    Check(shape.self_signature_verifies, "the request is signed with its own key", asked.signature),
)

BUILTIN_SERVING_CHECKS: Final[tuple[Check[BuiltinServingFacts], ...]] = (
    Check(builtin_serving.record_is_this_nodes, "the record is of this node", matched.whose_record),
    Check(builtin_serving.attestation_was_secure, "a secure attestor attested the node", matched.recorded_security),
    Check(builtin_serving.attestor_is_still_authorized, "that attestor is still authorized", matched.recorded_attestor),
    Check(
        required_attestors.recorded_attestor_is_accepted_for_the_role,
        "the operator's floor accepts that attestor for the Machine's role",
        required_attestors.accepted_attestor,
    ),
    Check(
        machine.cluster_admits_the_request,
        "the Cluster is not being deleted, or the policy lets its nodes renew",
        matched.cluster_deleting,
    ),
    Check(
        machine.machine_admits_the_request,
        "its Machine is not being deleted, or the policy lets its node renew",
        matched.machine_deleting,
    ),
    Check(machine.machine_is_not_paused, "its Machine is not paused", matched.machine_paused),
    Check(machine.node_ref_agrees, "the Machine's nodeRef is empty or names this node", matched.node_ref),
    Check(
        builtin_serving.machine_is_the_attested_one,
        "the Machine was not recreated since the node was attested",
        matched.attested_machine,
    ),
    Check(builtin_serving.reservation_stands, "identity and Machine are reserved for each other", matched.reservation),
    Check(
        builtin_serving.client_certificate_is_valid,
        "a client certificate of the node is still valid",
        matched.client_certificates,
    ),
    Check(
        builtin_serving.no_former_credential_is_valid,
        "no former node of that name can have posted the request",
        matched.former_certificates,
    ),
    Check(
        builtin_serving.posted_since_attested,
        "the request was not posted before the node was attested",
        matched.posted_and_attested,
    ),
    Check(
        serving.credential_is_attested,
        "the node requests with a client certificate issued here",
        matched.credential,
    ),
    Check(
        serving.alternative_names_are_the_machines,
        "the alternative names belong to that Machine",
        matched.alternative_names,
    ),
)

STANDING_CHECKS: Final[tuple[Check[StandingFacts], ...]] = (
    Check(
        builtin_serving.identity_is_still_allowed,
        "the attestor does not deny the recorded identity now",
        matched.standing,
    ),
)
"""Run after all other checks: the facts come from the attestor, which is third-party code."""

RESERVED_CHECKS: Final[tuple[Check[MachineFacts], ...]] = (
    Check(
        machine.former_identity_has_run_out,
        "no certificate of another identity that had the node name is valid, or its instance is gone",
        matched.former_identity,
    ),
)
"""Run once identity and Machine are reserved for each other."""

_Step = Step[RequestSupplies[Any]]
_Group = CheckGroup[RequestSupplies[Any]]

READ: Final = _Step("read", "the request can be read", lambda one: one.read)
APPROVED_BEFORE: Final = _Step(
    "approved_before",
    "an approval that the request already has is this controller's, or the policy honours those of others",
    lambda one: one.approved_before,
    applies=lambda one: one.is_approved(),
)

REQUEST_PLAN: Final[Plan[RequestSupplies[Any]]] = Plan(
    (
        _Step("policy", "the Cluster has a valid policy and is watched", lambda one: one.policy),
        _Group("cluster", CLUSTER_CHECKS, lambda one: one.cluster_facts),
        _Step("clocks", "the controller's clock is that of both API servers", lambda one: one.clocks),
        _Step("records_listed", "the Cluster's records are in the cache", lambda one: one.records_listed),
        _Step("attestor", "policy and operator allow the attestor, and it is installed", lambda one: one.attestor),
        READ,
        APPROVED_BEFORE,
        _Step("authority", "the cluster has a CA that can sign", lambda one: one.authority),
        _Group(
            "request",
            REQUEST_CHECKS,
            lambda one: one.request_facts,
            recheck=lambda one: one.recheck_authority,
            again_from="authority",
        ),
        _Step("trusted", "the API server accepts client certificates of the CA that signs", lambda one: one.trusted),
        _Step("claim", "one Machine has the claimed provider ID", lambda one: one.claim),
        _Step("attest", "the attestor accepts the evidence", lambda one: one.attest),
        _Group("identity", IDENTITY_CHECKS, lambda one: one.identity_facts),
        _Step("unchanged", "Cluster and policy have not changed", lambda one: one.unchanged),
        _Step(
            "match",
            "one Machine has the proven provider ID, and is the one that the attestor was told of",
            lambda one: one.match,
        ),
        _Group("machine", MACHINE_CHECKS, lambda one: one.machine_facts, recheck=lambda one: one.recheck_machine),
        _Step(
            "former_machine_gone",
            "another Machine that had the node name is gone",
            lambda one: one.former_machine_gone,
        ),
        _Step("token", "the bootstrap token was made for that Machine, if it can be traced", lambda one: one.token),
        _Step(
            "former_instance_gone",
            "if the policy asks for it, the attestor proves that the instance that had the node name is gone",
            lambda one: one.former_instance_gone,
        ),
        _Step("reserve", "identity and Machine are, or can be, reserved for each other", lambda one: one.reserve),
        _Group("reserved", RESERVED_CHECKS, lambda one: one.reserved_facts, recheck=lambda one: one.recheck_record),
        _Step(
            "journal",
            "the certificate can be planned and journaled, and nothing has changed",
            lambda one: one.journal,
        ),
    ),
    again_from="unchanged",
)
"""Every stage between a request to one of our signers and its certificate."""

_BuiltinStep = Step[BuiltinSupplies[Any]]
_BuiltinGroup = CheckGroup[BuiltinSupplies[Any]]

BUILTIN_PLAN: Final[Plan[BuiltinSupplies[Any]]] = Plan(
    (
        _BuiltinStep("policy", "the Cluster has a valid policy and is watched", lambda one: one.policy),
        _BuiltinGroup("cluster", CLUSTER_CHECKS, lambda one: one.cluster_facts),
        _BuiltinStep("clocks", "the controller's clock is that of both API servers", lambda one: one.clocks),
        _BuiltinStep("read", "the request can be read", lambda one: one.read),
        _BuiltinGroup("request", BUILTIN_REQUEST_CHECKS, lambda one: one.request_facts),
        _BuiltinStep("record", "the node was attested, and its Machine exists", lambda one: one.record),
        _BuiltinGroup(
            "serving",
            BUILTIN_SERVING_CHECKS,
            lambda one: one.serving_facts,
            recheck=lambda one: one.recheck_record,
            again_from="record",
        ),
        _BuiltinGroup(
            "standing",
            STANDING_CHECKS,
            lambda one: one.standing_facts,
            recheck=lambda one: one.recheck_standing,
            again_from="record",
        ),
        _BuiltinStep(
            "builtin_journal",
            "the record has space for the approval, and Cluster and policy have not changed",
            lambda one: one.journal,
        ),
    ),
    again_from="policy",
)
"""Every stage between a kubelet's own serving request and its approval. kube-controller-manager signs."""


async def decide_request(supplies: RequestSupplies[Result], trace: Trace = SILENCE) -> Result:
    """Walk :data:`REQUEST_PLAN`.

    Raises:
        Refused, Deferred: from the first check or step that does not pass.
    """
    decided: Result = await walk(REQUEST_PLAN, supplies, trace)
    return decided


async def decide_builtin_serving(supplies: BuiltinSupplies[Result], trace: Trace = SILENCE) -> Result:
    """Walk :data:`BUILTIN_PLAN`.

    Raises:
        Refused, Deferred: from the first check or step that does not pass.
    """
    decided: Result = await walk(BUILTIN_PLAN, supplies, trace)
    return decided
