"""The names and addresses of a serving request that belong to other Machines and nodes of the cluster."""

from __future__ import annotations

from attestors.contract import IPAddress
from signer.model.cluster import MachineView
from signer.model.record import AttestedNode, MachineKey
from signer.rules.serving import canonical, equivalent_addresses
from signer.store.caches import Caches
from signer.store.records import Records


def conflicting_names(
    caches: Caches,
    records: Records,
    machine: MachineView,
    dns_names: tuple[str, ...],
    ip_addresses: tuple[IPAddress, ...],
) -> frozenset[str]:
    """The requested names and addresses that other Machines have now, or other nodes by their records.

    Equivalent addresses count too. Each is in canonical form (:func:`~signer.rules.serving.canonical`).
    """
    names = frozenset(canonical(name) for name in dns_names)
    addresses = frozenset(str(face) for address in ip_addresses for face in equivalent_addresses(address))
    return caches.names.conflicting_names(machine, names | addresses) | frozenset(
        name for name in names if _is_anothers_node(records, machine, name)
    )


def _is_anothers_node(records: Records, machine: MachineView, name: str) -> bool:
    record = records.recorded(machine.cluster, name)
    return isinstance(record, AttestedNode) and record.machine != MachineKey.of(machine)
