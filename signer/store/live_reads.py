"""Live reads: whether the objects that reservations and records name still exist in the API server."""

from __future__ import annotations

from signer.kube.calls import Get
from signer.kube.errors import NotFound
from signer.kube.resources import ATTESTED_NODES
from signer.model.cluster import MACHINE_POOL_KIND, MachineView, machine_view
from signer.model.fields import mapping_of, text_of
from signer.model.machine_pool import machine_pool_view
from signer.model.record import AttestedNode, MachineKey
from signer.store.caches import Caches
from signer.store.cluster_api import NotServed


class LiveReads:
    """Reads from the API server: an object that is missing in a cache may still exist."""

    def __init__(self, client: Get, caches: Caches) -> None:
        self._client = client
        self._caches = caches

    async def is_gone(self, machine: MachineKey) -> bool:
        """Whether that Machine, or instance of a MachinePool, no longer exists in the API server.

        Raises:
            ApiError: from the management cluster.
            Deferred: its namespace is over a limit, so that the cache may lack the Machine of an instance.
        """
        self._caches.require_all_kept(machine.cluster.namespace)
        if machine.kind != MACHINE_POOL_KIND:
            return not await self._machine_is(machine.name, machine)
        if await self._is_listed(machine):
            return False
        # The instance's Machine may outlive its entry in the pool's list; the cache says which Machine that is. A
        # Machine that is not cached yet is not searched: the identity has just been proven to be another Machine's.
        for candidate in self._caches.machines_with(machine.cluster, machine.provider_id):
            if await self._machine_is(candidate.name, machine):
                return False
        return True

    async def is_as_known(self, machine: MachineView) -> bool:
        """Whether the Machine in the API server equals the cached one.

        An instance of a MachinePool has nothing that may change, so no call is made for it.

        Raises:
            ApiError: from the management cluster.
        """
        if machine.kind == MACHINE_POOL_KIND:
            return True
        try:
            path = self._caches.version.machines.object(machine.name, machine.cluster.namespace)
            return machine_view(await self._client.get(path)).claiming(machine.claimed_provider_id) == machine
        except NotFound:
            return False

    async def is_recorded(self, record: AttestedNode) -> bool:
        """Whether that record exists in the API server, in this or another version.

        Raises:
            ApiError: from the management cluster.
        """
        try:
            found = await self._client.get(ATTESTED_NODES.object(record.name, record.machine.cluster.namespace))
        except NotFound:
            return False
        return text_of(mapping_of(found, "metadata"), "uid") == record.uid

    async def _machine_is(self, name: str, machine: MachineKey) -> bool:
        """Whether a Machine of that name exists and has that key."""
        try:
            path = self._caches.version.machines.object(name, machine.cluster.namespace)
            current = machine_view(await self._client.get(path))
        except NotFound:
            return False
        if MachineKey.of(current) == machine or current.provider_id:
            return MachineKey.of(current) == machine
        # A reservation outlives the claim that a record made for a Machine of that name and provider ID later.
        recorded = (record.machine for record in self._caches.authentic.of_machine(machine))
        return any(key.is_of_unidentified(current) for key in (machine, *recorded))

    async def _is_listed(self, instance: MachineKey) -> bool:
        """Whether the instance's MachinePool exists and lists it."""
        machine_pools = self._caches.version.machine_pools
        if isinstance(machine_pools, NotServed):
            return False
        try:
            path = machine_pools.object(instance.name, instance.cluster.namespace)
            pool = machine_pool_view(await self._client.get(path))
        except NotFound:
            return False
        return pool.cluster == instance.cluster and instance.provider_id in pool.provider_ids
