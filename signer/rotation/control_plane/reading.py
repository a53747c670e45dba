"""Reads a control plane's objects: one GET of each by name for a pass, without a watch; Machines from the caches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from signer.kube.calls import Get
from signer.kube.discovery import first_served
from signer.kube.errors import ResourceNotServed
from signer.kube.resources import KUBEADM_CONTROL_PLANES_V1BETA1, KUBEADM_CONTROL_PLANES_V1BETA2, Resource
from signer.model.cluster import ClusterKey
from signer.rotation.control_plane.kind import ControlPlaneReference
from signer.rotation.control_plane.kubeadm_control_plane import (
    InvalidControlPlane,
    KubeadmControlPlane,
    RotatedCluster,
    Version,
    kubeadm_control_plane,
    rotated_cluster,
)
from signer.rotation.control_plane.machines import ClusterMachines, cluster_machines
from signer.rotation.control_plane.template import NotSet
from signer.store.caches import Caches

RESOURCES: Final[Mapping[Version, Resource]] = {
    Version.V1BETA2: KUBEADM_CONTROL_PLANES_V1BETA2,
    Version.V1BETA1: KUBEADM_CONTROL_PLANES_V1BETA1,
}
"""The newest first."""


class KubeadmControlPlanes:
    """Reads KubeadmControlPlanes in the newest version that the management cluster serves."""

    def __init__(self, client: Get) -> None:
        self._client = client
        self._served: Resource | NotSet = NotSet()

    async def read(self, reference: ControlPlaneReference, namespace: str) -> KubeadmControlPlane:
        """Read the one that a Cluster of that namespace refers to.

        Raises:
            InvalidControlPlane: see there; also for a name that no object has.
            ResourceNotServed: no version is served, or not yet.
            ApiError: the management cluster cannot be asked, or the object does not exist.
        """
        if isinstance(self._served, NotSet):
            self._served = await first_served(self._client, *RESOURCES.values())
        resource = self._served
        try:
            path = resource.object(reference.name, namespace)
        except ValueError as error:
            raise InvalidControlPlane("spec.controlPlaneRef has a name that no object has") from error
        try:
            return kubeadm_control_plane(await self._client.get(path), Version(resource.version))
        except ResourceNotServed:  # Cluster API has been upgraded, or removed
            self._served = NotSet()
            raise


async def read_rotated_cluster(client: Get, resource: Resource, key: ClusterKey) -> RotatedCluster:
    """Read a Cluster; ``resource`` is :attr:`~signer.store.cluster_api.ClusterAPIVersion.clusters`.

    Raises:
        InvalidControlPlane: see there.
        ApiError: the management cluster cannot be asked, or the object does not exist.
    """
    return rotated_cluster(await client.get(resource.object(key.name, key.namespace)))


def cached_machines(caches: Caches, cluster: ClusterKey) -> ClusterMachines:
    """The cluster's Machines and instances as they are cached. The caller has made sure that the caches are up to date
    (:meth:`~signer.store.caches.Caches.require_in_touch`).
    """
    return cluster_machines((*caches.machines_of(cluster), *caches.instances_of(cluster)))
