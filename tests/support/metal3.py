"""Metal3Machines and BareMetalHosts, as cluster-api-provider-metal3 and the baremetal-operator leave them."""

from __future__ import annotations

from typing import Final

from signer.kube.client import JsonObject
from signer.kube.resources import BARE_METAL_HOSTS, Resource
from signer.testing.world import ManagementCluster, WorldCluster
from tests.support.definitions import define

METAL3_MACHINES: Final = Resource("infrastructure.cluster.x-k8s.io", "v1beta1", "metal3machines", namespaced=True)
HOST_ANNOTATION: Final = "metal3.io/BareMetalHost"


def define_metal3(management: ManagementCluster) -> None:
    """Create both CustomResourceDefinitions."""
    define(management, METAL3_MACHINES, "Metal3Machine")
    define(management, BARE_METAL_HOSTS, "BareMetalHost")


def add_bare_metal_host(cluster: WorldCluster, name: str, **annotations: str) -> JsonObject:
    """A host that no Machine consumes yet."""
    body = {
        "apiVersion": BARE_METAL_HOSTS.api_version,
        "kind": "BareMetalHost",
        "metadata": {"name": name, "namespace": cluster.namespace, "annotations": annotations},
        "spec": {"online": True},
    }
    return cluster.management.client.create(BARE_METAL_HOSTS.collection(cluster.namespace), body)


def provision(cluster: WorldCluster, machine: JsonObject, host: str, *, consumer: str = "") -> None:
    """Create the Machine's Metal3Machine on that host; ``consumer`` is another one that the host names."""
    client, name = cluster.management.client, machine["metadata"]["name"]
    owner = {key: machine["metadata"][key] for key in ("name", "uid")}
    body = {
        "apiVersion": METAL3_MACHINES.api_version,
        "kind": "Metal3Machine",
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "ownerReferences": [{"apiVersion": machine["apiVersion"], "kind": "Machine", **owner}],
            "annotations": {HOST_ANNOTATION: f"{cluster.namespace}/{host}"},
        },
        "spec": {},
    }
    client.create(METAL3_MACHINES.collection(cluster.namespace), body)
    reference = {"apiGroup": METAL3_MACHINES.group, "kind": "Metal3Machine", "name": name}
    cluster.patch_machine(name, {"spec": {"infrastructureRef": reference}})
    reference = {
        "apiVersion": METAL3_MACHINES.api_version,
        "kind": "Metal3Machine",
        "namespace": cluster.namespace,
        "name": consumer or name,
    }
    client.patch(BARE_METAL_HOSTS.object(host, cluster.namespace), {"spec": {"consumerRef": reference}})
