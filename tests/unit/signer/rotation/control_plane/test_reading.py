"""Which calls read a control plane, and in which version."""

from __future__ import annotations

import pytest

from signer.kube.client import JsonObject
from signer.kube.errors import NotFound, ResourceNotServed
from signer.kube.resources import (
    CLUSTERS_V1BETA2,
    KUBEADM_CONTROL_PLANES_V1BETA1,
    KUBEADM_CONTROL_PLANES_V1BETA2,
    MACHINE_POOLS_V1BETA2,
    MACHINES_V1BETA2,
    Resource,
)
from signer.model.cluster import ClusterKey
from signer.model.floors import NO_FLOORS
from signer.rotation.control_plane.kind import ControlPlaneReference
from signer.rotation.control_plane.kubeadm_control_plane import InvalidControlPlane, Version
from signer.rotation.control_plane.reading import RESOURCES, KubeadmControlPlanes, cached_machines, read_rotated_cluster
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from tests.unit.signer.rotation.control_plane.recorded import KUBEADM, recorded
from tests.unit.signer.rotation.control_plane.test_kubeadm_control_plane import REFERENCE

VERSION = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2, MACHINE_POOLS_V1BETA2)


class Management:
    """A management cluster that serves some versions, and counts calls."""

    def __init__(self, *served: Resource) -> None:
        self.served = served
        self.calls: list[str] = []

    async def get(self, path: str) -> JsonObject:
        self.calls.append(path)
        group = "/apis/controlplane.cluster.x-k8s.io"
        if path == group and self.served:
            return {"versions": [{"version": one.version} for one in self.served]}
        for one, name in zip(RESOURCES.values(), reversed(KUBEADM), strict=True):
            if one not in self.served:
                continue
            if path == f"{group}/{one.version}":
                return {"resources": [{"name": one.plural}]}
            if path == one.object("edge-control-plane", "fleet"):
                return recorded(name)
            if path.startswith(f"{group}/{one.version}/"):
                raise NotFound("no such object", status=404)
        if path == CLUSTERS_V1BETA2.object("edge", "fleet"):
            return recorded("cluster-v1beta2")
        raise ResourceNotServed("404 page not found", status=404)


@pytest.mark.parametrize(
    ("served", "read"),
    [
        ((KUBEADM_CONTROL_PLANES_V1BETA1, KUBEADM_CONTROL_PLANES_V1BETA2), KUBEADM_CONTROL_PLANES_V1BETA2),
        ((KUBEADM_CONTROL_PLANES_V1BETA1,), KUBEADM_CONTROL_PLANES_V1BETA1),
    ],
)
async def test_the_newest_served_version_is_read(served: tuple[Resource, ...], read: Resource) -> None:
    management = Management(*served)
    reader = KubeadmControlPlanes(management)
    assert (await reader.read(REFERENCE, "fleet")).version == Version(read.version)
    before = len(management.calls)
    await reader.read(REFERENCE, "fleet")
    assert management.calls[before:] == [read.object("edge-control-plane", "fleet")]


async def test_an_upgrade_of_cluster_api_is_noticed() -> None:
    management = Management(KUBEADM_CONTROL_PLANES_V1BETA1)
    reader = KubeadmControlPlanes(management)
    await reader.read(REFERENCE, "fleet")
    management.served = (KUBEADM_CONTROL_PLANES_V1BETA2,)
    with pytest.raises(ResourceNotServed):
        await reader.read(REFERENCE, "fleet")
    assert (await reader.read(REFERENCE, "fleet")).version is Version.V1BETA2


async def test_where_no_version_is_served_nothing_is_concluded() -> None:
    with pytest.raises(ResourceNotServed):
        await KubeadmControlPlanes(Management()).read(REFERENCE, "fleet")


async def test_a_name_directs_no_call_elsewhere() -> None:
    reader = KubeadmControlPlanes(Management(KUBEADM_CONTROL_PLANES_V1BETA2))
    with pytest.raises(InvalidControlPlane):
        await reader.read(ControlPlaneReference("g", "k", "../secrets"), "fleet")


async def test_the_cluster_is_read_by_name() -> None:
    found = await read_rotated_cluster(Management(), CLUSTERS_V1BETA2, ClusterKey("fleet", "edge"))
    assert found.control_plane == REFERENCE


def test_machines_and_instances_of_the_cluster_are_taken_from_the_caches() -> None:
    caches = Caches(VERSION, own_namespace="own", floors=NO_FLOORS)
    of_edge = {"namespace": "fleet", "creationTimestamp": "2026-10-01T08:00:00Z"}
    control_plane = {"cluster.x-k8s.io/control-plane": ""}
    caches.machines.replaced(
        [
            {"metadata": {**of_edge, "name": "cp-0", "labels": control_plane}, "spec": {"clusterName": "edge"}},
            {"metadata": {**of_edge, "name": "other-0", "labels": control_plane}, "spec": {"clusterName": "other"}},
        ]
    )
    pool = {"clusterName": "edge", "providerIDList": ["aws:///a/i-1"]}
    caches.machine_pools.replaced([{"metadata": {**of_edge, "name": "spot"}, "spec": pool}])
    found = cached_machines(caches, ClusterKey("fleet", "edge"))
    assert found.control_plane.names == ("cp-0",)
    assert found.workers.pools == ("spot",)
