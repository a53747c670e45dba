"""Which Machines have a name or an address: so that no serving certificate holds what belongs to another."""

from __future__ import annotations

from collections.abc import Iterable

from signer.model.cluster import MACHINE_KIND, ClusterKey, MachineView
from signer.rules.serving import canonical
from signer.store.mirror import ObjectKey


class NameIndex:
    """Names, infrastructure names and addresses of all Machines, in their one spelling.

    Instances of MachinePools have none of their own. A nodeRef is what a kubelet chose: it is no name of its Machine.
    """

    def __init__(self) -> None:
        self._holders: dict[tuple[ClusterKey, str], set[ObjectKey]] = {}

    def changed(self, key: ObjectKey, before: MachineView | None, after: MachineView | None) -> None:
        """A Machine appeared, changed or went."""
        if before == after:
            return
        old = _names(before) if before is not None else frozenset()
        new = _names(after) if after is not None else frozenset()
        for held in old - new:
            holders = self._holders[held]
            holders.discard(key)
            if not holders:
                del self._holders[held]
        for held in new - old:
            self._holders.setdefault(held, set()).add(key)

    def held_by_others(self, machine: MachineView, names: Iterable[str]) -> frozenset[str]:
        """Those of ``names`` that another Machine of the same Cluster has; each is in its one spelling."""
        own = {(machine.cluster.namespace, machine.name)} if machine.kind == MACHINE_KIND else set()
        return frozenset(name for name in names if self._holders.get((machine.cluster, name), set()) - own)


def _names(machine: MachineView) -> frozenset[tuple[ClusterKey, str]]:
    names = (machine.name, machine.infrastructure_name, *(address.address for address in machine.addresses))
    return frozenset((machine.cluster, canonical(name)) for name in names if name)
