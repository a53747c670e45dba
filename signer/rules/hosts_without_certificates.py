"""Which nodes of a cluster have no valid host certificate: clients cannot tell them from impostors. Pure.

Nodes that joined before SSH was turned on, and the machine of ``kubeadm init``, get theirs with the first client
certificate that they request through the agent.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from signer.model.cluster import MachineView
from signer.model.host_keys import AttestedHostKeys
from signer.model.record import AttestedNode, MachineKey


class WhyNone(enum.Enum):
    """Why a node has no valid host certificate."""

    NOT_ATTESTED = "its Machine has no record: the node has not attested"
    NONE_ISSUED = "it attested, and its requests named no host keys or got no certificates for them"
    RUN_OUT = "its host certificate has run out"


@dataclass(frozen=True, slots=True)
class HostWithoutCertificate:
    """A node without a valid host certificate."""

    name: str
    """The node's name; the Machine's where no node has attested."""
    why: WhyNone


def hosts_without_certificates(
    machines: Iterable[MachineView], records: Iterable[AttestedNode], now: datetime
) -> Sequence[HostWithoutCertificate]:
    """The nodes without, by name. Machines that are being deleted do not count, nor records without a Machine.

    ``records`` are the authentic ones of the machines' cluster.
    """
    by_machine: dict[MachineKey, list[AttestedNode]] = {}
    for record in records:
        by_machine.setdefault(record.machine, []).append(record)
    found: list[HostWithoutCertificate] = []
    for machine in machines:
        if machine.deleting:
            continue
        own = by_machine.get(MachineKey.of(machine), [])
        if not own:
            found.append(HostWithoutCertificate(machine.name, WhyNone.NOT_ATTESTED))
        elif all(_lacks_one(record, now) for record in own):
            last = max(own, key=lambda record: record.last_attestation)
            found.append(HostWithoutCertificate(last.node_name, _why(last)))
    return sorted(found, key=lambda one: one.name)


def _lacks_one(record: AttestedNode, now: datetime) -> bool:
    return not isinstance(record.ssh, AttestedHostKeys) or record.ssh.not_after <= now


def _why(record: AttestedNode) -> WhyNone:
    return WhyNone.RUN_OUT if isinstance(record.ssh, AttestedHostKeys) else WhyNone.NONE_ISSUED
