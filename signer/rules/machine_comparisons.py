"""Comparisons for the checks of an attestor's outcome, a Machine and a record. Only ``explain`` calls them.

Each function takes the facts of its check, whether that passed or not. None raises for facts that could be read.
"""

from __future__ import annotations

from typing import Final

from attestors.contract import AssertedIdentity, StillAllowed
from attestors.wire.names import Purpose
from signer.model.certificate_request import (
    COMMON_NAME,
    ORGANIZATION,
)
from signer.model.certificates_in_use import NotAll
from signer.model.cluster import MachineView
from signer.model.decision import Deferred
from signer.model.record import AttestedNode
from signer.model.signing_request import CertificateCredential, NoCredentialNamed
from signer.rules.builtin_serving import BuiltinServingFacts, StandingFacts, clients_in_use, own_since
from signer.rules.comparison import Comparison, listed
from signer.rules.machine import DeletionFacts, MachineFacts, MachineGone, MatchedFacts, NoRecord
from signer.rules.node_name import possible_names, unreadable_text
from signer.rules.request import IdentityFacts
from signer.rules.serving import AlternativeNameFacts, CredentialFacts, valid_clients

_SUBJECT_NAMES: Final = {COMMON_NAME: "CN", ORGANIZATION: "O"}
_MINUTES: Final = "%Y-%m-%d %H:%M UTC"
_SECONDS: Final = "%Y-%m-%d %H:%M:%S UTC"


# The attestor's answer


def security(facts: IdentityFacts) -> Comparison:
    """``security_is_declared``."""
    said = "asserted, not proven" if isinstance(facts.identity, AssertedIdentity) else "proven"
    return Comparison(said, f"attestor {facts.attestor.provider} is {facts.attestor.security.value}")


def binding(facts: IdentityFacts) -> Comparison:
    """``binding_is_this_requests``. Hashes of public values."""
    if isinstance(facts.identity, AssertedIdentity):
        return Comparison("none: nothing was proven", facts.binding.value.hex())
    return Comparison(facts.identity.binding.value.hex(), facts.binding.value.hex())


def proven_provider_id(facts: IdentityFacts) -> Comparison:
    """``provider_id_is_proven``."""
    return Comparison(f"proven: {facts.identity.provider_id}", f"claimed: {facts.claimed_provider_id}")


# The Machine and its record


def machines_cluster(facts: MachineFacts) -> Comparison:
    """``machine_is_of_this_cluster``."""
    return Comparison(f"{facts.machine} of Cluster {facts.machine.cluster}", f"Cluster {facts.cluster.key}")


def cluster_deleting(facts: DeletionFacts) -> Comparison:
    """``cluster_admits_the_request``."""
    return Comparison(f"Cluster {facts.cluster.key}{_deleted(facts.cluster.deleting, facts)}", _admitted(facts))


def machine_deleting(facts: DeletionFacts) -> Comparison:
    """``machine_admits_the_request``."""
    return Comparison(f"{facts.machine}{_deleted(facts.machine.deleting, facts)}", _admitted(facts))


def _deleted(deleting: bool, facts: DeletionFacts) -> str:
    asks = "a renewal" if facts.renews else "a first join"
    return f"{_is(deleting, 'being deleted')}{f'; the request is {asks}' if deleting else ''}"


def _admitted(facts: DeletionFacts) -> str:
    if not facts.policy.deleting_duration:
        return "not being deleted (deletingDuration: 0s)"
    return f"not being deleted, or a renewal (deletingDuration: {facts.policy.deleting_duration})"


def machine_paused(facts: MatchedFacts) -> Comparison:
    """``machine_is_not_paused``."""
    return Comparison(f"{facts.machine}{_is(facts.machine.paused, 'paused')}", "not paused")


def bootstrap_data(facts: MachineFacts) -> Comparison:
    """``machine_has_bootstrap_data``."""
    joined = "; the node has joined" if facts.machine.node_ref == facts.node_name or facts.renews else ""
    ready = "yes" if facts.machine.bootstrap_ready else "not yet"
    return Comparison(f"{ready}{joined}", "condition BootstrapConfigReady is True, or a node that has joined")


def node_name(facts: MachineFacts) -> Comparison:
    """``node_name_is_the_machines``."""
    attested = facts.proven.node_names if facts.proven is not None else ()
    rules = facts.policy.node_names
    try:
        expected = str(possible_names(facts.machine, rules, attested))
    except Deferred:
        expected = "not known yet"
    return Comparison(facts.node_name, f"{expected} (nodeNames: {rules})")


def node_ref(facts: MatchedFacts) -> Comparison:
    """``node_ref_agrees``."""
    return Comparison(f"nodeRef: {facts.machine.node_ref or 'none'}", f"{facts.node_name}, or none")


def name_holder(facts: MachineFacts) -> Comparison:
    """``node_name_is_free``."""
    return Comparison(_held(facts.record), f"nothing, or {facts.machine} as {facts.identity.identity}")


def others_names(facts: MachineFacts) -> Comparison:
    """``node_name_is_no_other_machines``."""
    return Comparison(f"other Machines with {facts.node_name}: {listed(facts.others_called_so)}", "none")


def names_of_machine(facts: MachineFacts) -> Comparison:
    """``machine_has_one_node_name``."""
    other = [
        f"{one.node_name} until {one.held_until:{_MINUTES}}"
        for one in facts.other_names
        if one.node_name != facts.node_name
    ]
    return Comparison(f"recorded under other names: {listed(other)}", "none that is still valid")


def former_identity(facts: MachineFacts) -> Comparison:
    """``former_identity_has_run_out``."""
    return Comparison(_held(facts.record), f"nothing that is valid, or {facts.identity.identity}")


def newer_requests(facts: MachineFacts) -> Comparison:
    """``request_is_not_superseded``."""
    entries = () if isinstance(facts.record, NoRecord) else facts.record.journal
    newest = [f"{one.csr_name} of {one.created:%Y-%m-%d %H:%M:%S}" for one in entries[-2:]]
    return Comparison(f"journal: {listed(newest, 'empty')}", f"none newer than {facts.created:%Y-%m-%d %H:%M:%S}")


def credential(facts: CredentialFacts) -> Comparison:
    """``credential_is_attested``."""
    if facts.purpose is not Purpose.SERVING:
        return Comparison("client certificate", "checked for serving certificates only")
    if isinstance(facts.credential, NoCredentialNamed):
        return Comparison("the API server names none", "not checked before Kubernetes 1.32")
    found = facts.credential.digest if isinstance(facts.credential, CertificateCredential) else "no single certificate"
    entries = () if isinstance(facts.record, NoRecord) else valid_clients(facts.record, facts.now).own
    return Comparison(found, f"one of: {listed(one.certificate_digest for one in entries)}")


def alternative_names(facts: AlternativeNameFacts) -> Comparison:
    """``alternative_names_are_the_machines``."""
    if facts.purpose is not Purpose.SERVING:
        return Comparison("client certificate", "checked for serving certificates only")
    own = [facts.node_name, *(one.address for one in facts.machine.readable_addresses)]
    if facts.proven is not None:
        own += [*facts.proven.dns_names, *(str(address) for address in facts.proven.ip_addresses)]
    networks = f", or in {listed(facts.serving.networks)}" if facts.serving.networks else ""
    services = facts.serving.reported_services.networks
    networks += f"; not in reported service networks {listed(services)}" if services else ""
    expected = f"of: {listed(dict.fromkeys(own))}{networks}{unreadable_text(facts.machine)}"
    return Comparison(listed([*facts.dns_names, *facts.ip_addresses]), expected)


# The record that replaces the evidence of a built-in serving request


def whose_record(facts: BuiltinServingFacts) -> Comparison:
    """``record_is_this_nodes``."""
    return Comparison(
        f"node {facts.record.node_name} of {facts.record.machine.cluster}",
        f"node {facts.node_name} of {facts.cluster.key}",
    )


def recorded_security(facts: BuiltinServingFacts) -> Comparison:
    """``attestation_was_secure``."""
    identity = facts.record.identity
    return Comparison(f"{identity.provider} ({identity.security.value})", "secure")


def recorded_attestor(facts: BuiltinServingFacts) -> Comparison:
    """``attestor_is_still_authorized``."""
    operator = "" if facts.operator_allows else "; this controller does not allow it here"
    return Comparison(
        facts.record.identity.provider,
        f"one of the policy's: {listed(one.provider for one in facts.policy.authorized_attestors)}{operator}",
    )


def attested_machine(facts: BuiltinServingFacts) -> Comparison:
    """``machine_is_the_attested_one``."""
    return Comparison(
        f"UID {facts.machine.uid}; the Cluster was created at {facts.cluster.created:{_SECONDS}}",
        f"UID {facts.record.machine_uid} since {facts.record.last_attestation:{_SECONDS}}",
    )


def reservation(facts: BuiltinServingFacts) -> Comparison:
    """``reservation_stands``."""
    return Comparison(facts.pair.value, f"{facts.record.machine} for {facts.record.identity.identity}")


def client_certificates(facts: BuiltinServingFacts) -> Comparison:
    """``client_certificate_is_valid``."""
    ends = [f"valid until {one.not_after:{_MINUTES}}" for one in valid_clients(facts.record, facts.now).own]
    return Comparison(listed(ends), f"one that is valid at {facts.now:{_MINUTES}}")


def former_certificates(facts: BuiltinServingFacts) -> Comparison:
    """``no_former_credential_is_valid``."""
    if not isinstance(facts.credential, NoCredentialNamed):
        return Comparison("the API server names the credential", "not checked then")
    in_use = clients_in_use(facts)
    former = [f"valid until {entry.not_after:{_MINUTES}}" for entry in in_use.former]
    if NotAll.LEFT_THE_JOURNAL in in_use.not_all:
        former.append("perhaps one that was dropped from the journal")
    return Comparison(f"of former nodes: {listed(former)}", f"none when created, at {facts.created:{_MINUTES}}")


def posted_and_attested(facts: BuiltinServingFacts) -> Comparison:
    """``posted_since_attested``."""
    if not isinstance(facts.credential, NoCredentialNamed):
        return Comparison("the API server names the credential", "not checked then")
    return Comparison(f"created at {facts.created:{_SECONDS}}", f"not before {own_since(facts.record):{_SECONDS}}")


def standing(facts: StandingFacts) -> Comparison:
    """``identity_is_still_allowed``."""
    identity, hardware = facts.record.identity, f" and {facts.hardware}" if facts.hardware else ""
    answer = "allowed" if isinstance(facts.standing, StillAllowed) else facts.standing.reason
    return Comparison(f"{identity.identity}{hardware}: {answer}", f"what attestor {identity.provider} does not deny")


def _is(holds: bool, what: str) -> str:
    return f" is {what}" if holds else f" is not {what}"


def _held(record: AttestedNode | NoRecord) -> str:
    if isinstance(record, NoRecord):
        return "no record of that name"
    return f"recorded: {record.machine} as {record.identity.identity}, until {record.held_until:{_MINUTES}}"


def recorded_machine(record: AttestedNode | NoRecord, machine: MachineView | MachineGone) -> Comparison:
    """For the step ``record``."""
    state = "which exists" if isinstance(machine, MachineView) else "which is gone"
    return Comparison(_held(record) if isinstance(record, NoRecord) else f"{_held(record)}; {state}", "a Machine")
