"""What ``clusterctl move`` does to one Cluster, step by step, between two management clusters.

Order and content as in Cluster API's ``cmd/clusterctl/client/cluster/mover.go``: pause at the source; create owners
before what they own, with rewritten owner references and, the status being a subresource, without status; delete in
the reverse order, each object marked and stripped of its finalizers first; unpause at the target.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from signer.kube.errors import NotFound
from signer.kube.resources import (
    ATTESTED_NODES,
    CLUSTERS_V1BETA2,
    IDENTITY_RESERVATIONS,
    KUBEADM_CONFIGS_V1BETA2,
    MACHINE_POOLS_V1BETA2,
    MACHINES_V1BETA2,
    NODE_ATTESTATION_POLICIES,
    SECRETS,
    Resource,
)
from signer.store.controller_key import SECRET_NAME
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, WorldCluster

GROUPS = (
    CLUSTERS_V1BETA2,
    NODE_ATTESTATION_POLICIES,
    SECRETS,
    MACHINE_POOLS_V1BETA2,
    MACHINES_V1BETA2,
    KUBEADM_CONFIGS_V1BETA2,
    ATTESTED_NODES,
)
DELETE_FOR_MOVE = {"metadata": {"annotations": {"clusterctl.cluster.x-k8s.io/delete-for-move": ""}}}


class Move:
    """One move, of one Cluster with everything that is its."""

    def __init__(self, cluster: WorldCluster, target: ManagementCluster) -> None:
        self.source = cluster
        self.target = replace(cluster, management=target)  # with the same clients, which end with the source's
        self._new_uids: dict[str, str] = {}
        self._moved: list[str] = []

    def pause(self) -> None:
        """No controller acts on the Cluster at the source any more."""
        self.source.patch({"spec": {"paused": True}})

    def create(self) -> None:
        """Create everything at the target."""
        for resource in GROUPS:
            for manifest in self._of_the_cluster(resource):
                self._create(resource, manifest)

    def _of_the_cluster(self, resource: Resource) -> list[dict[str, Any]]:
        try:
            items = self.source.management.client.items(resource.collection(self.source.namespace))
        except NotFound:
            return []  # its CRD is not installed
        return [manifest for manifest in items if self._is_of_the_cluster(manifest)]

    def _is_of_the_cluster(self, manifest: dict[str, Any]) -> bool:
        metadata = manifest["metadata"]
        labels = metadata.get("labels") or {}
        return self.source.name in (metadata["name"], labels.get("cluster.x-k8s.io/cluster-name"))

    def _create(self, resource: Resource, manifest: dict[str, Any]) -> None:
        body = copy.deepcopy(manifest)
        metadata = body["metadata"]
        del metadata["resourceVersion"]
        owners = metadata.pop("ownerReferences", [])
        if owners:
            metadata["ownerReferences"] = [{**owner, "uid": self._new_uids[owner["uid"]]} for owner in owners]
        body |= {"apiVersion": resource.api_version, "kind": _KINDS[resource]}
        created = self.target.management.client.create(resource.collection(self.source.namespace), body)
        assert created["metadata"]["uid"] != manifest["metadata"]["uid"]
        assert "conditions" not in (created.get("status") or {})
        assert "addresses" not in (created.get("status") or {})
        self._new_uids[manifest["metadata"]["uid"]] = created["metadata"]["uid"]
        self._moved.append(resource.object(metadata["name"], self.source.namespace))

    def delete(self) -> None:
        """Delete everything at the source."""
        client = self.source.management.client
        for path in reversed(self._moved):
            client.patch(path, DELETE_FOR_MOVE)
            client.patch(path, {"metadata": {"finalizers": None}})
            client.delete(path)

    def unpause(self) -> None:
        """The target takes over."""
        self.target.patch({"spec": {"paused": None}})

    def reconcile(self) -> None:
        """Cluster API at the target writes the statuses again; a node has its Machine's name in these tests."""
        client, namespace = self.target.management.client, self.target.namespace
        initialization = {"bootstrapDataSecretCreated": True}
        for manifest in client.items(MACHINES_V1BETA2.collection(namespace)):
            addresses = [{"type": "Hostname", "address": manifest["metadata"]["name"]}]
            self.target.set_machine_status(manifest, {"addresses": addresses, "initialization": initialization})
        for manifest in client.items(MACHINE_POOLS_V1BETA2.collection(namespace)):
            path = MACHINE_POOLS_V1BETA2.object(manifest["metadata"]["name"], namespace, subresource="status")
            client.patch(path, {"status": {"initialization": initialization}})


def copy_reservations(source: ManagementCluster, target: ManagementCluster) -> None:
    """What an operator does besides under trust on first use, before the target's controller starts."""
    for manifest in source.client.items(IDENTITY_RESERVATIONS.collection(CONTROLLER_NAMESPACE)):
        body = {
            "apiVersion": IDENTITY_RESERVATIONS.api_version,
            "kind": "IdentityReservation",
            "metadata": {"name": manifest["metadata"]["name"], "namespace": CONTROLLER_NAMESPACE},
            "spec": manifest["spec"],
        }
        target.client.create(IDENTITY_RESERVATIONS.collection(CONTROLLER_NAMESPACE), body)


_KINDS = {
    NODE_ATTESTATION_POLICIES: "NodeAttestationPolicy",
    CLUSTERS_V1BETA2: "Cluster",
    SECRETS: "Secret",
    MACHINE_POOLS_V1BETA2: "MachinePool",
    MACHINES_V1BETA2: "Machine",
    KUBEADM_CONFIGS_V1BETA2: "KubeadmConfig",
    ATTESTED_NODES: "AttestedNode",
}


def copy_controller_key(source: ManagementCluster, target: ManagementCluster) -> None:
    """What an operator does before a move: both controllers hold the same key."""
    manifest = source.client.get(SECRETS.object(SECRET_NAME, CONTROLLER_NAMESPACE))
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET_NAME, "namespace": CONTROLLER_NAMESPACE},
        "type": manifest.get("type", "Opaque"),
        "data": manifest["data"],
    }
    target.client.create(SECRETS.collection(CONTROLLER_NAMESPACE), body)
