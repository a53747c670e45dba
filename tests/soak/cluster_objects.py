"""Creates and deletes a Cluster's objects in the management cluster, retrying while its API server is down."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Final, TypeAlias

from signer.kube.client import Client, JsonObject
from signer.kube.errors import NotFound
from signer.kube.resources import (
    ATTESTED_NODES,
    CLUSTERS_V1BETA2,
    MACHINES_V1BETA2,
    NODE_ATTESTATION_POLICIES,
    SECRETS,
    Resource,
)
from signer.testing.world import WorldCluster
from tests.soak.access import Access
from tests.soak.requests import create, patiently

ATTESTORS: Final = ("keyed-mac", "tpm")
_FINALIZER: Final = "cluster.cluster.x-k8s.io"
_LOOK_SECONDS: Final = 0.2

Object: TypeAlias = tuple[Resource, JsonObject]


def objects_of(access: Access) -> tuple[Object, ...]:
    """The Cluster, its CA Secret, its kubeconfig Secret with the current token, and its policy."""
    cluster = access.cluster
    authority = {"tls.crt": cluster.api.ca_certificate_pem, "tls.key": cluster.api.ca_key_pem}
    spec = {
        "controlPlaneEndpoint": {"host": "control-plane.example", "port": 6443},
        "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Test", "name": cluster.name},
    }
    policy = {"spec": {"authorizedAttestors": [{"name": attestor} for attestor in ATTESTORS]}}
    return (
        (CLUSTERS_V1BETA2, _body(CLUSTERS_V1BETA2, "Cluster", cluster, {"spec": spec})),
        (SECRETS, _secret(cluster, "ca", authority)),
        (SECRETS, _secret(cluster, "kubeconfig", {"value": access.kubeconfig})),
        (
            NODE_ATTESTATION_POLICIES,
            _body(NODE_ATTESTATION_POLICIES, "NodeAttestationPolicy", cluster, policy),
        ),
    )


def _body(resource: Resource, kind: str, cluster: WorldCluster, content: JsonObject, suffix: str = "") -> JsonObject:
    labels = {"cluster.x-k8s.io/cluster-name": cluster.name}
    metadata = {"name": cluster.name + suffix, "namespace": cluster.namespace, "labels": labels}
    return {"apiVersion": resource.api_version, "kind": kind, "metadata": metadata, **content}


def _secret(cluster: WorldCluster, purpose: str, data: dict[str, bytes]) -> JsonObject:
    encoded = {key: base64.b64encode(value).decode("ascii") for key, value in data.items()}
    return _body(SECRETS, "Secret", cluster, {"type": "cluster.x-k8s.io/secret", "data": encoded}, f"-{purpose}")


async def create_all(management: Client, objects: Sequence[Object], chance: Random) -> None:
    """Create the objects in random order, as ``kubectl apply`` or a restored backup may."""
    for resource, body in chance.sample(objects, len(objects)):
        await create(management, resource.collection(body["metadata"]["namespace"]), body)


async def delete_all(
    management: Client, access: Access, meanwhile: Callable[[], Awaitable[None]], *, with_dependents: bool
) -> None:
    """Delete the Cluster and its objects; a finalizer keeps the Cluster until ``meanwhile`` returns.

    With ``with_dependents``, also delete its Machines, as Cluster API does, and AttestedNodes, as the garbage collector
    does.
    """
    name, namespace = access.cluster.name, access.cluster.namespace
    path = CLUSTERS_V1BETA2.object(name, namespace)
    await patiently(lambda: management.patch(path, {"metadata": {"finalizers": [_FINALIZER]}}))
    await _delete(management, path)
    await meanwhile()
    for resource in (MACHINES_V1BETA2, ATTESTED_NODES) if with_dependents else ():
        for dependent in await _of_cluster(management, resource, access.cluster):
            await _delete(management, resource.object(dependent, namespace))
    for secret in ("ca", "kubeconfig"):
        await _delete(management, SECRETS.object(f"{name}-{secret}", namespace))
    await _delete(management, NODE_ATTESTATION_POLICIES.object(name, namespace))
    with contextlib.suppress(NotFound):
        await patiently(lambda: management.patch(path, {"metadata": {"finalizers": []}}))
        while True:
            await patiently(lambda: management.get(path))
            await asyncio.sleep(_LOOK_SECONDS)


async def _of_cluster(management: Client, resource: Resource, cluster: WorldCluster) -> list[str]:
    """Names of the cluster's objects of one resource."""
    listed = await patiently(lambda: management.get(resource.collection(cluster.namespace)))
    return [item["metadata"]["name"] for item in listed["items"] if item["spec"]["clusterName"] == cluster.name]


async def _delete(management: Client, path: str) -> None:
    with contextlib.suppress(NotFound):  # an earlier attempt was carried out
        await patiently(lambda: management.delete(path))
