"""Checks of a kubelet's own request to ``kubernetes.io/kubelet-serving``, which we approve and never sign.

Such a request carries no evidence. What stands for it is the record of an attestation: of a secure attestor, for
exactly that node name, of a Machine that is still there, and with a client certificate that is still valid.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from attestors.contract import IPAddress, Security, VerifiedIdentity
from attestors.wire.names import Purpose
from signer.model.certificates_in_use import EVER, certificates_in_use
from signer.model.cluster import LONG_AGO, ClusterView, MachineView
from signer.model.decision import Deferred, Refused
from signer.model.fields import parse_time
from signer.model.policy import Policy
from signer.model.reasons import Reason
from signer.model.record import KUBELET_CLIENT, AttestedNode, JournalEntry, record_of
from signer.model.signing_request import BuiltinServingRequest, Credential, NoCredentialNamed
from signer.rules.machine import MachineGone, NoRecord
from signer.rules.serving import valid_clients

SLOW_CLOCK: Final = timedelta(minutes=5)
"""By how much the workload API server's clock may be behind ours. Where it is more, it does not take the client
certificates that we issue, which begin that long ago, and its kubelets cannot ask for anything.
"""
IN_FLIGHT: Final = timedelta(minutes=5)
"""An API server looks at the client certificate when a request begins, and dates what is created when all of it has
come: up to a minute later, if its ``--request-timeout`` is not another.

With :data:`SLOW_CLOCK` no more than a record holds its node name after its last certificate
(:data:`~signer.model.record.HELD_AFTER_END`): a request that was posted with a former node's certificate is known by
that record, or was posted longer before the next attestation than clocks differ.
"""


@dataclass(frozen=True, slots=True)
class BuiltinRequestFacts:
    """What the checks of the request alone look at."""

    request: BuiltinServingRequest
    cluster: ClusterView


class PairState(enum.Enum):
    """Whether the reservations say that the record's identity is the record's Machine."""

    RESERVED = "reserved"
    NOT_RESERVED = "not reserved"


@dataclass(frozen=True, slots=True)
class AttestedMachine:
    """What stands for the evidence: a record, and its Machine as it is now."""

    record: AttestedNode
    machine: MachineView


@dataclass(frozen=True, slots=True)
class BuiltinServingFacts:
    """What the checks of the attestation behind a request look at."""

    node_name: str
    """From the CSR's common name, which is the requester's."""
    dns_names: tuple[str, ...]
    ip_addresses: tuple[IPAddress, ...]
    credential: Credential
    created: datetime
    """When it was posted, as the workload API server says: see :func:`posted_at`."""
    cluster: ClusterView
    policy: Policy
    record: AttestedNode
    machine: MachineView
    operator_allows: bool
    """Whether the controller's configuration allows the record's attestor in the cluster's namespace."""
    pair: PairState
    conflicting_names: frozenset[str]
    """What of the alternative names belongs to the cluster's other Machines and nodes, each in its one spelling."""
    now: datetime

    @property
    def purpose(self) -> Purpose:
        """What the certificate is for."""
        return Purpose.SERVING

    @property
    def proven(self) -> VerifiedIdentity | None:
        """No attestor is asked, so none vouches for any name."""
        return None


def posted_at(request: BuiltinServingRequest) -> datetime:
    """When the request was created, by the workload API server's clock; where that cannot be read, before all else."""
    try:
        return parse_time(request.header.created)
    except ValueError:
        return LONG_AGO  # no API server writes it so


def waits_for(node_name: str, record: AttestedNode | NoRecord) -> tuple[str, ...]:
    """What may change a deferral: the node's record, and the Machine that it names."""
    own = () if isinstance(record, NoRecord) else (record.machine.provider_id,)
    return (record_of(node_name), *own)


def the_attested_machine(
    node_name: str, record: AttestedNode | NoRecord, machine: MachineView | MachineGone
) -> AttestedMachine:
    """The record of that node, and the Machine that it names.

    Raises:
        Deferred: there is no record, or its Machine is gone.
    """
    if isinstance(record, NoRecord):
        raise Deferred(Reason.NODE_NOT_ATTESTED, f"node {node_name} has not been attested")
    if isinstance(machine, MachineGone):
        raise Deferred(
            Reason.NODE_NOT_ATTESTED, f"node {node_name} was attested as {record.machine}, which no longer exists"
        )
    return AttestedMachine(record, machine)


def record_is_this_nodes(facts: BuiltinServingFacts) -> None:
    """The record is of exactly this node name in this cluster; a defect of ours otherwise."""
    if facts.record.machine.cluster != facts.cluster.key or facts.record.node_name != facts.node_name:
        raise Deferred(Reason.INTERNAL_ERROR, f"judged by the record of another node than {facts.node_name}")


def attestation_was_secure(facts: BuiltinServingFacts) -> None:
    """An attestor that proves nothing vouches for no serving certificate."""
    identity = facts.record.identity
    if identity.security is not Security.SECURE:
        raise Deferred(
            Reason.NODE_NOT_ATTESTED, f"attestor {identity.provider}, which proves nothing, recorded this node"
        )


def attestor_is_still_authorized(facts: BuiltinServingFacts) -> None:
    """Whoever takes an attestor out of the policy no longer trusts what it said."""
    provider = facts.record.identity.provider
    if provider not in {attestor.provider for attestor in facts.policy.authorized_attestors}:
        raise Deferred(Reason.NODE_NOT_ATTESTED, f"the policy does not authorize attestor {provider} any more")
    if not facts.operator_allows:
        raise Deferred(Reason.NODE_NOT_ATTESTED, f"this controller does not allow attestor {provider} here any more")


def machine_is_the_attested_one(facts: BuiltinServingFacts) -> None:
    """A Machine that was made anew under its old name is another one, whose node has not been attested yet.

    See :meth:`~signer.model.record.AttestedNode.is_of` for moves.
    """
    if not facts.record.is_of(facts.machine, facts.cluster.created):
        raise Deferred(
            Reason.NODE_NOT_ATTESTED, f"{facts.record.machine} was made anew since node {facts.node_name} was attested"
        )


def reservation_stands(facts: BuiltinServingFacts) -> None:
    """Identity and Machine are reserved for each other."""
    if facts.pair is not PairState.RESERVED:
        raise Deferred(Reason.NODE_NOT_ATTESTED, f"{facts.record.machine} is not reserved for the recorded identity")


def client_certificate_is_valid(facts: BuiltinServingFacts) -> None:
    """The attested node still has a client certificate: an attestation lives as long as what it was for."""
    if not valid_clients(facts.record, facts.now).own:
        raise Deferred(Reason.NODE_NOT_ATTESTED, "every client certificate that was issued to it has run out")


def no_former_credential_is_valid(facts: BuiltinServingFacts) -> None:
    """Where the API server names no credential, nobody but the attested node had one under its name when it was posted.

    The policy's ``nodeNameReuse: Immediate`` gives a node name away while the former machine's certificates are valid.
    And a request may have lain in wait since they were. The API server lets a certificate in by the very clock by which
    it dates the request, so the two are compared as they stand, however far that clock is from ours.
    """
    if not isinstance(facts.credential, NoCredentialNamed):
        return
    ends = [entry.not_after for entry in former_clients(facts)]
    if ends:
        free = max(ends) + IN_FLIGHT
        raise Deferred(
            Reason.NODE_NOT_ATTESTED,
            f"client certificates of the former node {facts.node_name} were valid until {max(ends):%Y-%m-%d %H:%M} "
            f"UTC, this request was created at {facts.created:%Y-%m-%d %H:%M}, and this API server does not say which "
            "certificate was used: the kubelet's next request is judged anew",
            free - facts.now if free <= facts.created else None,  # else it stays so, whatever the time
        )


def former_clients(facts: BuiltinServingFacts) -> tuple[JournalEntry, ...]:
    """The former node's client certificates that may have been used when the request was posted."""
    posted = max(min(facts.created, facts.now), LONG_AGO) - IN_FLIGHT  # an API server may say any year
    return certificates_in_use((facts.record,), posted, KUBELET_CLIENT).former


def posted_since_attested(facts: BuiltinServingFacts) -> None:
    """Where the API server names no credential, the node's own was not there before the node was attested.

    What the former node of that name had may be forgotten by now, or was never known here. An honest kubelet, too, may
    have asked before its node was attested; it asks again when 15 minutes have passed.
    """
    if not isinstance(facts.credential, NoCredentialNamed):
        return
    if facts.created < own_since(facts.record):
        raise Deferred(
            Reason.NODE_NOT_ATTESTED,
            f"this request was created at {facts.created:%Y-%m-%d %H:%M:%S} UTC, before node {facts.node_name} was "
            "attested, and this API server does not say which certificate was used: the kubelet's next request is "
            "judged anew",
        )


def own_since(record: AttestedNode) -> datetime:
    """Since when, by the workload API server's clock, the identity's own client certificates can have been used.

    By that same clock none was used before the first of them was asked for. That request may have waited for long, and
    then our clock says more.
    """
    asked = [entry.created for entry in certificates_in_use((record,), EVER, KUBELET_CLIENT).own]
    return max(record.first_attestation - SLOW_CLOCK, min(asked, default=record.first_attestation))


def refuse_malformed(message: str) -> Refused:
    """The denial of a request that cannot be read."""
    return Refused(Reason.MALFORMED_REQUEST, message)
