"""Reads what nodes report from their sealed records. Only an attested request writes those."""

from __future__ import annotations

from signer.model.cluster import ClusterKey
from signer.model.host_keys import AttestedHostKeys
from signer.model.record import AttestedNode
from signer.rotation.observer import attested_nodes
from signer.rules.machine import MachineGone
from signer.ssh.reports import NodeReport, Reports
from signer.store.caches import Caches


def recorded_reports(caches: Caches, key: ClusterKey) -> Reports:
    """Implements :data:`~signer.ssh.reports.ReportsOf`. The caches must be in touch with the management cluster.

    A node that never got a host certificate reports nothing, and may have read the trust bundle all the same. A worker
    that joined and has no record that counts may have been given some trust.
    """
    found = []
    for record in caches.authentic.values():
        if record.machine.cluster == key and isinstance(record.ssh, AttestedHostKeys):
            machine = caches.machine(record.machine)
            if not isinstance(machine, MachineGone) and not machine.deleting:
                found.append(_report(record, record.ssh))
    unattested = attested_nodes(caches, key, tuple(caches.machines_of(key))).unattested
    return Reports(tuple(sorted(found, key=lambda one: one.node)), unattested)


def _report(record: AttestedNode, ssh: AttestedHostKeys) -> NodeReport:
    return NodeReport(record.node_name, ssh.trust_version, ssh.authority, ssh.not_after)


__all__ = ["recorded_reports"]
