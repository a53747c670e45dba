"""Reads what nodes report from their sealed records. Only an attested request writes those."""

from __future__ import annotations

from signer.model.cluster import LONG_AGO, ClusterKey
from signer.model.host_keys import AttestedHostKeys, FormerHostCertificates, NoHostKeys, ReportedTrust
from signer.model.record import AttestedNode
from signer.rotation.observer import attested_nodes
from signer.rules.machine import MachineGone
from signer.ssh.reports import NodeReport, Reports
from signer.store.caches import Caches


def recorded_reports(caches: Caches, key: ClusterKey) -> Reports:
    """Implements :data:`~signer.ssh.reports.ReportsOf`. The caches must be in touch with the management cluster.

    A node whose requests never named host keys reports nothing. A worker that joined and has no record that counts may
    have been given some trust.
    """
    found: list[NodeReport] = []
    leaving: list[NodeReport] = []
    for record in caches.authentic.values():
        if record.machine.cluster == key and not isinstance(record.ssh, NoHostKeys):
            machine = caches.machine(record.machine)
            if not isinstance(machine, MachineGone):
                (leaving if machine.deleting else found).append(_report(record, record.ssh))
    nodes = attested_nodes(caches, key, tuple(caches.machines_of(key)))
    return Reports(_by_name(found), nodes.unattested, _by_name(leaving), nodes.leaving_unattested)


def _by_name(found: list[NodeReport]) -> tuple[NodeReport, ...]:
    return tuple(sorted(found, key=lambda one: one.node))


def _report(record: AttestedNode, ssh: AttestedHostKeys | ReportedTrust) -> NodeReport:
    if isinstance(ssh, ReportedTrust):
        return NodeReport(record.node_name, ssh.trust_version, "", LONG_AGO)
    former = ssh.former.not_after if isinstance(ssh.former, FormerHostCertificates) else LONG_AGO
    return NodeReport(record.node_name, ssh.trust_version, ssh.authority, ssh.not_after, former)


__all__ = ["recorded_reports"]
