"""A KubeadmControlPlane is read, made ready and rolled through an API server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from signer.kube.client import Client, JsonObject
from signer.kube.errors import Conflict
from signer.kube.resources import (
    CLUSTERS_V1BETA2,
    KUBEADM_CONTROL_PLANES_V1BETA1,
    KUBEADM_CONTROL_PLANES_V1BETA2,
    PODS,
    Resource,
)
from signer.model.cluster import ClusterKey
from signer.rotation.control_plane.kind import ControlPlaneReference
from signer.rotation.control_plane.kubeadm_control_plane import KubeadmControlPlane
from signer.rotation.control_plane.machines import ControlPlaneMachines
from signer.rotation.control_plane.mirror_pods import NotShown, RunningServer, read_server
from signer.rotation.control_plane.readiness import Missing, Ready, readiness
from signer.rotation.control_plane.reading import RESOURCES, KubeadmControlPlanes, read_rotated_cluster
from signer.rotation.control_plane.renewal import ControlPlane, Renewal
from signer.rotation.control_plane.rollout import KubeadmRollout, Requested, UnderWay
from signer.rotation.control_plane.template import Component, control_plane_template
from signer.rotation.control_plane.template_patch import template_patch
from signer.rotation.phases import SigningPairs
from signer.testing.world import ManagementCluster
from tests.unit.signer.rotation.control_plane.recorded import recorded

KEY = ClusterKey("fleet", "edge")
NOW = datetime(2026, 10, 1, 9, tzinfo=UTC)
RENEWAL = Renewal(NOW - timedelta(hours=1))
VERSIONS = [
    (KUBEADM_CONTROL_PLANES_V1BETA1, "kubeadm-control-plane-v1beta1"),
    (KUBEADM_CONTROL_PLANES_V1BETA2, "kubeadm-control-plane-v1beta2"),
]


def create(management: ManagementCluster, resource: Resource, name: str) -> JsonObject:
    """Create a recorded object, as a user would, and its status."""
    management.ensure_namespace(KEY.namespace)
    manifest = recorded(name)
    manifest["metadata"] = {key: manifest["metadata"][key] for key in ("name", "namespace")}
    status = manifest.pop("status", {})
    management.client.create(resource.collection(KEY.namespace), manifest)
    path = resource.object(manifest["metadata"]["name"], KEY.namespace, subresource="status")
    return management.client.patch(path, {"status": {**status, "observedGeneration": 1}})


def serve_only(management: ManagementCluster, version: str) -> None:
    """Serve KubeadmControlPlanes in one version, as Cluster API of that time does."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/kubeadmcontrolplanes.controlplane.cluster.x-k8s.io"
    versions = management.client.get(path)["spec"]["versions"]
    served = [{**one, "served": one["name"] == version} for one in versions]
    management.client.patch(path, {"spec": {"versions": served}})


async def read(client: Client) -> ControlPlane:
    cluster = await read_rotated_cluster(client, CLUSTERS_V1BETA2, KEY)
    assert isinstance(cluster.control_plane, ControlPlaneReference)
    kubeadm = await KubeadmControlPlanes(client).read(cluster.control_plane, KEY.namespace)
    return ControlPlane(cluster, kubeadm, ControlPlaneMachines(()))


@pytest.mark.parametrize(("resource", "name"), VERSIONS, ids=["v1beta1", "v1beta2"])
async def test_a_control_plane_is_made_ready_and_rolled_once(
    management_cluster: ManagementCluster, resource: Resource, name: str
) -> None:
    serve_only(management_cluster, resource.version)
    create(management_cluster, CLUSTERS_V1BETA2, "cluster-v1beta2")
    create(management_cluster, resource, name)
    async with Client(management_cluster.api.connection()) as client:
        kubeadm = (await read(client)).kubeadm
        assert RESOURCES[kubeadm.version] == resource
        assert kubeadm.observed
        missing = judged(kubeadm)
        assert isinstance(missing, Missing)
        path = resource.object(kubeadm.name, kubeadm.namespace)
        patch = template_patch(kubeadm.manifest, missing)
        await client.patch(path, patch, "application/json-patch+json")
        seen = await read(client)
        assert judged(seen.kubeadm) == Ready()
        assert not seen.kubeadm.observed  # the provider has not seen the change

        actuator = KubeadmRollout(client, CLUSTERS_V1BETA2, lambda: NOW)
        assert await actuator.renew(seen, RENEWAL) == Requested()
        with pytest.raises(Conflict):
            await actuator.renew(seen, RENEWAL)
        seen = await read(client)
        assert seen.kubeadm.rollout_after == RENEWAL.not_before
        assert await actuator.renew(seen, RENEWAL) == UnderWay()
        assert (await read(client)).kubeadm.resource_version == seen.kubeadm.resource_version


async def test_with_a_cluster_class_the_cluster_is_written(management_cluster: ManagementCluster) -> None:
    create(management_cluster, CLUSTERS_V1BETA2, "cluster-of-class-v1beta2")
    create(management_cluster, *VERSIONS[1])
    async with Client(management_cluster.api.connection()) as client:
        before = await read(client)
        actuator = KubeadmRollout(client, CLUSTERS_V1BETA2, lambda: NOW)
        assert await actuator.renew(before, RENEWAL) == Requested()
        after = await read(client)
        assert after.kubeadm.resource_version == before.kubeadm.resource_version
        assert await actuator.renew(after, RENEWAL) == UnderWay()


async def test_a_running_server_is_read_from_its_mirror_pod(management_cluster: ManagementCluster) -> None:
    pod = recorded("kube-apiserver-pod")
    status = pod.pop("status")
    del pod["metadata"]["ownerReferences"]
    management_cluster.client.create(PODS.collection("kube-system"), pod)
    path = PODS.object(pod["metadata"]["name"], "kube-system", subresource="status")
    management_cluster.client.patch(path, {"status": status})
    async with Client(management_cluster.api.connection()) as client:
        server = await read_server(client, Component.API_SERVER, "cp-0")
        assert isinstance(server, RunningServer)
        assert server.lacks(SigningPairs.ONE_PAIR) == ()
        assert isinstance(await read_server(client, Component.CONTROLLER_MANAGER, "cp-0"), NotShown)


def judged(kubeadm: KubeadmControlPlane) -> Any:
    return readiness(control_plane_template(kubeadm.manifest), KEY.name, SigningPairs.ONE_PAIR)
