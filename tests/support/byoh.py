"""ByoMachines and ByoHosts, as cluster-api-provider-bringyourownhost and the agents on the hosts leave them."""

from __future__ import annotations

from typing import Final

from signer.kube.client import JsonObject
from signer.kube.resources import BYO_HOSTS, Resource
from signer.testing.world import ManagementCluster, WorldCluster
from tests.support.definitions import define

BYO_MACHINE: Final = "ByoMachine"
BYO_MACHINES: Final = Resource("infrastructure.cluster.x-k8s.io", "v1beta1", "byomachines", namespaced=True)
LABEL: Final = "byoh.infrastructure.cluster.x-k8s.io/byomachine-name"


def define_byoh(management: ManagementCluster) -> None:
    """Create both CustomResourceDefinitions."""
    define(management, BYO_MACHINES, BYO_MACHINE)
    define(management, BYO_HOSTS, "ByoHost")


def add_byo_host(cluster: WorldCluster, name: str, **annotations: str) -> JsonObject:
    """A host that its agent has registered, and that no Machine has yet."""
    body = {
        "apiVersion": BYO_HOSTS.api_version,
        "kind": "ByoHost",
        "metadata": {"name": name, "namespace": cluster.namespace, "annotations": annotations},
        "spec": {},
    }
    return cluster.management.client.create(BYO_HOSTS.collection(cluster.namespace), body)


def add_byo_machine(cluster: WorldCluster, machine: JsonObject, name: str) -> None:
    """Create the Machine's ByoMachine."""
    owner = {key: machine["metadata"][key] for key in ("name", "uid")}
    body = {
        "apiVersion": BYO_MACHINES.api_version,
        "kind": BYO_MACHINE,
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "ownerReferences": [{"apiVersion": machine["apiVersion"], "kind": "Machine", **owner}],
        },
        "spec": {},
    }
    cluster.management.client.create(BYO_MACHINES.collection(cluster.namespace), body)


def attach(cluster: WorldCluster, host: str, byo_machine: str) -> None:
    """Label the host with the ByoMachine, as the provider's controller does; with no name, the agent releases it."""
    label = f"{cluster.namespace}.{byo_machine}" if byo_machine else None
    path = BYO_HOSTS.object(host, cluster.namespace)
    cluster.management.client.patch(path, {"metadata": {"labels": {LABEL: label}}})
