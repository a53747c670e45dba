"""Writing AttestedNodes: the journal entry of a CSR stands here before the CSR is approved."""

from __future__ import annotations

from typing import Protocol

from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, Conflict, NotFound
from signer.kube.resources import ATTESTED_NODES
from signer.model.cluster import CLUSTER_NAME_LABEL, ClusterKey, ClusterView
from signer.model.decision import Deferred
from signer.model.reasons import Reason
from signer.model.record import AttestedNode, InvalidRecord, parse_record, record_name, record_spec
from signer.rules.machine import NoRecord
from signer.store.inventory import Inventory


class RecordChanged(Exception):
    """Somebody else wrote the record first: look at it again, then decide again."""


class RecordCalls(Protocol):
    """The calls that are used of :class:`~signer.kube.client.Client`."""

    async def get(self, path: str) -> JsonObject:
        """See Client."""
        ...

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        """See Client."""
        ...

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        """See Client."""
        ...


class Records:
    """The AttestedNodes of all clusters."""

    def __init__(self, client: RecordCalls, inventory: Inventory) -> None:
        self._client = client
        self._inventory = inventory

    def recorded(self, cluster: ClusterKey, node_name: str) -> AttestedNode | NoRecord:
        """What is recorded under that node name."""
        return self._inventory.records.get(cluster.namespace, record_name(cluster, node_name)) or NoRecord()

    async def write(self, record: AttestedNode, cluster: ClusterView) -> AttestedNode:
        """Create the record, or change the very version that it was derived from.

        Raises:
            RecordChanged: it was created or changed meanwhile; the mirror now has the new one.
            ApiError: from the management cluster.
        """
        try:
            if record.resource_version:
                written = await self._client.patch(_path(record), _patch(record))
            else:
                written = await self._client.create(
                    ATTESTED_NODES.collection(cluster.key.namespace), _manifest(record, cluster, self._inventory)
                )
        except (AlreadyExists, Conflict, NotFound) as error:
            await self.refresh(record.machine.cluster, record.name)
            raise RecordChanged(record.name) from error
        return self._inventory.records.written(written) or parse_record(written)

    async def refresh(self, cluster: ClusterKey, name: str) -> None:
        """Look at a record in the API server itself, and show the mirror what is there.

        Raises:
            Deferred: it cannot be read.
            ApiError: from the management cluster.
        """
        try:
            current = await self._client.get(ATTESTED_NODES.object(name, cluster.namespace))
        except NotFound:
            self._inventory.records.forget(cluster.namespace, name)
            return
        try:
            parse_record(current)
        except InvalidRecord as error:
            raise Deferred(
                Reason.RESERVATION_PENDING, f"AttestedNode {cluster.namespace}/{name} cannot be read: {error}"
            ) from error
        self._inventory.records.written(current)


def _path(record: AttestedNode) -> str:
    return ATTESTED_NODES.object(record.name, record.machine.cluster.namespace)


def _patch(record: AttestedNode) -> JsonObject:
    # A merge patch keeps what others put into metadata, such as the owner that `clusterctl move` rewrites. The
    # resourceVersion makes it fail, rather than overwrite, when the record is no longer the one that was read.
    return {"metadata": {"resourceVersion": record.resource_version, "uid": record.uid}, "spec": record_spec(record)}


def _manifest(record: AttestedNode, cluster: ClusterView, inventory: Inventory) -> JsonObject:
    return {
        "apiVersion": ATTESTED_NODES.api_version,
        "kind": "AttestedNode",
        "metadata": {
            "name": record.name,
            "namespace": cluster.key.namespace,
            "labels": {CLUSTER_NAME_LABEL: cluster.key.name},
            "ownerReferences": [
                {
                    "apiVersion": inventory.version.clusters.api_version,
                    "kind": "Cluster",
                    "name": cluster.key.name,
                    "uid": cluster.uid,
                }
            ],
        },
        "spec": record_spec(record),
    }
