"""What is known of a Machine or node that has no request to explain: what its AttestedNode records."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from attestors.registry import Registry
from signer.configuration import Configuration
from signer.controller.status.policy_status import permitted_in
from signer.explain.machines import LastCertificate, MachineState, MachineStatus, machine_statuses
from signer.explain.next_commands import describe_machine
from signer.explain.subject import NamedMachine, NamedNode
from signer.model.cluster import ClusterKey
from signer.model.command_failures import CommandFailed
from signer.model.decision import Deferred, printable
from signer.model.fields import format_time
from signer.model.node_attested import valid_until
from signer.model.record import AttestedNode, record_name
from signer.store.authentic_records import NothingInTheWay
from signer.store.caches import Caches

# The times are those of the csrcleaner (kubernetes ``pkg/controller/certificates/cleaner``).
DELETED_REQUESTS: Final = (
    "The workload cluster deletes a decided CSR after an hour and any other after a day; Events, the controller's log "
    "and the audit log keep the decision"
)
_ASK_THE_NODE: Final = "If its node should have asked, run `kubelet-authenticator status` on the machine"


class UnknownNode(CommandFailed):
    """Nothing names the node; the message says where to look."""


@dataclass(frozen=True, slots=True)
class NoRequest:
    """A Machine or node without a request; all texts are printable."""

    cluster: ClusterKey
    subject: str
    at: datetime
    says: tuple[str, ...]
    """What is known, in whole sentences."""
    machines: tuple[MachineStatus, ...]
    """The Machine, or the Machines whose node has that name."""
    commands: tuple[str, ...]


def without_request(
    subject: NamedMachine | NamedNode,
    key: ClusterKey,
    caches: Caches,
    registry: Registry,
    configuration: Configuration,
    now: Callable[[], datetime],
) -> NoRequest:
    """What the records say.

    Raises:
        UnknownNode: no AttestedNode and no Machine names the node.
    """
    every = machine_statuses(key, caches, registry, permitted_in(key.namespace, configuration, registry), now)
    if isinstance(subject, NamedMachine):
        text = f"Machine {key.namespace}/{subject.name}"
        machines = tuple(one for one in every if one.machine.name == subject.name)
        says = [_sentence(one, now()) for one in machines] or [f"{text} is being deleted; its node renews no more."]
        nodes = [one.node for one in machines if one.node]
    else:
        text = f"node {subject.name}"
        machines = tuple(one for one in every if one.node == subject.name)
        says = [_sentence(one, now()) for one in machines] or [_recorded(subject.name, key, caches)]
        nodes = [subject.name]
    says.append(f"There is no request of {text} now. {DELETED_REQUESTS}.")
    if not any(one.state is MachineState.ATTESTED for one in machines):
        says.append(f"{_ASK_THE_NODE}.")
    described = [describe_machine(key, one.machine) for one in machines]
    shown = [f"node-attestation-controller audit show AUDIT-LOG --node {shlex.quote(node)}" for node in nodes]
    commands = (*described, *shown, f"node-attestation-controller status {key}")
    return NoRequest(key, text, now(), tuple(says), machines, commands)


def _sentence(one: MachineStatus, now: datetime) -> str:
    certificate = one.certificate
    state = f"{one.machine} is {one.state.value.lower()}"
    if one.state is MachineState.UNKNOWN:
        state = f"Whether {one.machine} is attested is unknown"
    parts = [state, *([one.reason] if one.reason else [])]
    if isinstance(certificate, LastCertificate):
        tense = "ends" if certificate.not_after > now else "ended"
        parts.append(
            f"the last client certificate of node {certificate.node}, by attestor {certificate.attestor}, {tense} at "
            f"{format_time(certificate.not_after)}"
        )
    return printable("; ".join(parts) + ".")


def _recorded(node: str, key: ClusterKey, caches: Caches) -> str:
    """What the AttestedNode of a node says that no Machine has.

    Raises:
        UnknownNode: there is none.
    """
    name = record_name(key, node)
    nowhere = UnknownNode(
        f"Cluster {key} has no node {node}: no request, no AttestedNode and no Machine names it: "
        f"`node-attestation-controller status {key}` lists the Machines with their nodes"
    )
    if isinstance(caches.authentic.in_the_way(key.namespace, name), NothingInTheWay):
        raise nowhere
    try:
        record = caches.authentic.get(key.namespace, name)
    except Deferred as error:
        raise UnknownNode(
            f"node {node} of Cluster {key}: no Machine names it, and AttestedNodes are not readable here: "
            f"{error.defer.message}"
        ) from error
    if not isinstance(record, AttestedNode):
        raise nowhere
    return printable(
        f"AttestedNode {key.namespace}/{name} is of {record.machine}, which does not exist any more; it was attested "
        f"by {record.identity.provider}, until {format_time(valid_until(record))}."
    )
