"""The Cluster API version that the management cluster serves."""

from __future__ import annotations

from dataclasses import dataclass

from signer.kube.calls import Get
from signer.kube.discovery import served_plurals, served_versions
from signer.kube.errors import ResourceNotServed
from signer.kube.resources import (
    CLUSTERS_V1BETA1,
    CLUSTERS_V1BETA2,
    MACHINE_POOLS_V1BETA1,
    MACHINE_POOLS_V1BETA2,
    MACHINES_V1BETA1,
    MACHINES_V1BETA2,
    Resource,
)


@dataclass(frozen=True, slots=True)
class NotServed:
    """The management cluster does not serve that resource."""


@dataclass(frozen=True, slots=True)
class ClusterAPIVersion:
    """The one Cluster API version that the controller reads: v1beta2 where it is served."""

    clusters: Resource
    machines: Resource
    machine_pools: Resource | NotServed = NotServed()

    def __str__(self) -> str:
        """The version for messages."""
        without = " without MachinePools" if isinstance(self.machine_pools, NotServed) else ""
        return f"{self.clusters.api_version}{without}"


_V1BETA2 = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2, MACHINE_POOLS_V1BETA2)
_V1BETA1 = ClusterAPIVersion(CLUSTERS_V1BETA1, MACHINES_V1BETA1, MACHINE_POOLS_V1BETA1)


async def discover_cluster_api(client: Get) -> ClusterAPIVersion:
    """Ask the API server which version it serves, and whether it serves MachinePools.

    Only Cluster API up to v1.10 serves v1beta1 without v1beta2.

    Raises:
        ResourceNotServed: the API server serves neither version, or only a part of one.
        ApiError: the API server cannot be asked.
    """
    try:
        served = await served_versions(client, CLUSTERS_V1BETA2.group)
    except ResourceNotServed as error:
        raise _neither() from error
    for known in (_V1BETA2, _V1BETA1):
        if known.clusters.version in served:
            return await _as_served(known, served, client)
    raise _neither()


async def _as_served(known: ClusterAPIVersion, served: frozenset[str], client: Get) -> ClusterAPIVersion:
    """Check that all definitions of the version are served: they are installed one after the other, and the group lists
    a version as soon as one of them has it.
    """
    group, version, pools = known.clusters.group, known.clusters.version, MACHINE_POOLS_V1BETA2.plural
    plurals = await served_plurals(client, group, version)
    if not {known.clusters.plural, known.machines.plural} <= plurals:
        raise ResourceNotServed(
            f"it serves {group}/{version} without Clusters or Machines: install all of Cluster API there", status=404
        )
    if pools in plurals:
        return known
    older = CLUSTERS_V1BETA1.version
    if older != version and older in served and pools in await served_plurals(client, group, older):
        raise ResourceNotServed(
            f"it serves MachinePools in {older}, and not in {version}: install all of one Cluster API there", status=404
        )
    return ClusterAPIVersion(known.clusters, known.machines)


def _neither() -> ResourceNotServed:
    versions = f"{CLUSTERS_V1BETA2.api_version} nor {CLUSTERS_V1BETA1.version}"
    return ResourceNotServed(
        f"it serves neither {versions}: install Cluster API there, or name the cluster where it is", status=404
    )
