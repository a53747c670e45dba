"""Checks of the Machine that an identity leads to, and of the records for it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from attestors.contract import InstanceGone, IPAddress, Security, Termination, VerifiedIdentity
from attestors.wire.names import NODE_USER_PREFIX, Purpose
from signer.model.cluster import ClusterView, MachineView
from signer.model.decision import Deferred, Refused
from signer.model.policy import NodeNameReuse, Policy
from signer.model.reasons import Reason
from signer.model.record import AttestedIdentity, AttestedNode, MachineKey
from signer.model.serving_facts import ServingFacts
from signer.model.signing_request import Credential
from signer.rules.nearest_machine import NearMachine, NoneNear
from signer.rules.node_name import require_node_name

_NONE_NEAR: Final = NoneNear()
_RECHECK_AFTER: Final = timedelta(minutes=5)
_ASK_AGAIN_AFTER: Final = timedelta(seconds=30)
"""An instance is terminated within minutes, and a cloud lists it for an hour."""


@dataclass(frozen=True, slots=True)
class NoRecord:
    """There is no record for that node name in that cluster."""


@dataclass(frozen=True, slots=True)
class MachineGone:
    """The Machine that a record names no longer exists, or shows another provider ID than the record claims for it."""

    shows: str = ""
    """The other provider ID; empty if the Machine no longer exists."""


class FormerInstanceState(enum.Enum):
    """What is known about the instance that had the node name before."""

    NOT_PROVEN_GONE = enum.auto()
    PROVEN_GONE = enum.auto()
    """The attestor proved in this decision that it ended for good."""


class DeletionFacts(Protocol):
    """The input of the checks of what is being deleted."""

    @property
    def cluster(self) -> ClusterView:
        """The cluster."""
        ...

    @property
    def machine(self) -> MachineView:
        """The Machine."""
        ...

    @property
    def policy(self) -> Policy:
        """The cluster's policy."""
        ...

    @property
    def renews(self) -> bool:
        """Whether an attested node renews its own certificate; otherwise the request is a first join."""
        ...


class MatchedFacts(Protocol):
    """The input of the checks that apply to every Machine, whether evidence or a record leads to it."""

    @property
    def node_name(self) -> str:
        """From the CSR's common name."""
        ...

    @property
    def machine(self) -> MachineView:
        """The Machine."""
        ...


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """The input of the checks of a Machine."""

    node_name: str
    """From the CSR's common name."""
    requester: str
    """The CSR's username."""
    signer_name: str
    created: datetime
    """The CSR's creation time by the workload API server's clock. It can only make a check stricter."""
    public_key_digest: str
    """SHA-256 of the requested key, hexadecimal."""
    purpose: Purpose
    dns_names: tuple[str, ...]
    ip_addresses: tuple[IPAddress, ...]
    identity: AttestedIdentity
    proven: VerifiedIdentity | None
    """The attestor's outcome, for the names and addresses that it proves; None if it proved nothing."""
    cluster: ClusterView
    policy: Policy
    machine: MachineView
    record: AttestedNode | NoRecord
    """The record under that node name in that cluster."""
    recorded_machine: MachineView | MachineGone
    """The Machine that the record names, as it is now."""
    others_called_so: tuple[MachineView, ...]
    """Other Machines of the cluster that have the node name as a name or in nodeRef. If the node has the name only by a
    domain of the policy, also those that have the same host in any domain.
    """
    other_names: tuple[AttestedNode, ...]
    """The records of this same Machine under other node names."""
    conflicting_names: frozenset[str]
    """The alternative names that belong to other Machines and nodes of the cluster, in canonical form."""
    serving: ServingFacts
    credential: Credential
    """The requester's credential, as far as the workload API server names it."""
    now: datetime
    former_instance: FormerInstanceState = FormerInstanceState.NOT_PROVEN_GONE
    """Set by step ``former_instance_gone``."""

    @property
    def renews(self) -> bool:
        """Whether the request is a renewal: see :func:`is_renewal`."""
        return is_attested_as_that_node(self) and is_renewal(
            self.requester, self.node_name, self.record, self.machine, self.cluster
        )


_RECHECK_AFTER_NO_MATCH: Final = timedelta(minutes=5)
"""Any change of a Machine with that provider ID wakes the requests that claim it; the timer is only a safety net."""


def the_machine(
    provider_id: str, machines: tuple[MachineView, ...], nearest: NearMachine | NoneNear = _NONE_NEAR
) -> MachineView:
    """The one Machine of this cluster with that provider ID. ``nearest`` is for the message, if none has it.

    Raises:
        Deferred: none has it yet, or more than one has.
    """
    if not machines:
        near = f"; {nearest}" if isinstance(nearest, NearMachine) else ""
        raise Deferred(
            Reason.MACHINE_NOT_FOUND, f"no Machine has provider ID {provider_id} yet{near}", _RECHECK_AFTER_NO_MATCH
        )
    if len(machines) > 1:
        names = ", ".join(sorted(f"{machine.kind} {machine.name}" for machine in machines)[:3])
        raise Deferred(
            Reason.MACHINE_AMBIGUOUS,
            f"several Machines have provider ID {provider_id}: {names}",
            _RECHECK_AFTER_NO_MATCH,
        )
    return machines[0]


def machine_is_of_this_cluster(facts: MachineFacts) -> None:
    """The Machine is of this cluster. Anything else is a bug in the controller."""
    if facts.machine.cluster != facts.cluster.key:
        raise Deferred(Reason.INTERNAL_ERROR, f"{facts.machine} is not of Cluster {facts.cluster.key}")


def is_renewal(
    requester: str,
    node_name: str,
    record: AttestedNode | NoRecord,
    machine: MachineView | MachineGone,
    cluster: ClusterView,
) -> bool:
    """Whether a node itself requests its certificate, and the record says that it was attested as this Machine's node.

    Every other request is a first join: that of a bootstrap token, of a node that was never attested, and of a Machine
    that was recreated since.
    """
    return (
        requester == NODE_USER_PREFIX + node_name
        and isinstance(record, AttestedNode)
        and isinstance(machine, MachineView)
        and record.machine == MachineKey.of(machine)
        and record.is_of(machine, cluster.created)
    )


def cluster_admits_the_request(facts: DeletionFacts) -> None:
    """The Cluster is not being deleted, or one of its attested nodes renews a certificate.

    Hooks and finalizers may keep a Cluster for days after its deletion was requested. Its nodes run until then.
    """
    if facts.cluster.deleting:
        _require_renewal(facts, Reason.CLUSTER_DELETING, f"Cluster {facts.cluster.key}")


def machine_admits_the_request(facts: DeletionFacts) -> None:
    """The Machine is not being deleted, or its attested node renews a certificate.

    PodDisruptionBudgets and the hooks before drain and termination may delay the deletion for days. A node whose
    certificate expires meanwhile cannot end its drain.
    """
    if facts.machine.deleting:
        _require_renewal(facts, Reason.MACHINE_DELETING, str(facts.machine))


def _require_renewal(facts: DeletionFacts, reason: Reason, deleted: str) -> None:
    if not facts.renews:
        raise Refused(reason, f"{deleted} is being deleted, so no node joins any more: only attested nodes renew")
    if not facts.policy.deleting_duration:
        raise Refused(reason, f"{deleted} is being deleted, and the policy's certificates.deletingDuration is 0s")


def is_being_deleted(facts: DeletionFacts) -> bool:
    """Whether the Machine or its Cluster is being deleted."""
    return facts.machine.deleting or facts.cluster.deleting


def machine_is_not_paused(facts: MatchedFacts) -> None:
    """The Machine is not paused. As in every Cluster API controller, a paused Machine waits."""
    if facts.machine.paused:
        raise Deferred(Reason.MACHINE_PAUSED, f"{facts.machine} is paused")


def machine_has_bootstrap_data(facts: MachineFacts) -> None:
    """The proposal's core check: the Machine has condition BootstrapReady (v1beta2: BootstrapConfigReady).

    It concerns the first join alone. A node that runs has used its bootstrap data, whose object may be deleted: Cluster
    API then sets the condition to False (reason DoesNotExist), and a restore may never set it again.
    """
    if not facts.machine.bootstrap_ready and not _has_joined(facts):
        raise Deferred(Reason.MACHINE_NOT_READY, f"{facts.machine} has no bootstrap data yet")


def _has_joined(facts: MachineFacts) -> bool:
    """Whether the requester is this Machine's node, which was attested or joined before this controller came.

    The requester and nodeRef are the workload cluster's claims. They do no harm here: the attestor proves which machine
    asks, and bootstrap data proves nothing.
    """
    runs_there = facts.requester == NODE_USER_PREFIX + facts.node_name and facts.machine.node_ref == facts.node_name
    return facts.renews or runs_there


def node_name_is_the_machines(facts: MachineFacts) -> None:
    """The CN's node name is one that this Machine's node may have.

    If this same identity was attested as that node before, the Machine or the policy has changed since. That is not the
    node's fault and can be corrected, so the request is deferred. A renewal does not wait for names that are not known
    yet, as after a move or restore: the record has the name that was the Machine's at the first join.
    """
    attested = facts.proven.node_names if facts.proven is not None else ()
    try:
        require_node_name(facts.node_name, facts.machine, facts.policy.node_names, attested)
    except Deferred:
        if not facts.renews:
            raise
    except Refused as error:
        if not is_attested_as_that_node(facts):
            raise
        raise Deferred(
            Reason.NODE_NAME_MISMATCH,
            f"{error.deny.message}; it was attested as node {facts.node_name} before: correct the Machine's addresses, "
            "or nodeNames in the policy",
            _RECHECK_AFTER,
        ) from None


def is_attested_as_that_node(facts: MachineFacts) -> bool:
    """Whether the record says that this identity is this Machine, and this node."""
    record = facts.record
    return (
        isinstance(record, AttestedNode)
        and record.node_name == facts.node_name
        and record.machine == MachineKey.of(facts.machine)
        and record.identity.digest == facts.identity.digest
    )


def node_ref_agrees(facts: MatchedFacts) -> None:
    """The Machine's nodeRef is empty or names this node. If it disagrees, an administrator has to look first."""
    if facts.machine.node_ref and facts.machine.node_ref != facts.node_name:
        raise Deferred(
            Reason.NODE_REF_DISAGREES,
            f"{facts.machine} has nodeRef {facts.machine.node_ref}, the request is for node {facts.node_name}",
            _RECHECK_AFTER,
        )


def node_name_is_free(facts: MachineFacts) -> None:
    """The node name has no record, this identity's record, or one whose certificates have expired.

    If the policy lets the attestor prove that the former instance is gone, the attestor is asked later, once all checks
    that need no call have passed: :func:`former_identity_has_run_out` then decides.
    """
    record = facts.record
    if isinstance(record, NoRecord):
        return
    if record.machine.cluster != facts.cluster.key or record.node_name != facts.node_name:
        raise Deferred(
            Reason.NODE_NAME_BLOCKED,
            f"the record of another node has the name that the record of node {facts.node_name} needs",
            _RECHECK_AFTER,
        )
    if record.identity.digest == facts.identity.digest:
        return
    if isinstance(facts.recorded_machine, MachineView) and MachineKey.of(facts.recorded_machine) == record.machine:
        if record.machine == MachineKey.of(facts.machine):
            if facts.identity.security is Security.INSECURE and record.identity.security is Security.SECURE:
                raise Refused(
                    Reason.IDENTITY_CONFLICT,
                    f"{record.machine} was attested with proof, and this request has none",
                )
            return  # the same Machine under another identity: the reservations decide that
        if facts.recorded_machine.deleting:
            raise Deferred(
                Reason.NODE_NAME_BLOCKED,
                f"node {facts.node_name} belongs to {record.machine}, which is being deleted",
                _RECHECK_AFTER,
                waits_for=(record.machine.provider_id,),
            )
        raise Refused(
            Reason.IDENTITY_CONFLICT, f"node {facts.node_name} belongs to {record.machine}, not to {facts.machine}"
        )
    if isinstance(instance_to_prove_gone(facts), NothingToProve):
        _require_expired(facts, record, f"the former {record.machine}")


def former_identity_has_run_out(facts: MachineFacts) -> None:
    """The certificates of another, secure identity that had the node name have expired, or its instance is gone.

    This check runs once identity and Machine are reserved for each other, which settles which identity has the Machine.
    The Machine may have been recreated with other hardware, while the former hardware is another Machine now: the two
    must not be the same node. Asserted identities do not block a name.
    """
    record = facts.record
    if isinstance(record, NoRecord) or record.identity.digest == facts.identity.digest:
        return
    if record.identity.security is Security.SECURE:
        _require_expired(facts, record, f"the identity that {record.machine} had before")


@dataclass(frozen=True, slots=True)
class NothingToProve:
    """Whether a former instance is gone does not matter for the request."""


def instance_to_prove_gone(facts: MachineFacts) -> AttestedIdentity | NothingToProve:
    """The identity that had the node name before, and that the attestor has to prove gone before its certificates
    expire.

    Asserted identities are none of the attestor's instances.
    """
    record = facts.record
    if (
        facts.policy.node_name_reuse is not NodeNameReuse.WHEN_FORMER_INSTANCE_IS_GONE
        or isinstance(record, NoRecord)
        or record.identity.digest == facts.identity.digest
        or record.identity.security is not Security.SECURE
        or record.held_until <= facts.now
    ):
        return NothingToProve()
    return record.identity


def require_proven_gone(facts: MachineFacts, termination: Termination) -> MachineFacts:
    """The facts with the attestor's answer about the former instance.

    Raises:
        Deferred: it is not proven gone.
    """
    if isinstance(termination, InstanceGone):
        return replace(facts, former_instance=FormerInstanceState.PROVEN_GONE)
    record = facts.record
    if isinstance(record, NoRecord):
        raise Deferred(Reason.INTERNAL_ERROR, "a former instance was asked about, and there is no record of one")
    raise Deferred(
        Reason.NODE_NAME_BLOCKED,
        f"node {facts.node_name} was {record.machine}, whose certificates may be in use until "
        f"{record.held_until:%Y-%m-%d %H:%M} UTC unless its instance is gone: {termination.message}",
        min(record.held_until - facts.now, _ASK_AGAIN_AFTER),
    )


def _require_expired(facts: MachineFacts, record: AttestedNode, holder: str) -> None:
    if facts.policy.node_name_reuse is NodeNameReuse.IMMEDIATE or record.held_until <= facts.now:
        return
    if facts.former_instance is FormerInstanceState.PROVEN_GONE:
        return
    raise Deferred(
        Reason.NODE_NAME_BLOCKED,
        f"certificates for node {facts.node_name} of {holder} may be in use until "
        f"{record.held_until:%Y-%m-%d %H:%M} UTC",
        min(record.held_until - facts.now, _RECHECK_AFTER),
        waits_for=(record.machine.provider_id,),
    )


def node_name_is_no_other_machines(facts: MachineFacts) -> None:
    """No other Machine of the cluster has the node name as a name or in nodeRef.

    A name without a record may be that of a running node, whose Machine joined before this controller was installed.
    A Machine that is being deleted counts: its node may still drain. The data may be wrong or change, so the check only
    defers. It does not apply to an identity that was attested under
    the name. A Machine whose nodeRef has the name ignores other Machines that merely report it as a name.
    """
    record = facts.record
    if isinstance(record, AttestedNode) and record.identity.digest == facts.identity.digest:
        return
    runs_there = facts.machine.node_ref == facts.node_name
    for other in facts.others_called_so:
        if runs_there and other.node_ref != facts.node_name:
            continue
        raise Deferred(
            Reason.NODE_NAME_BLOCKED,
            f"{other} has the name {facts.node_name} too, as an address, in nodeRef or by a domain of the policy: it "
            "is not clear which Machine the node belongs to",
            _RECHECK_AFTER,
            waits_for=(other.provider_id,) if other.provider_id else (),
        )


def machine_has_one_node_name(facts: MachineFacts) -> None:
    """The Machine has no valid certificates under another node name.

    One Machine is one node. A machine must not collect node names by reporting another host name, nor keep those that
    it had before or that its hardware had as another Machine.
    """
    if holds_node_name(facts) or facts.policy.node_name_reuse is NodeNameReuse.IMMEDIATE:
        return
    for other in facts.other_names:
        if other.node_name != facts.node_name and other.held_until > facts.now:
            raise Deferred(
                Reason.NODE_NAME_BLOCKED,
                f"{facts.machine} is node {other.node_name}, whose certificates may be in use until "
                f"{other.held_until:%Y-%m-%d %H:%M} UTC",
                min(other.held_until - facts.now, _RECHECK_AFTER),
                waits_for=(f"{NODE_USER_PREFIX}{other.node_name}",),
            )


def holds_node_name(facts: MachineFacts) -> bool:
    """Whether a record holds the node name for this identity as this same Machine."""
    record = facts.record
    return isinstance(record, AttestedNode) and is_attested_as_that_node(facts) and record.held_until > facts.now


def request_is_not_superseded(facts: MachineFacts) -> None:
    """No newer request of the same identity to the same signer was approved: no node waits for the older one.

    Copies of the request do not count: any user that can read it can post one, and they have the same key. Entries from
    the future do not count either: an API server whose clock was set back must not block its nodes.
    """
    record = facts.record
    if isinstance(record, NoRecord) or record.identity.digest != facts.identity.digest:
        return
    for entry in record.journal:
        if entry.signer_name != facts.signer_name or entry.public_key_digest == facts.public_key_digest:
            continue
        if facts.created < entry.created <= facts.now:
            raise Refused(Reason.SUPERSEDED, f"the newer CSR {entry.csr_name} of the same identity was approved")
