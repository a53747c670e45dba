"""Every check, in its order. Nothing is approved that has not passed all of them.

parse     bytes → SigningRequest                     signer.model.signing_request (one strict reading)
1-18      the request alone                          REQUEST_CHECKS, no network
attest    evidence → identity                        the attestor, which may call out
19-21     the attestor's answer                      IDENTITY_CHECKS
match     provider ID → the one Machine              signer.rules.machine.the_machine
22-33     the Machine and its record                 MACHINE_CHECKS
reserve   identity ↔ Machine, journal                signer.store, atomic
issue     approve, sign, publish                     signer.authority

A kubelet's own request to the built-in serving signer carries no evidence; its attestation was recorded before:

parse     bytes → BuiltinServingRequest                signer.model.signing_request
          the request alone                          BUILTIN_REQUEST_CHECKS
match     node name → record → its Machine           signer.rules.builtin_serving.the_attested_machine
          record, Machine, names                     BUILTIN_SERVING_CHECKS
journal, approve                                     signer.decision.builtin_serving; kube-controller-manager signs
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

from signer.model.decision import Deferred, Refused
from signer.rules import builtin_serving as builtin_serving
from signer.rules import identity, machine, request, serving, shape
from signer.rules import machine_comparisons as matched
from signer.rules import request_comparisons as asked
from signer.rules.builtin_serving import BuiltinRequestFacts, BuiltinServingFacts
from signer.rules.identity import IdentityFacts
from signer.rules.machine import MachineFacts
from signer.rules.request import RequestFacts
from signer.rules.shape import ClusterFacts
from signer.rules.trace import SILENCE, Step, Trace
from signer.rules.trace import Check as Check

Facts = TypeVar("Facts")

CLUSTER_CHECKS: Final[tuple[Check[ClusterFacts], ...]] = (
    Check(shape.cluster_is_not_paused, "the Cluster is not paused", asked.paused),
    Check(shape.cluster_is_not_deleting, "the Cluster is not being deleted", asked.deleting),
)
"""Of what is judged before anything else, and again with everything else."""

REQUEST_CHECKS: Final[tuple[Check[RequestFacts], ...]] = (
    Check(
        request.facts_belong_together,
        "the policy is the cluster's, the attestor the signer's",
        asked.policy_and_attestor,
    ),
    *CLUSTER_CHECKS,
    Check(shape.requester_may_ask, "the requester is a bootstrap token or a node", asked.requester),
    Check(request.provider_is_the_signers, "the provider block agrees with the signer name", asked.provider),
    Check(request.attestor_is_authorized, "the cluster's policy authorizes the attestor", asked.authorization),
    Check(
        request.attestor_supports_the_purpose, "the attestor signs such certificates for such requesters", asked.purpose
    ),
    Check(request.version_is_supported, "the evidence version is supported", asked.version),
    Check(shape.subject_is_a_node, "the subject is exactly a node's", asked.subject),
    Check(shape.requester_is_the_node, "a node asks for itself only", asked.asks_for),
    Check(shape.attributes_are_known, "no unknown PKCS#10 attributes", asked.attributes),
    Check(shape.extensions_are_harmless, "no authority and no unknown critical extension", asked.extensions),
    Check(shape.alternative_names_fit_the_purpose, "alternative names fit the purpose", asked.kinds_of_names),
    Check(shape.usages_fit_the_purpose, "usages fit the purpose", asked.usages),
    Check(shape.key_is_acceptable, "the key is strong and of a known kind", asked.key),
    Check(request.provider_id_is_well_formed, "the provider ID is there and well formed", asked.provider_id),
    Check(request.evidence_names_this_cluster, "the evidence names this cluster's CA", asked.cluster_authority),
    Check(shape.self_signature_verifies, "the request is signed with its own key", asked.signature),
)

IDENTITY_CHECKS: Final[tuple[Check[IdentityFacts], ...]] = (
    Check(identity.security_is_declared, "the attestor returned what it may return", matched.security),
    Check(identity.binding_is_this_requests, "the evidence commits to this key, cluster and signer", matched.binding),
    Check(identity.provider_id_is_proven, "the evidence proves the claimed provider ID", matched.proven_provider_id),
)

MACHINE_CHECKS: Final[tuple[Check[MachineFacts], ...]] = (
    Check(machine.machine_is_of_this_cluster, "the Machine is this cluster's", matched.machines_cluster),
    Check(machine.machine_is_not_deleting, "the Machine is not being deleted", matched.machine_deleting),
    Check(machine.machine_is_not_paused, "the Machine is not paused", matched.machine_paused),
    Check(machine.machine_has_bootstrap_data, "the Machine has its bootstrap data", matched.bootstrap_data),
    Check(machine.node_name_is_the_machines, "the node name is that Machine's", matched.node_name),
    Check(machine.node_ref_agrees, "the Machine's nodeRef does not disagree", matched.node_ref),
    Check(machine.node_name_is_free, "the node name is free, or this identity's", matched.name_holder),
    Check(machine.node_name_is_nobody_elses, "no other Machine of the cluster is called so", matched.others_names),
    Check(machine.machine_has_one_node_name, "the Machine is not recorded as another node", matched.names_of_machine),
    Check(
        machine.request_is_not_superseded, "no newer request of the same identity was approved", matched.newer_requests
    ),
    Check(
        serving.credential_is_attested,
        "a node asks for a serving certificate with one that it was issued here",
        matched.credential,
    ),
    Check(
        serving.alternative_names_are_the_machines,
        "alternative names belong to that Machine",
        matched.alternative_names,
    ),
)

BUILTIN_REQUEST_CHECKS: Final[tuple[Check[BuiltinRequestFacts], ...]] = (
    *CLUSTER_CHECKS,
    Check(shape.requester_may_ask, "the requester is a node", asked.requester),
    Check(shape.subject_is_a_node, "the subject is exactly a node's", asked.subject),
    Check(shape.requester_is_the_node, "a node asks for itself only", asked.asks_for),
    Check(shape.attributes_are_known, "no unknown PKCS#10 attributes", asked.attributes),
    Check(shape.extensions_are_harmless, "no authority and no unknown critical extension", asked.extensions),
    Check(
        shape.alternative_names_fit_the_purpose,
        "there are DNS names or IP addresses, and no other names",
        asked.kinds_of_names,
    ),
    Check(shape.usages_fit_the_purpose, "usages are a server's", asked.usages),
    Check(shape.key_is_acceptable, "the key is strong and of a known kind", asked.key),
    Check(shape.self_signature_verifies, "the request is signed with its own key", asked.signature),
)

BUILTIN_SERVING_CHECKS: Final[tuple[Check[BuiltinServingFacts], ...]] = (
    Check(builtin_serving.record_is_this_nodes, "the record is this node's", matched.whose_record),
    Check(builtin_serving.attestation_was_secure, "a secure attestor attested the node", matched.recorded_security),
    Check(builtin_serving.attestor_is_still_authorized, "that attestor is still authorized", matched.recorded_attestor),
    Check(machine.machine_is_not_deleting, "its Machine is not being deleted", matched.machine_deleting),
    Check(machine.machine_is_not_paused, "its Machine is not paused", matched.machine_paused),
    Check(machine.node_ref_agrees, "the Machine's nodeRef does not disagree", matched.node_ref),
    Check(
        builtin_serving.machine_is_the_attested_one,
        "the Machine was not made anew since the node was attested",
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
        "no former node of that name could have asked",
        matched.former_certificates,
    ),
    Check(
        builtin_serving.posted_since_attested,
        "the request was not there before the node was attested",
        matched.posted_and_attested,
    ),
    Check(
        serving.credential_is_attested,
        "the node asks with a client certificate that it was issued here",
        matched.credential,
    ),
    Check(
        serving.alternative_names_are_the_machines,
        "alternative names belong to that Machine",
        matched.alternative_names,
    ),
)


SEQUENCE: Final[tuple[Check[Any] | Step, ...]] = (
    Step.READ,
    Step.POLICY,
    Step.ATTESTOR,
    Step.APPROVED_BEFORE,
    Step.AUTHORITY,
    *REQUEST_CHECKS,
    Step.CLAIM,
    Step.ATTEST,
    *IDENTITY_CHECKS,
    Step.MATCH,
    *MACHINE_CHECKS,
    Step.TOKEN,
    Step.RESERVE,
    Step.JOURNAL,
)
"""All that stands between a request to one of our signers and its certificate."""

BUILTIN_SEQUENCE: Final[tuple[Check[Any] | Step, ...]] = (
    Step.READ,
    Step.POLICY,
    *BUILTIN_REQUEST_CHECKS,
    Step.RECORD,
    *BUILTIN_SERVING_CHECKS,
    Step.BUILTIN_JOURNAL,
)
"""All that stands between a kubelet's own serving request and its approval."""


def run_checks(checks: Iterable[Check[Facts]], facts: Facts, trace: Trace = SILENCE) -> None:
    """Run ``checks`` in order, and tell ``trace`` of each.

    Raises:
        Refused, Deferred: from the first check that does not pass.
    """
    for check in checks:
        try:
            check.run(facts)
        except (Refused, Deferred) as error:
            trace.stopped(check, facts, error)
            raise
        trace.passed(check, facts)
