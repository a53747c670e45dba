"""Writing AttestedNodes: the journal entry of a CSR stands here before the CSR is approved.

What is read is ours (:mod:`signer.store.authentic_records`), and what is written is sealed. An object that is not ours
counts as no record: whoever has something to record under that name replaces it, at exactly the version that was seen.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from attestors.contract import IPAddress
from signer.kube.calls import GetListCreateReplace
from signer.kube.client import JsonObject
from signer.kube.coalescing_cache import CoalescingCache
from signer.kube.errors import AlreadyExists, Conflict, NotFound, UnexpectedAnswer
from signer.kube.resources import ATTESTED_NODES
from signer.kube.scheduling import CooperativeYield
from signer.model.cluster import CLUSTER_NAME_LABEL, ClusterKey, ClusterView, MachineView
from signer.model.decision import Deferred
from signer.model.fields import items_of, mapping_of, text_of
from signer.model.reasons import Reason
from signer.model.record import AttestedNode, MachineKey, record_name
from signer.model.record_object import parse_record, record_spec
from signer.rules.machine import NoRecord
from signer.rules.plan import FactsChanged
from signer.rules.serving import canonical, equivalent_addresses
from signer.store.authentic_records import InTheWay, NothingInTheWay, NotKept, UnverifiedRecord, preserved_fields
from signer.store.caches import Caches, UnlistedNamespace

_LOG = logging.getLogger(__name__)


class RecordChanged(FactsChanged):
    """Somebody else wrote the record first: look at it again, then decide again."""


@dataclass(frozen=True, slots=True)
class _Version:
    """Exactly which object is replaced."""

    uid: str
    resource_version: str


class Records:
    """The AttestedNodes of all clusters."""

    def __init__(self, client: GetListCreateReplace, caches: Caches) -> None:
        self._client = client
        self._caches = caches
        self._lists: CoalescingCache[None] = CoalescingCache(time.monotonic, lambda nothing: 0)

    async def require_listed(self, cluster: ClusterKey) -> None:
        """To be called before anything of that Cluster is judged: where it has come, or was unpaused, since the cache
        began, the records of its namespace are listed, once for all who came meanwhile
        (:mod:`signer.store.caches`).

        Raises:
            ApiError: they cannot be listed.
        """
        while isinstance(unlisted := self._caches.records_barrier.of(cluster), UnlistedNamespace):
            await self._lists.ask(unlisted, ATTESTED_NODES, partial(self._list, unlisted))

    def require_still_listed(self, cluster: ClusterKey) -> None:
        """To be called before anything is written: the Cluster may have been away meanwhile, and look as before.

        Raises:
            Deferred: it has, or the cache may have lost what was listed.
        """
        if isinstance(self._caches.records_barrier.of(cluster), UnlistedNamespace):
            raise Deferred(
                Reason.RESERVATION_PENDING, "the Cluster's records are to be listed again", timedelta(seconds=0.1)
            )

    async def _list(self, unlisted: UnlistedNamespace) -> None:
        self._caches.records_barrier.begins(unlisted)
        pages = self._client.list_pages(ATTESTED_NODES.collection(unlisted.namespace))
        async with contextlib.aclosing(pages):
            async for page in pages:
                cooperative_yield = CooperativeYield()
                for item in page["items"]:
                    if not isinstance(item, dict):
                        raise UnexpectedAnswer("the list holds an item that is no object", status=200)
                    self._caches.records.found(item)
                    await cooperative_yield.leave_turn()
        self._caches.records_barrier.listed(unlisted)

    def recorded(self, cluster: ClusterKey, node_name: str) -> AttestedNode | NoRecord:
        """What we recorded under that node name.

        Raises:
            Deferred: the controller key is not available, or there is a newer one.
        """
        return self._caches.authentic.get(cluster.namespace, record_name(cluster, node_name))

    async def write(self, record: AttestedNode, cluster: ClusterView) -> AttestedNode:
        """Seal and create the record, or change the very version that it was derived from.

        Raises:
            RecordChanged: it was created or changed meanwhile; the cache now has the new one.
            Deferred: the controller key is not available, or there is a newer one.
            ApiError: from the management cluster.
        """
        spec = {**record_spec(record), "seal": self._caches.authentic.require_keys().seal(record)}
        try:
            if record.resource_version:
                written = await self._change(record, cluster, spec)
            else:
                written = await self._begin(record, cluster, spec)
        except (AlreadyExists, Conflict, NotFound) as error:
            await self.refresh(record.machine.cluster, record.name)
            raise RecordChanged(record.name) from error
        stored = self._caches.records.written(written)
        return stored.claimed if isinstance(stored, UnverifiedRecord) else parse_record(written)

    async def _change(self, record: AttestedNode, cluster: ClusterView, spec: JsonObject) -> JsonObject:
        """Change the very version that ``record`` was derived from, and nothing that others put into its metadata."""
        path, version = _path(record), _Version(record.uid, record.resource_version)
        kept = self._caches.authentic.metadata_of(record)
        foreign = await self._foreign(path, version) if isinstance(kept, NotKept) else kept.fields()
        return await self._client.replace(path, _whole(record, version, self._owned(foreign, cluster), spec))

    def _owned(self, foreign: JsonObject, cluster: ClusterView) -> JsonObject:
        """With the Cluster as owner where none is: backups are restored without owners, and nobody would delete it."""
        owners, own = items_of(foreign, "ownerReferences"), _owner_reference(cluster, self._caches)
        if any(isinstance(owner, Mapping) and _kind_of(owner) == _kind_of(own) for owner in owners):
            return foreign
        return {**foreign, "ownerReferences": [*owners, own]}

    async def _begin(self, record: AttestedNode, cluster: ClusterView, spec: JsonObject) -> JsonObject:
        """Create it where there was no record, or no record of ours."""
        namespace, name = record.machine.cluster.namespace, record.name
        if not isinstance(self._caches.authentic.get(namespace, name), NoRecord):
            raise RecordChanged(name)
        manifest = _manifest(record, cluster, self._caches, spec)
        match self._caches.authentic.in_the_way(namespace, name):
            case NothingInTheWay():
                return await self._client.create(ATTESTED_NODES.collection(namespace), manifest)
            case InTheWay(uid, resource_version):
                _LOG.info("replacing an AttestedNode that is not ours", extra={"namespace": namespace, "object": name})
                path, version = _path(record), _Version(uid, resource_version)
                ours = {key: manifest["metadata"][key] for key in ("labels", "ownerReferences")}
                foreign = {**await self._foreign(path, version), **ours}
                return await self._client.replace(path, _whole(record, version, foreign, spec))

    async def _foreign(self, path: str, version: _Version) -> JsonObject:
        """What others put into the metadata of that version, which was not seen or was too much to be kept.

        Raises:
            Conflict: it is no longer that version.
            ApiError: from the management cluster.
        """
        metadata = mapping_of(await self._client.get(path), "metadata")
        if _Version(text_of(metadata, "uid"), text_of(metadata, "resourceVersion")) != version:
            raise Conflict("another version than was read", status=409)
        return preserved_fields(metadata)

    async def refresh(self, cluster: ClusterKey, name: str) -> None:
        """Look at a record in the API server itself, and show the cache what is there.

        Raises:
            ApiError: from the management cluster.
        """
        try:
            current = await self._client.get(ATTESTED_NODES.object(name, cluster.namespace))
        except NotFound:
            self._caches.records.forget(cluster.namespace, name)
            return
        self._caches.records.written(current)


def _path(record: AttestedNode) -> str:
    return ATTESTED_NODES.object(record.name, record.machine.cluster.namespace)


def _whole(record: AttestedNode, version: _Version, foreign: JsonObject, spec: JsonObject) -> JsonObject:
    # What others put into metadata stays, such as the owner that `clusterctl move` rewrites. The resourceVersion makes
    # it fail, rather than overwrite, when the object is no longer the one that was read. Of the spec everything that
    # the schema knows is written, and it keeps nothing else.
    metadata = {
        **foreign,
        "name": record.name,
        "namespace": record.machine.cluster.namespace,
        "uid": version.uid,
        "resourceVersion": version.resource_version,
        # Emptied: nobody applies parts of a record, and to track whose each field is doubles what a write costs the API
        # server (Kubernetes, "Server-Side Apply", Clearing managedFields).
        "managedFields": [{}],
    }
    return {"apiVersion": ATTESTED_NODES.api_version, "kind": "AttestedNode", "metadata": metadata, "spec": spec}


def _manifest(record: AttestedNode, cluster: ClusterView, caches: Caches, spec: JsonObject) -> JsonObject:
    return {
        "apiVersion": ATTESTED_NODES.api_version,
        "kind": "AttestedNode",
        "metadata": {
            "name": record.name,
            "namespace": cluster.key.namespace,
            "labels": {CLUSTER_NAME_LABEL: cluster.key.name},
            "ownerReferences": [_owner_reference(cluster, caches)],
        },
        "spec": spec,
    }


def _owner_reference(cluster: ClusterView, caches: Caches) -> JsonObject:
    return {
        "apiVersion": caches.version.clusters.api_version,
        "kind": "Cluster",
        "name": cluster.key.name,
        "uid": cluster.uid,
    }


def _kind_of(owner: Mapping[str, Any]) -> tuple[str, str]:
    """API group and kind: in whichever version."""
    return text_of(owner, "apiVersion").rpartition("/")[0], text_of(owner, "kind")


def conflicting_names(
    caches: Caches,
    records: Records,
    machine: MachineView,
    dns_names: tuple[str, ...],
    ip_addresses: tuple[IPAddress, ...],
) -> frozenset[str]:
    """The requested names and addresses that other Machines have now, or other nodes by their records.

    Equivalent addresses count too. Each is in canonical form (:func:`~signer.rules.serving.canonical`).
    """
    names = frozenset(canonical(name) for name in dns_names)
    addresses = frozenset(str(face) for address in ip_addresses for face in equivalent_addresses(address))
    return caches.names.conflicting_names(machine, names | addresses) | frozenset(
        name for name in names if _is_anothers_node(records, machine, name)
    )


def _is_anothers_node(records: Records, machine: MachineView, name: str) -> bool:
    record = records.recorded(machine.cluster, name)
    return isinstance(record, AttestedNode) and record.machine != MachineKey.of(machine)
