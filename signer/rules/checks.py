"""Every check, in its order. Nothing is approved that has not passed all of them.

parse     bytes → SigningRequest                     signer.model.signing_request (one strict reading)
1-18      the request alone                          REQUEST_CHECKS, no network
attest    evidence → identity                        the attestor, which may call out
19-21     the attestor's answer                      IDENTITY_CHECKS
match     provider ID → the one Machine              signer.rules.machine.the_machine
22-33     the Machine and its record                 MACHINE_CHECKS
reserve   identity ↔ Machine, journal                signer.store, atomic
issue     approve, sign, publish                     signer.authority

A kubelet's own request to the stock serving signer carries no evidence; its attestation was recorded before:

parse     bytes → StockServingRequest                signer.model.signing_request
          the request alone                          STOCK_REQUEST_CHECKS
match     node name → record → its Machine           signer.rules.stock_serving.the_attested_machine
          record, Machine, names                     STOCK_SERVING_CHECKS
journal, approve                                     signer.controller.stock_serving; kube-controller-manager signs
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from signer.rules import identity, machine, request, serving, stock_serving
from signer.rules.identity import IdentityFacts
from signer.rules.machine import MachineFacts
from signer.rules.request import RequestFacts
from signer.rules.stock_serving import StockRequestFacts, StockServingFacts

Facts = TypeVar("Facts")


@dataclass(frozen=True, slots=True)
class Check(Generic[Facts]):
    """One check: it raises ``Refused`` or ``Deferred``, or the next one follows. ``says`` is for ``explain``."""

    run: Callable[[Facts], None]
    says: str


REQUEST_CHECKS: Final[tuple[Check[RequestFacts], ...]] = (
    Check(request.facts_belong_together, "the policy is the cluster's, the attestor the signer's"),
    Check(request.cluster_is_not_paused, "the Cluster is not paused"),
    Check(request.cluster_is_not_deleting, "the Cluster is not being deleted"),
    Check(request.requester_may_ask, "the requester is a bootstrap token or a node"),
    Check(request.provider_is_the_signers, "the provider block agrees with the signer name"),
    Check(request.attestor_is_authorized, "the cluster's policy authorizes the attestor"),
    Check(request.attestor_supports_the_purpose, "the attestor signs such certificates for such requesters"),
    Check(request.version_is_supported, "the evidence version is supported"),
    Check(request.subject_is_a_node, "the subject is exactly a node's"),
    Check(request.requester_is_the_node, "a node asks for itself only"),
    Check(request.attributes_are_known, "no unknown PKCS#10 attributes"),
    Check(request.extensions_are_harmless, "no authority and no unknown critical extension"),
    Check(request.alternative_names_fit_the_purpose, "alternative names fit the purpose"),
    Check(request.usages_fit_the_purpose, "usages fit the purpose"),
    Check(request.key_is_acceptable, "the key is strong and of a known kind"),
    Check(request.provider_id_is_well_formed, "the provider ID is there and well formed"),
    Check(request.evidence_names_this_cluster, "the evidence names this cluster's CA"),
    Check(request.self_signature_verifies, "the request is signed with its own key"),
)

IDENTITY_CHECKS: Final[tuple[Check[IdentityFacts], ...]] = (
    Check(identity.security_is_declared, "the attestor returned what it may return"),
    Check(identity.binding_is_this_requests, "the evidence commits to this key, cluster and signer"),
    Check(identity.provider_id_is_proven, "the evidence proves the claimed provider ID"),
)

MACHINE_CHECKS: Final[tuple[Check[MachineFacts], ...]] = (
    Check(machine.machine_is_of_this_cluster, "the Machine is this cluster's"),
    Check(machine.machine_is_not_deleting, "the Machine is not being deleted"),
    Check(machine.machine_is_not_paused, "the Machine is not paused"),
    Check(machine.machine_has_bootstrap_data, "the Machine has its bootstrap data"),
    Check(machine.node_name_is_the_machines, "the node name is that Machine's"),
    Check(machine.node_ref_agrees, "the Machine's nodeRef does not disagree"),
    Check(machine.node_name_is_free, "the node name is free, or this identity's"),
    Check(machine.node_name_is_nobody_elses, "no other Machine of the cluster is called so"),
    Check(machine.machine_has_one_node_name, "the Machine is not recorded as another node"),
    Check(machine.request_is_not_superseded, "no newer request of the same identity was approved"),
    Check(serving.credential_is_attested, "a node asks for a serving certificate with one that it was issued here"),
    Check(serving.alternative_names_are_the_machines, "alternative names belong to that Machine"),
)

STOCK_REQUEST_CHECKS: Final[tuple[Check[StockRequestFacts], ...]] = (
    Check(request.cluster_is_not_paused, "the Cluster is not paused"),
    Check(request.cluster_is_not_deleting, "the Cluster is not being deleted"),
    Check(request.requester_may_ask, "the requester is a node"),
    Check(request.subject_is_a_node, "the subject is exactly a node's"),
    Check(request.requester_is_the_node, "a node asks for itself only"),
    Check(request.attributes_are_known, "no unknown PKCS#10 attributes"),
    Check(request.extensions_are_harmless, "no authority and no unknown critical extension"),
    Check(request.alternative_names_fit_the_purpose, "there are DNS names or IP addresses, and no other names"),
    Check(request.usages_fit_the_purpose, "usages are a server's"),
    Check(request.key_is_acceptable, "the key is strong and of a known kind"),
    Check(request.self_signature_verifies, "the request is signed with its own key"),
)

STOCK_SERVING_CHECKS: Final[tuple[Check[StockServingFacts], ...]] = (
    Check(stock_serving.record_is_this_nodes, "the record is this node's"),
    Check(stock_serving.attestation_was_secure, "a secure attestor attested the node"),
    Check(stock_serving.attestor_is_still_authorized, "that attestor is still authorized"),
    Check(machine.machine_is_not_deleting, "its Machine is not being deleted"),
    Check(machine.machine_is_not_paused, "its Machine is not paused"),
    Check(machine.node_ref_agrees, "the Machine's nodeRef does not disagree"),
    Check(stock_serving.reservation_stands, "identity and Machine are reserved for each other"),
    Check(stock_serving.client_certificate_is_valid, "a client certificate of the node is still valid"),
    Check(stock_serving.no_former_credential_is_valid, "no former node of that name could have asked"),
    Check(serving.credential_is_attested, "the node asks with a client certificate that it was issued here"),
    Check(serving.alternative_names_are_the_machines, "alternative names belong to that Machine"),
)


def run_checks(checks: Iterable[Check[Facts]], facts: Facts) -> None:
    """Run ``checks`` in order.

    Raises:
        Refused, Deferred: from the first check that does not pass.
    """
    for check in checks:
        check.run(facts)
