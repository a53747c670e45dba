"""Machines and instances of MachinePools, by provider ID. A match is one look-up, whatever the size of a pool.

An instance is one entry of a MachinePool's ``spec.providerIDList``. If the infrastructure provider creates Machines for
its pools (MachinePool Machines), the pool's Machine with that provider ID replaces the instance. A Machine that does
not belong to the pool makes the provider ID ambiguous.

The index by name and address keeps the names of one Machine out of the serving certificates of another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from heapq import nsmallest
from ipaddress import ip_address, ip_network
from itertools import chain, islice
from typing import Any, Final, TypeAlias

from signer.model.addresses import HostName, UnreadableAddress, canonical
from signer.model.cluster import MACHINE_KIND, MACHINE_POOL_KIND, ClusterKey, MachineView
from signer.model.machine_pool import MachinePoolView
from signer.model.object_sizes import MOST_READINGS
from signer.model.possible_addresses import possible_readings
from signer.model.record import MachineKey, unidentified, unidentified_name
from signer.rules.machine import MachineGone
from signer.rules.node_name import byoh_host_names, hetzner_bare_metal_names, scale_set_names
from signer.store.cache import ObjectKey

MOST_OTHERS: Final = 8
"""Maximum number of Machines, and of instances, of one name that a look-up returns. A tenant may give one name to all
of its Machines, and each request of their nodes looks it up.
"""

Concerned: TypeAlias = Mapping[ClusterKey, frozenset[str]]
"""For each cluster, the provider IDs whose Machines or instances a change concerns."""


class MachineIndex:
    """Follows changes of Machines and MachinePools; the cost of a change is proportional to its size."""

    def __init__(self) -> None:
        self._machines_by_provider_id: dict[tuple[ClusterKey, str], dict[ObjectKey, MachineView]] = {}
        self._machines_by_cluster: dict[ClusterKey, dict[ObjectKey, MachineView]] = {}
        self._machines: dict[ObjectKey, MachineView] = {}
        self._pools: dict[ObjectKey, MachinePoolView] = {}
        self._pools_by_cluster: dict[ClusterKey, dict[ObjectKey, None]] = {}
        self._pools_by_provider_id: dict[ClusterKey, dict[str, tuple[ObjectKey, ...]]] = {}

    # Look-ups

    def machines_with(self, cluster: ClusterKey, provider_id: str) -> tuple[MachineView, ...]:
        """The cluster's Machines with that provider ID, then the instances without a Machine of their own."""
        machines = tuple(self._machines_by_provider_id.get((cluster, provider_id), {}).values())
        listing = self._pools_by_provider_id.get(cluster, {}).get(provider_id)
        if listing is None:  # the common case: each request looks up a few times
            return machines
        return (*machines, *self._instances(provider_id, machines, listing))

    def first_with(self, cluster: ClusterKey, provider_id: str, most: int) -> tuple[MachineView, ...]:
        """The first ``most`` of :meth:`machines_with`: thousands of duplicates cost no more than a few."""
        machines = self._machines_by_provider_id.get((cluster, provider_id), {}).values()
        listing = self._pools_by_provider_id.get(cluster, {}).get(provider_id)
        if listing is None or len(machines) >= most:
            return tuple(islice(machines, most))
        return tuple(islice(chain(machines, self._instances(provider_id, machines, listing)), most))

    def _instances(
        self, provider_id: str, machines: Iterable[MachineView], listing: Iterable[ObjectKey]
    ) -> Iterator[MachineView]:
        """The instances of the pools that list the provider ID, without those that one of the Machines replaces."""
        replaced_in = {machine.owner_pool for machine in machines}
        pools = (self._pools[key] for key in listing)
        return (pool.instance(provider_id) for pool in pools if pool.name not in replaced_in)

    def machine_objects_with(self, cluster: ClusterKey, provider_ids: Iterable[str]) -> Iterator[MachineView]:
        """The cluster's Machines with one of these provider IDs, without instances: a pool may have thousands.

        A key of :func:`~signer.model.record.unidentified` stands for the Machine of that name.
        """
        for provider_id in provider_ids:
            named = self._machines.get((cluster.namespace, unidentified_name(provider_id)))
            if named is not None and named.cluster == cluster:
                yield named
            yield from tuple(self._machines_by_provider_id.get((cluster, provider_id), {}).values())

    def of_namespace_with(self, namespace: str, provider_id: str) -> Iterator[MachineView]:
        """Machines and instances that show that provider ID, one of each cluster of the namespace."""
        for cluster in {*self._machines_by_cluster, *self._pools_by_provider_id}:
            if cluster.namespace == namespace:
                yield from self.first_with(cluster, provider_id, 1)

    def machine(self, key: MachineKey) -> MachineView | MachineGone:
        """The Machine or instance of that key, in its current state."""
        if key.kind == MACHINE_POOL_KIND:
            candidates = self.machines_with(key.cluster, key.provider_id)
        else:
            found = self._machines.get((key.cluster.namespace, key.name))
            candidates = () if found is None else (found,)
            if found is not None and key.is_claimed and found.uid == key.claimed_by:
                if key.is_of_unidentified(found):
                    return found.claiming(key.provider_id)
                shows_one = bool(found.provider_id) or found.provider_id_is_unreadable
                if shows_one and found.provider_id != key.provider_id:
                    return MachineGone(shows=found.provider_id or "one that cannot be read")
        return next((candidate for candidate in candidates if MachineKey.of(candidate) == key), MachineGone())

    def machines_of(self, cluster: ClusterKey) -> Iterator[MachineView]:
        """All Machines of the cluster, without instances of pools, which have no addresses.

        The iterator returns a snapshot: changes during the iteration do not affect it.
        """
        return iter(tuple(self._machines_by_cluster.get(cluster, {}).values()))

    def instances_of(self, cluster: ClusterKey) -> Iterator[MachineView]:
        """All instances of the cluster's MachinePools without a Machine of their own. The index may change during
        iteration.
        """
        for pool in [self._pools[key] for key in self._pools_by_cluster.get(cluster, {})]:
            for provider_id in pool.provider_ids:
                machines = self._machines_by_provider_id.get((cluster, provider_id), {})
                if all(machine.owner_pool != pool.name for machine in machines.values()):
                    yield pool.instance(provider_id)

    # Changes

    def machine_changed(self, key: ObjectKey, before: MachineView | None, after: MachineView | None) -> Concerned:
        """A Machine was added (no ``before``), changed, or deleted (no ``after``)."""
        if before == after:
            return {}
        if before is not None:
            del self._machines[key]
            _drop(self._machines_by_provider_id, (before.cluster, before.provider_id), key)
            _drop(self._machines_by_cluster, before.cluster, key)
        if after is not None:
            self._machines[key] = after
            self._machines_by_cluster.setdefault(after.cluster, {})[key] = after
            if after.provider_id:
                self._machines_by_provider_id.setdefault((after.cluster, after.provider_id), {})[key] = after
        return _concerned(
            (machine.cluster, frozenset({machine.provider_id or unidentified(machine.name)}))
            for machine in (before, after)
            if machine is not None
        )

    def pool_changed(self, key: ObjectKey, before: MachinePoolView | None, after: MachinePoolView | None) -> Concerned:
        """A MachinePool was added, changed or deleted. The cost is proportional to the changed provider IDs."""
        if before == after:
            return {}
        removed: frozenset[str] = frozenset() if before is None else before.provider_ids
        added: frozenset[str] = frozenset() if after is None else after.provider_ids
        if before is not None and after is not None and before.cluster == after.cluster:
            removed, added = removed - added, added - removed
        if before is not None:
            self._pools.pop(key)
            _drop(self._pools_by_cluster, before.cluster, key)
            self._unlist(before.cluster, key, removed)
        if after is not None:
            self._pools[key] = after
            self._pools_by_cluster.setdefault(after.cluster, {})[key] = None
            self._list(after.cluster, key, added)
        if before is not None and after is not None and _only_lists_differ(before, after):
            return _concerned([(after.cluster, added | removed)])
        return _concerned((pool.cluster, pool.provider_ids) for pool in (before, after) if pool is not None)

    def _list(self, cluster: ClusterKey, pool: ObjectKey, provider_ids: frozenset[str]) -> None:
        """Add provider IDs of a pool. One event may hold ten thousand, so IDs of a single pool share one tuple."""
        alone, listing = (pool,), self._pools_by_provider_id.setdefault(cluster, {})
        for provider_id in provider_ids:
            if listing.setdefault(provider_id, alone) is not alone:
                listing[provider_id] = (*listing[provider_id], pool)
        if not listing:
            del self._pools_by_provider_id[cluster]

    def _unlist(self, cluster: ClusterKey, pool: ObjectKey, provider_ids: frozenset[str]) -> None:
        listing = self._pools_by_provider_id.get(cluster, {})
        for provider_id in provider_ids:
            pools = listing.pop(provider_id)
            if len(pools) > 1:
                listing[provider_id] = tuple(other for other in pools if other != pool)
        if not listing:
            self._pools_by_provider_id.pop(cluster, None)


def _concerned(changes: Iterable[tuple[ClusterKey, frozenset[str]]]) -> Concerned:
    concerned: dict[ClusterKey, frozenset[str]] = {}
    for cluster, provider_ids in changes:
        if provider_ids:
            concerned[cluster] = concerned.get(cluster, frozenset()) | provider_ids
    return concerned


def _only_lists_differ(before: MachinePoolView, after: MachinePoolView) -> bool:
    """Whether the instances in both lists are unchanged: the number of replicas is no property of an instance."""
    return replace(before, provider_ids=after.provider_ids, replicas=after.replicas) == after


def _drop(index: dict[Any, dict[ObjectKey, Any]], index_key: Any, key: ObjectKey) -> None:
    entries = index.get(index_key, {})
    entries.pop(key, None)
    if not entries:
        index.pop(index_key, None)


Held: TypeAlias = tuple[ClusterKey, str]
"""A name in a Cluster."""
_NONE: Final[frozenset[ObjectKey]] = frozenset()


class Holders:
    """The Machines that hold each name, in the order in which they came to it. A name of one Machine, as nearly all
    are, takes a third of a dictionary's memory.
    """

    def __init__(self) -> None:
        self._held: dict[Held, ObjectKey | dict[ObjectKey, None]] = {}

    def move(self, key: ObjectKey, gone: Iterable[Held], new: Iterable[Held]) -> None:
        """The Machine no longer holds the names ``gone``, and holds the names ``new``."""
        for held in gone:
            keys = self._held[held]
            if isinstance(keys, tuple):
                del self._held[held]
                continue
            keys.pop(key, None)
            if len(keys) == 1:
                (self._held[held],) = keys
        for held in new:
            keys = self._held.setdefault(held, key)
            if isinstance(keys, dict):
                keys[key] = None
            elif keys != key:
                self._held[held] = {keys: None, key: None}

    def of(self, held: Held) -> Set[ObjectKey]:
        """The Machines that hold the name."""
        keys = self._held.get(held)
        if keys is None:
            return _NONE
        return {keys} if isinstance(keys, tuple) else keys.keys()


class NameIndex:
    """Names, infrastructure names, addresses and names in provider IDs of all Machines, in canonical spelling.

    Instances of MachinePools have no names of their own. The kubelet chooses the name in a nodeRef, so it is no name of
    the Machine; it shows only which node runs on it.
    """

    def __init__(self) -> None:
        self._holders = Holders()
        self._nodes = Holders()
        self._hosts = Holders()
        """Hosts of the names in domains, without the domain."""
        self._possible = Holders()
        """Readings of addresses that cannot be read, networks among them."""
        self._prefixes: dict[ClusterKey, Counter[tuple[int, int]]] = {}
        """IP version and prefix length of the networks in ``_possible``."""
        self._unreadable: dict[ClusterKey, dict[ObjectKey, MachineView]] = {}
        self._by_contained_name: dict[ClusterKey, dict[str, dict[str, int]]] = {}
        """By cluster and by the name in a provider ID: the number of pools that list the provider ID."""

    def changed(self, key: ObjectKey, before: MachineView | None, after: MachineView | None) -> None:
        """A Machine was added, changed or deleted."""
        if before == after:
            return
        for holders, names in ((self._holders, _names), (self._nodes, _node), (self._hosts, _hosts)):
            old = names(before) if before is not None else frozenset()
            new = names(after) if after is not None else frozenset()
            holders.move(key, old - new, new - old)
        self._unreadable_changed(key, before, after)

    def _unreadable_changed(self, key: ObjectKey, before: MachineView | None, after: MachineView | None) -> None:
        old = _unreadable_names(before) if before is not None else frozenset()
        new = _unreadable_names(after) if after is not None else frozenset()
        self._possible.move(key, old - new, new - old)
        for names, count in ((old - new, -1), (new - old, 1)):
            for cluster, name in names:
                if "/" in name:
                    self._count_network(cluster, name, count)
        if before is not None:
            _drop(self._unreadable, before.cluster, key)
        if after is not None and after.unreadable_addresses:
            self._unreadable.setdefault(after.cluster, {})[key] = after

    def _count_network(self, cluster: ClusterKey, name: str, count: int) -> None:
        network, prefixes = ip_network(name), self._prefixes.setdefault(cluster, Counter())
        prefixes[network.version, network.prefixlen] += count
        if not prefixes[network.version, network.prefixlen]:
            del prefixes[network.version, network.prefixlen]
        if not prefixes:
            del self._prefixes[cluster]

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
        """Provider IDs of other MachinePool instances of the same Cluster that contain that node name, ``MOST_OTHERS``
        at most.
        """
        called = self._by_contained_name.get(machine.cluster, {}).get(node_name, {})
        return frozenset(islice((one for one in called if one != machine.provider_id), MOST_OTHERS))

    def other_machines_named(self, machine: MachineView, node_name: str) -> tuple[ObjectKey, ...]:
        """Other Machines of the same Cluster: first those whose node has that name, then those that have the name
        themselves. A few of each, and all where they are few.
        """
        own = _own_key(machine)
        held = (machine.cluster, canonical(node_name))
        found = (_few(holders.of(held), own) for holders in (self._nodes, self._holders, self._possible))
        return tuple(dict.fromkeys(chain.from_iterable(found)))

    def other_machines_with_host(self, machine: MachineView, name: str) -> tuple[ObjectKey, ...]:
        """Other Machines of the same Cluster with a name of the same host as ``name``, in any domain or in none. A few
        of each, and all where they are few.
        """
        own = _own_key(machine)
        held = (machine.cluster, canonical(name).partition(".")[0])
        return tuple(sorted({*_few(self._holders.of(held), own), *_few(self._hosts.of(held), own)}))

    def other_instances_with_host(self, machine: MachineView, name: str) -> frozenset[str]:
        """Provider IDs of other MachinePool instances of the same Cluster that contain the host of ``name``."""
        return self.other_instances_named(machine, canonical(name).partition(".")[0])

    def ending_in(self, cluster: ClusterKey, part: str) -> Iterator[ObjectKey | str]:
        """Machines that have the name, among them those whose provider ID ends in it; and the provider IDs of instances
        that end in it. The iterator is valid until the next change.
        """
        yield from self._holders.of((cluster, canonical(part)))
        yield from self._by_contained_name.get(cluster, {}).get(part, ())

    def conflicting_names(self, machine: MachineView, names: Iterable[str]) -> frozenset[str]:
        """Those of ``names``, in canonical spelling, that another Machine of the same Cluster has."""
        own = _own_key(machine)
        return frozenset(name for name in names if not self._holders.of((machine.cluster, name)) <= own)

    def possibly_conflicting_names(self, machine: MachineView, names: Iterable[str]) -> frozenset[str]:
        """Those of ``names``, in canonical spelling, that an address of another Machine of the same Cluster may be, if
        that address cannot be read.
        """
        own = _own_key(machine)
        prefixes = self._prefixes.get(machine.cluster, ())
        return frozenset(
            name
            for name in names
            if not all(self._possible.of((machine.cluster, text)) <= own for text in _with_networks(name, prefixes))
        )

    def unreadable(self, cluster: ClusterKey, most: int) -> tuple[MachineView, ...]:
        """The Machines with addresses that cannot be read; of more than ``most``, the first by name."""
        found = self._unreadable.get(cluster, {})
        return tuple(found[key] for key in nsmallest(most, found))

    def count_unreadable(self, cluster: ClusterKey) -> int:
        """The number of Machines with addresses that cannot be read."""
        return len(self._unreadable.get(cluster, {}))


def _own_key(machine: MachineView) -> set[ObjectKey]:
    return {(machine.cluster.namespace, machine.name)} if machine.kind == MACHINE_KIND else set()


def _few(keys: Iterable[ObjectKey], own: set[ObjectKey]) -> list[ObjectKey]:
    """``MOST_OTHERS`` of the keys, without its own, sorted."""
    return sorted(islice((key for key in keys if key not in own), MOST_OTHERS))


def _with_networks(name: str, prefixes: Iterable[tuple[int, int]]) -> Iterator[str]:
    """The name, and if it is an IP address, the networks of these prefix lengths around it."""
    yield name
    if not prefixes:
        return
    try:
        version = ip_address(name).version
    except ValueError:
        return
    for of, length in prefixes:
        if of == version:
            yield str(ip_network(f"{name}/{length}", strict=False))


def _names_by_provider_id(provider_ids: Iterable[str]) -> Iterator[tuple[str, str]]:
    for provider_id in provider_ids:
        for name in _names_in(provider_id):
            yield provider_id, name


def _names_in(provider_id: str) -> tuple[str, ...]:
    """Node names in a provider ID: by source ``ProviderID``, and by the naming of Azure scale sets and BYOH."""
    last = provider_id.rstrip("/").rpartition("/")[2]
    return (last, *scale_set_names(provider_id), *byoh_host_names(provider_id))


def _node(machine: MachineView) -> frozenset[Held]:
    return frozenset({(machine.cluster, canonical(machine.node_ref))}) if machine.node_ref else frozenset()


def _names_of_itself(machine: MachineView) -> tuple[str, ...]:
    """Its node's names by the sources other than addresses."""
    names = (
        machine.name,
        machine.infrastructure_name,
        *_names_in(machine.provider_id),
        *hetzner_bare_metal_names(machine),
    )
    return tuple(filter(None, names))


def _names(machine: MachineView) -> frozenset[Held]:
    readings = (one.reading for one in machine.addresses)
    return frozenset(
        (machine.cluster, name)
        for name in (
            *(canonical(name) for name in _names_of_itself(machine)),
            *(reading.text for reading in readings if not isinstance(reading, UnreadableAddress)),
        )
    )


def _hosts(machine: MachineView) -> frozenset[Held]:
    names = (
        *(canonical(name) for name in _names_of_itself(machine)),
        *(one.reading.text for one in machine.addresses if isinstance(one.reading, HostName)),
    )
    return frozenset((machine.cluster, name.partition(".")[0]) for name in names if "." in name)


def _unreadable_names(machine: MachineView) -> frozenset[Held]:
    """The readings of the Machine's unreadable addresses; no more than a Machine may have addresses."""
    unreadable = (one for one in machine.addresses if isinstance(one.reading, UnreadableAddress))
    readings = chain.from_iterable(possible_readings(one.address, one.type) for one in unreadable)
    return frozenset((machine.cluster, name) for name in islice(readings, MOST_READINGS))
