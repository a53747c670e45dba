"""Whether what reservations and records name is still there, asked of the API server itself."""

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
    """Asks; what a cache lacks is not gone."""

    def __init__(self, client: Get, caches: Caches) -> None:
        self._client = client
        self._caches = caches

    async def is_gone(self, machine: MachineKey) -> bool:
        """Whether that Machine, or instance of a MachinePool, no longer exists, asked of the API server itself.

        Raises:
            ApiError: from the management cluster.
        """
        if machine.kind != MACHINE_POOL_KIND:
            return not await self._machine_is(machine.name, machine)
        if await self._is_listed(machine):
            return False
        # Its Machine may outlive its entry in the pool's list, and the cache says which Machine that is. One that the
        # cache does not have yet is not looked for: the identity has just been proven to be another Machine now.
        for candidate in self._caches.machines_with(machine.cluster, machine.provider_id):
            if await self._machine_is(candidate.name, machine):
                return False
        return True

    async def is_as_known(self, machine: MachineView) -> bool:
        """Whether that Machine is still as the cache has it, asked of the API server itself.

        Of an instance of a MachinePool nothing is known that may change, and nobody is asked.

        Raises:
            ApiError: from the management cluster.
        """
        if machine.kind == MACHINE_POOL_KIND:
            return True
        try:
            path = self._caches.version.machines.object(machine.name, machine.cluster.namespace)
            return machine_view(await self._client.get(path)) == machine
        except NotFound:
            return False

    async def is_recorded(self, record: AttestedNode) -> bool:
        """Whether that record is there, in this or another version, asked of the API server itself.

        Raises:
            ApiError: from the management cluster.
        """
        try:
            found = await self._client.get(ATTESTED_NODES.object(record.name, record.machine.cluster.namespace))
        except NotFound:
            return False
        return text_of(mapping_of(found, "metadata"), "uid") == record.uid

    async def _machine_is(self, name: str, machine: MachineKey) -> bool:
        """Whether there is a Machine of that name, and it has that key."""
        try:
            path = self._caches.version.machines.object(name, machine.cluster.namespace)
            current = machine_view(await self._client.get(path))
        except NotFound:
            return False
        return MachineKey.of(current) == machine

    async def _is_listed(self, instance: MachineKey) -> bool:
        """Whether its MachinePool is there, and lists it."""
        machine_pools = self._caches.version.machine_pools
        if isinstance(machine_pools, NotServed):
            return False
        try:
            path = machine_pools.object(instance.name, instance.cluster.namespace)
            pool = machine_pool_view(await self._client.get(path))
        except NotFound:
            return False
        return pool.cluster == instance.cluster and instance.provider_id in pool.provider_ids
