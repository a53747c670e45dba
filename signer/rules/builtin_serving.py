"""Checks of a kubelet's own request to ``kubernetes.io/kubelet-serving``, which the controller approves, never signs.

Such a request carries no evidence. The record of an attestation replaces it: by a secure attestor, for exactly that
node name, of a Machine that still exists, and with a client certificate that is still valid.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, assert_never

from attestors.contract import (
    Denied,
    IPAddress,
    NotProvableYet,
    Security,
    Standing,
    StillAllowed,
    VerifiedIdentity,
)
from attestors.wire.names import Purpose
from signer.model.certificates_in_use import EVER, CertificatesInUse, NotAll, certificates_in_use
from signer.model.cluster import LONG_AGO, ClusterView, MachineView
from signer.model.decision import Deferred, Refused
from signer.model.fields import parse_time
from signer.model.policy import Policy
from signer.model.reasons import Reason
from signer.model.record import KUBELET_CLIENT, AttestedNode, record_of, unidentified
from signer.model.reservation import CLOCKS_APART, Attested, Basis
from signer.model.serving_facts import ServingFacts
from signer.model.signing_request import BuiltinServingRequest, Credential, NoCredentialNamed
from signer.rules.machine import MachineGone, NoRecord
from signer.rules.serving import valid_clients

SLOW_CLOCK: Final = timedelta(minutes=5)
"""How far the workload API server's clock may be behind ours. Our client certificates are valid from that long before
their issuance. A slower API server does not accept them, so its kubelets cannot request anything.
"""
IN_FLIGHT: Final = timedelta(minutes=5)
"""How long before its creation time a request may have been authenticated. The API server verifies the client
certificate when a request begins, and sets ``creationTimestamp`` when it has received all of it: up to a minute later
with the default ``--request-timeout``.

Together with :data:`SLOW_CLOCK` this is at most the time that a record holds its node name after its last certificate
(:data:`~signer.model.record.HELD_AFTER_END`). So a request that was posted with a former node's certificate is found in
that record, or was posted longer before the next attestation than the clocks differ.
"""


@dataclass(frozen=True, slots=True)
class BuiltinRequestFacts:
    """The input of the checks of the request alone."""

    request: BuiltinServingRequest
    cluster: ClusterView


class PairState(enum.Enum):
    """Whether the record's identity and Machine are reserved for each other."""

    RESERVED = "reserved"
    """After an attestation of exactly this Cluster and this Machine, and no later than the record says."""
    NOT_RESERVED = "not reserved"
    FROM_RECORD = "reserved from a record alone"
    """As after a move. The controller key alone can seal such a record."""
    ATTESTED_BEFORE = "reserved for a former Cluster or Machine of that name"
    ATTESTED_SINCE = "reserved later than the record's last attestation"
    """Or another identity of the Machine was attested later. The record is an older copy."""


@dataclass(frozen=True, slots=True)
class AttestedMachine:
    """A record, which replaces the evidence, and its Machine as it is now."""

    record: AttestedNode
    machine: MachineView


def pair_state(bases: Sequence[Basis], record: AttestedNode, machine: MachineView, cluster_uid: str) -> PairState:
    """What the reservation says of the record. ``bases`` are those of its authentic sides, none if one is missing."""
    if not bases:
        return PairState.NOT_RESERVED
    attested = [basis for basis in bases if isinstance(basis, Attested)]
    if len(attested) < len(bases):
        return PairState.FROM_RECORD
    if not all(basis.is_for(cluster_uid, record.machine, machine.uid) for basis in attested):
        return PairState.ATTESTED_BEFORE
    if any(basis.at > record.last_attestation + CLOCKS_APART for basis in attested):
        return PairState.ATTESTED_SINCE
    return PairState.RESERVED


@dataclass(frozen=True, slots=True)
class BuiltinServingFacts:
    """The input of the checks of the attestation behind a request."""

    node_name: str
    """From the CSR's common name, which is the requester's."""
    dns_names: tuple[str, ...]
    ip_addresses: tuple[IPAddress, ...]
    credential: Credential
    created: datetime
    """Creation time by the workload API server's clock: see :func:`posted_at`."""
    cluster: ClusterView
    policy: Policy
    record: AttestedNode
    machine: MachineView
    operator_allows: bool
    """Whether the controller's configuration allows the record's attestor in the cluster's namespace."""
    pair: PairState
    conflicting_names: frozenset[str]
    """The alternative names that belong to other Machines and nodes of the cluster, in canonical form."""
    serving: ServingFacts
    now: datetime

    @property
    def purpose(self) -> Purpose:
        """The certificate's purpose."""
        return Purpose.SERVING

    @property
    def renews(self) -> bool:
        """True: only nodes' requests are decided, and the record says that the node was attested."""
        return True

    @property
    def proven(self) -> VerifiedIdentity | None:
        """None: no attestor is called, so none proves a name."""
        return None


@dataclass(frozen=True, slots=True)
class StandingFacts:
    """The input of the check of the recorded identity."""

    record: AttestedNode
    hardware: str
    """The other name of the hardware that is reserved for the Machine; empty if none is."""
    standing: Standing
    """The answer of the attestor that proved the identity."""


def posted_at(request: BuiltinServingRequest) -> datetime:
    """The request's creation time by the workload API server's clock; :data:`LONG_AGO` if it cannot be read."""
    try:
        return parse_time(request.header.created)
    except ValueError:
        return LONG_AGO  # no API server writes such a time


def waits_for(node_name: str, record: AttestedNode | NoRecord) -> tuple[str, ...]:
    """The keys whose changes wake a deferred request: the node's record, and the Machine that it names."""
    if isinstance(record, NoRecord):
        return (record_of(node_name),)
    unshown = (unidentified(record.machine.name),) if record.machine.is_claimed else ()
    return (record_of(node_name), record.machine.provider_id, *unshown)


def the_attested_machine(
    node_name: str, record: AttestedNode | NoRecord, machine: MachineView | MachineGone
) -> AttestedMachine:
    """The node's record and the Machine that it names.

    Raises:
        Deferred: there is no record, or its Machine is gone.
    """
    if isinstance(record, NoRecord):
        raise Deferred(Reason.NODE_NOT_ATTESTED, f"node {node_name} has not been attested")
    if isinstance(machine, MachineGone) and machine.shows:
        raise Deferred(
            Reason.PROVIDER_ID_DISAGREES,
            f"{record.machine} shows provider ID {machine.shows}, and its node was attested with the claim "
            f"{record.machine.provider_id}",
        )
    if isinstance(machine, MachineGone):
        raise Deferred(
            Reason.NODE_NOT_ATTESTED, f"node {node_name} was attested as {record.machine}, which no longer exists"
        )
    return AttestedMachine(record, machine)


def record_is_this_nodes(facts: BuiltinServingFacts) -> None:
    """The record is of exactly this node name in this cluster. Anything else is a bug in the controller."""
    if facts.record.machine.cluster != facts.cluster.key or facts.record.node_name != facts.node_name:
        raise Deferred(Reason.INTERNAL_ERROR, f"the record is of another node than {facts.node_name}")


def attestation_was_secure(facts: BuiltinServingFacts) -> None:
    """A secure attestor attested the node: an insecure one proves nothing."""
    identity = facts.record.identity
    if identity.security is not Security.SECURE:
        raise Deferred(
            Reason.NODE_NOT_ATTESTED, f"the node was attested by attestor {identity.provider}, which proves nothing"
        )


def attestor_is_still_authorized(facts: BuiltinServingFacts) -> None:
    """The policy and the controller's configuration still allow the attestor that attested the node."""
    provider = facts.record.identity.provider
    if provider not in {attestor.provider for attestor in facts.policy.authorized_attestors}:
        raise Deferred(Reason.NODE_NOT_ATTESTED, f"the policy no longer authorizes attestor {provider}")
    if not facts.operator_allows:
        raise Deferred(Reason.NODE_NOT_ATTESTED, f"this controller no longer allows attestor {provider} here")


def machine_is_the_attested_one(facts: BuiltinServingFacts) -> None:
    """The Machine is the one that was attested, and not a new one with the same name.

    See :meth:`~signer.model.record.AttestedNode.is_of` for moves.
    """
    if not facts.record.is_of(facts.machine, facts.cluster.created):
        raise Deferred(
            Reason.NODE_NOT_ATTESTED, f"{facts.record.machine} was recreated since node {facts.node_name} was attested"
        )


def reservation_stands(facts: BuiltinServingFacts) -> None:
    """Identity and Machine are reserved for each other, and an attestation of this very Machine reserved them."""
    match facts.pair:
        case PairState.RESERVED:
            return
        case PairState.NOT_RESERVED:
            cause = "is not reserved for the recorded identity"
        case PairState.FROM_RECORD:
            cause = "is reserved for the recorded identity only because of the record: the node must attest again"
        case PairState.ATTESTED_BEFORE:
            cause = "was reserved under another UID, or that of another Cluster object: the node must attest again"
        case PairState.ATTESTED_SINCE:
            cause = "was attested after the record says: the record is an older copy, and the node must attest again"
        case never:
            assert_never(never)
    raise Deferred(Reason.NODE_NOT_ATTESTED, f"{facts.record.machine} {cause}")


def client_certificate_is_valid(facts: BuiltinServingFacts) -> None:
    """The attested node still has a valid client certificate: an attestation counts no longer than its certificates."""
    if not valid_clients(facts.record, facts.now).own:
        raise Deferred(Reason.NODE_NOT_ATTESTED, "every client certificate that was issued to it has expired")


def no_former_credential_is_valid(facts: BuiltinServingFacts) -> None:
    """If the API server names no credential, no former node of that name had a valid one when the request was posted.

    With ``nodeNameReuse: Immediate`` a node name is reused while the former machine's certificates are valid. A request
    may also have been pending since they were. The API server accepts certificates and dates requests by one clock, so
    both times are compared as they are, however far that clock is from ours.
    """
    if not isinstance(facts.credential, NoCredentialNamed):
        return
    in_use = clients_in_use(facts)
    ends = [entry.not_after for entry in in_use.former]
    if ends:
        free = max(ends) + IN_FLIGHT
        raise Deferred(
            Reason.NODE_NOT_ATTESTED,
            f"client certificates of the former node {facts.node_name} were valid until {max(ends):%Y-%m-%d %H:%M} "
            f"UTC, this request was created at {facts.created:%Y-%m-%d %H:%M}, and this API server does not say which "
            "certificate was used: the controller decides the kubelet's next request anew",
            free - facts.now if free <= facts.created else None,  # otherwise waiting does not change it
        )
    if NotAll.LEFT_THE_JOURNAL in in_use.not_all:
        raise Deferred(
            Reason.NODE_NOT_ATTESTED,
            f"the journal of node {facts.node_name} no longer has every certificate that was valid when this request "
            "was created, and this API server does not say which certificate was used: the controller decides the "
            "kubelet's next request anew",
            None,
        )


def clients_in_use(facts: BuiltinServingFacts) -> CertificatesInUse:
    """The client certificates that may have been used to post the request."""
    posted = max(min(facts.created, facts.now), LONG_AGO) - IN_FLIGHT  # an API server may send any year
    return certificates_in_use((facts.record,), posted, KUBELET_CLIENT)


def posted_since_attested(facts: BuiltinServingFacts) -> None:
    """If the API server names no credential, the request was not posted before the node was attested.

    The certificates of a former node of that name may be dropped from the record, or were never known here. An honest
    kubelet may also have posted its request before its node was attested. It posts another one after 15 minutes.
    """
    if not isinstance(facts.credential, NoCredentialNamed):
        return
    if facts.created < own_since(facts.record):
        raise Deferred(
            Reason.NODE_NOT_ATTESTED,
            f"this request was created at {facts.created:%Y-%m-%d %H:%M:%S} UTC, before node {facts.node_name} was "
            "attested, and this API server does not say which certificate was used: the controller decides the "
            "kubelet's next request anew",
        )


def own_since(record: AttestedNode) -> datetime:
    """The earliest time, by the workload API server's clock, at which the identity can have used its certificates.

    No certificate was used before its request was created, by that same clock. A request may have been pending for
    long, so our own time of the first attestation counts too.
    """
    asked = [entry.created for entry in certificates_in_use((record,), EVER, KUBELET_CLIENT).own]
    return max(record.first_attestation - SLOW_CLOCK, min(asked, default=record.first_attestation))


def identity_is_still_allowed(facts: StandingFacts) -> None:
    """The attestor that proved the recorded identity does not deny it now, by the operator's settings.

    Nothing revokes a client certificate: without this check, a machine whose key the operator denies would get serving
    certificates until its client certificate expires.
    """
    match facts.standing:
        case StillAllowed():
            return
        case Denied(reason, message):
            raise Refused(reason, message)
        case NotProvableYet(reason, message, retry_after):
            raise Deferred(reason, message, retry_after, grows=True)
        case never:
            assert_never(never)


def refuse_malformed(message: str) -> Refused:
    """The denial of a malformed request."""
    return Refused(Reason.MALFORMED_REQUEST, message)
