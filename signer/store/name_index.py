"""The names and addresses of each Machine, so that no serving certificate contains those of another Machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from signer.model.cluster import MACHINE_KIND, ClusterKey, MachineView
from signer.model.machine_pool import MachinePoolView
from signer.rules.node_name import scale_set_names
from signer.rules.serving import canonical
from signer.store.cache import ObjectKey


class NameIndex:
    """Names, infrastructure names, addresses and names in provider IDs of all Machines, in canonical spelling.

    Instances of MachinePools have no names of their own. The kubelet chooses the name in a nodeRef, so it is no name of
    the Machine; it shows only which node runs on it.
    """

    def __init__(self) -> None:
        self._holders: _Holders = {}
        self._nodes: _Holders = {}
        self._by_contained_name: dict[ClusterKey, dict[str, dict[str, int]]] = {}
        """By cluster and by the name in a provider ID: the number of pools that list the provider ID."""

    def changed(self, key: ObjectKey, before: MachineView | None, after: MachineView | None) -> None:
        """A Machine was added, changed or deleted."""
        if before == after:
            return
        for holders, names in ((self._holders, _names), (self._nodes, _node)):
            old = names(before) if before is not None else frozenset()
            new = names(after) if after is not None else frozenset()
            _move(holders, key, old - new, new - old)

    def pool_changed(self, before: MachinePoolView | None, after: MachinePoolView | None) -> None:
        """A MachinePool was added, changed or deleted: the provider IDs of its instances contain node names."""
        if before is not None and after is not None and before.cluster == after.cluster:
            self._update_contained_names(
                after.cluster, before.provider_ids - after.provider_ids, after.provider_ids - before.provider_ids
            )
            return
        if before is not None:
            self._update_contained_names(before.cluster, before.provider_ids, frozenset())
        if after is not None:
            self._update_contained_names(after.cluster, frozenset(), after.provider_ids)

    def _update_contained_names(self, cluster: ClusterKey, gone: frozenset[str], new: frozenset[str]) -> None:
        by_name = self._by_contained_name.setdefault(cluster, {})
        for provider_id, name in _names_by_provider_id(gone):
            called = by_name[name]
            called[provider_id] -= 1
            if not called[provider_id]:
                del called[provider_id]
            if not called:
                del by_name[name]
        for provider_id, name in _names_by_provider_id(new):
            called = by_name.setdefault(name, {})
            called[provider_id] = called.get(provider_id, 0) + 1
        if not by_name:
            del self._by_contained_name[cluster]

    def other_instances_named(self, machine: MachineView, node_name: str) -> frozenset[str]:
        """Provider IDs of other MachinePool instances of the same Cluster that contain that node name."""
        called = self._by_contained_name.get(machine.cluster, {}).get(node_name, {})
        return frozenset(called.keys() - {machine.provider_id})

    def other_machines_named(self, machine: MachineView, node_name: str) -> tuple[ObjectKey, ...]:
        """Other Machines of the same Cluster: first those whose node has that name, then those that have the name
        themselves.
        """
        own = {(machine.cluster.namespace, machine.name)} if machine.kind == MACHINE_KIND else set()
        held = (machine.cluster, canonical(node_name))
        nodes = self._nodes.get(held, set()) - own
        return (*sorted(nodes), *sorted(self._holders.get(held, set()) - own - nodes))

    def conflicting_names(self, machine: MachineView, names: Iterable[str]) -> frozenset[str]:
        """Those of ``names``, in canonical spelling, that another Machine of the same Cluster has."""
        own = {(machine.cluster.namespace, machine.name)} if machine.kind == MACHINE_KIND else set()
        return frozenset(name for name in names if self._holders.get((machine.cluster, name), set()) - own)


_Holders: TypeAlias = dict[tuple[ClusterKey, str], set[ObjectKey]]


def _move(
    holders: _Holders, key: ObjectKey, gone: Iterable[tuple[ClusterKey, str]], new: Iterable[tuple[ClusterKey, str]]
) -> None:
    for held in gone:
        holders[held].discard(key)
        if not holders[held]:
            del holders[held]
    for held in new:
        holders.setdefault(held, set()).add(key)


def _names_by_provider_id(provider_ids: Iterable[str]) -> Iterator[tuple[str, str]]:
    for provider_id in provider_ids:
        for name in _names_in(provider_id):
            yield provider_id, name


def _names_in(provider_id: str) -> tuple[str, ...]:
    """Node names in a provider ID: by ``nodeNameSource: ProviderID``, and by the naming of Azure scale sets."""
    return (provider_id.rpartition("/")[2], *scale_set_names(provider_id))


def _node(machine: MachineView) -> frozenset[tuple[ClusterKey, str]]:
    return frozenset({(machine.cluster, canonical(machine.node_ref))}) if machine.node_ref else frozenset()


def _names(machine: MachineView) -> frozenset[tuple[ClusterKey, str]]:
    names = (
        machine.name,
        machine.infrastructure_name,
        *_names_in(machine.provider_id),
        *(address.address for address in machine.addresses),
    )
    return frozenset((machine.cluster, canonical(name)) for name in names if name)
