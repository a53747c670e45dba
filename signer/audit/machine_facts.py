"""Builds the facts for the checks of a Machine, for the decision and for its replay alike."""

from __future__ import annotations

from datetime import datetime

from attestors.contract import AssertedIdentity, VerifiedIdentity
from signer.audit.decision_inputs import MachineStage
from signer.model.cluster import ClusterView, MachineView
from signer.model.policy import Policy
from signer.model.record import AttestedIdentity
from signer.model.signing_request import SigningRequest
from signer.rules.machine import MachineFacts
from signer.rules.request import first_requested_at, public_key_digest


def machine_facts(
    request: SigningRequest,
    node_name: str,
    identity: AttestedIdentity,
    outcome: VerifiedIdentity | AssertedIdentity,
    machine: MachineView,
    found: MachineStage,
    *,
    cluster: ClusterView,
    policy: Policy,
    now: datetime,
) -> MachineFacts:
    """The facts of a Machine's checks. ``node_name`` is the subject's; ``found`` has the records."""
    return MachineFacts(
        node_name=node_name,
        signer_name=str(request.header.signer),
        created=first_requested_at(request, found.record, now),
        public_key_digest=public_key_digest(request),
        purpose=request.header.signer.purpose,
        dns_names=request.certificate_request.dns_names,
        ip_addresses=request.certificate_request.ip_addresses,
        identity=identity,
        proven=outcome if isinstance(outcome, VerifiedIdentity) else None,
        cluster=cluster,
        policy=policy,
        machine=machine,
        record=found.record,
        recorded_machine=found.recorded_machine,
        others_called_so=found.others_called_so,
        other_names=found.other_names,
        conflicting_names=found.conflicting_names,
        serving=found.serving,
        credential=request.header.credential,
        now=now,
    )
