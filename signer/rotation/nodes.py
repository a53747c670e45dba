"""What the records of nodes prove about the CAs that they trust and use. Pure.

The evidence of each attested request names the first CA that the running kubelet trusts. So the newest entry of a
node's journal is a proof, and not a report.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from signer.model.certificates_in_use import EVER, NotAll, certificates_in_use
from signer.model.cluster import MachineView
from signer.model.record import KUBELET_CLIENT, KUBELET_SERVING, AttestedNode, JournalEntry
from signer.rotation.facts import NodeFacts

_UNKNOWN: Final = frozenset({NotAll.UNKNOWN_KIND, NotAll.NOT_RECORDED})
"""Reasons for which the newest certificate may be another one. What left the journal is older than what is in it."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of one cluster."""

    attested: tuple[NodeFacts, ...]
    unattested: tuple[str, ...]
    """Workers that joined and have no record; sorted. Machines of the control plane are replaced by rollouts."""
    leaving_unattested: tuple[str, ...]
    """The same of Machines that are being deleted, which count nowhere else."""
    joining: dict[str, datetime]
    """Workers that have not joined, with their creation times."""


def nodes_of(machines: Iterable[MachineView], records: Iterable[tuple[MachineView, AttestedNode]]) -> Nodes:
    """The nodes of the Machines that exist."""
    attested, known = [], set()
    for machine, record in records:
        known.add(machine.name)
        if not machine.deleting:
            attested.append(_facts(machine, record))
    without = [one for one in machines if one.node_ref and not one.control_plane and one.name not in known]
    unattested = sorted(one.name for one in without if not one.deleting)
    leaving = sorted(one.name for one in without if one.deleting)
    joining = {
        one.name: one.created for one in machines if not one.node_ref and not one.deleting and not one.control_plane
    }
    return Nodes(tuple(sorted(attested, key=lambda one: one.node)), tuple(unattested), tuple(leaving), joining)


def _facts(machine: MachineView, record: AttestedNode) -> NodeFacts:
    ever = certificates_in_use((record,), EVER)
    newest = _newest(ever.own)
    return NodeFacts(
        node=record.node_name,
        machine=machine.name,
        evidence=newest.evidence_ca_cert_hash if newest else "",
        client=_ca_of_newest(ever.own, KUBELET_CLIENT),
        serving=_ca_of_newest(ever.own, KUBELET_SERVING),
        is_all=not ever.not_all & _UNKNOWN,
    )


def _newest(entries: Iterable[JournalEntry]) -> JournalEntry | None:
    """The last one of the journal: replicas' clocks differ, so the greatest time may be that of an older entry."""
    return next(reversed(tuple(entries)), None)


def _ca_of_newest(entries: Iterable[JournalEntry], kind: str) -> str:
    newest = _newest(entry for entry in entries if entry.kind == kind)
    return newest.ca_cert_hash if newest else ""
