"""Writing AttestedNodes: the journal entry of a CSR is written here before the CSR is approved.

Only authentic records are read (:mod:`signer.store.authentic_records`), and every record that is written is sealed. An
object that is not authentic counts as no record: the next write under its name replaces it, at exactly the version that
was read.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

from attestors.contract import IPAddress
from attestors.net.rate_limiter import TokenBuckets
from signer.kube.calls import GetListCreateReplace
from signer.kube.client import JsonObject
from signer.kube.coalescing_cache import CoalescingCache
from signer.kube.errors import AlreadyExists, Conflict, NotFound, UnexpectedAnswer
from signer.kube.resources import ATTESTED_NODES
from signer.kube.scheduling import CooperativeYield
from signer.model.addresses import canonical
from signer.model.cluster import CLUSTER_NAME_LABEL, ClusterKey, ClusterView, MachineView
from signer.model.decision import Deferred
from signer.model.fields import items_of, mapping_of, text_of
from signer.model.reasons import Reason
from signer.model.record import AttestedNode, MachineKey, record_name
from signer.model.record_object import parse_record, record_spec
from signer.rules.machine import NoRecord
from signer.rules.plan import FactsChanged
from signer.rules.serving import equivalent_addresses
from signer.store.authentic_records import InTheWay, NothingInTheWay, NotKept, UnverifiedRecord, preserved_fields
from signer.store.caches import Caches, UnlistedNamespace

_LOG = logging.getLogger(__name__)
LISTS_AT_ONCE: Final = 10
LIST_AGAIN_SECONDS: Final = 10.0
"""After ``LISTS_AT_ONCE``, one list of a namespace's records in this time: a tenant may unpause its Clusters all the
time, and have a hundred thousand records.
"""
LONG_LIST_SECONDS: Final = 1.0
"""A list that takes less counts as that part of one, so that a new Cluster among few records hardly waits. The time
bounds what a list costs, however large its records are.
"""
LEAST_COUNT: Final = 0.01
"""The part of a list that each counts as at least."""


class RecordChanged(FactsChanged):
    """Another client wrote the record first: the caller reads it and decides again."""


@dataclass(frozen=True, slots=True)
class _Version:
    """The exact object version to be replaced."""

    uid: str
    resource_version: str


class Records:
    """The AttestedNodes of all clusters."""

    def __init__(
        self, client: GetListCreateReplace, caches: Caches, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """``monotonic`` is a clock, in seconds."""
        self._client = client
        self._caches = caches
        self._list_rates: TokenBuckets[str] = TokenBuckets(LISTS_AT_ONCE, LIST_AGAIN_SECONDS, monotonic)
        """Of lists, by namespace."""
        self._monotonic = monotonic
        self._lists: CoalescingCache[None] = CoalescingCache(time.monotonic, lambda nothing: 0)

    async def require_listed(self, cluster: ClusterKey) -> None:
        """Make sure that the cache holds the Cluster's records; call this before a decision for that Cluster.

        If the Cluster was created or unpaused since the cache began, the records of its namespace are listed, once for
        all concurrent callers (:mod:`signer.store.caches`).

        Raises:
            ApiError: the records cannot be listed.
            Deferred: they were listed too often, for Clusters that were unpaused or made anew.
        """
        while isinstance(unlisted := self._caches.records_barrier.state_of(cluster), UnlistedNamespace):
            if seconds := self._list_rates.of(unlisted.namespace).wait_seconds(LEAST_COUNT):
                raise Deferred(
                    Reason.RESERVATION_PENDING,
                    "the records of the namespace are listed again in a moment: its Clusters are unpaused, or made "
                    "anew, too often",
                    timedelta(seconds=seconds),
                )
            await self._lists.ask(unlisted, ATTESTED_NODES, partial(self._list, unlisted))

    def require_still_listed(self, cluster: ClusterKey) -> None:
        """Call this before a write: the Cluster may have been deleted and created again, or paused and unpaused,
        meanwhile.

        Raises:
            Deferred: that has happened, or the cache may have lost the listed records.
        """
        if isinstance(self._caches.records_barrier.state_of(cluster), UnlistedNamespace):
            raise Deferred(
                Reason.RESERVATION_PENDING, "the Cluster's records are to be listed again", timedelta(seconds=0.1)
            )

    async def _list(self, unlisted: UnlistedNamespace) -> None:
        rate = self._list_rates.of(unlisted.namespace)
        rate.take()
        began = self._monotonic()
        try:
            await self._list_now(unlisted)
        finally:
            part = (self._monotonic() - began) / LONG_LIST_SECONDS
            rate.take(min(1.0, max(LEAST_COUNT, part)) - 1.0)  # gives back the rest

    async def _list_now(self, unlisted: UnlistedNamespace) -> None:
        self._caches.records_barrier.list_begins(unlisted)
        pages = self._client.list_pages(ATTESTED_NODES.collection(unlisted.namespace))
        async with contextlib.aclosing(pages):
            async for page in pages:
                cooperative_yield = CooperativeYield()
                for item in page["items"]:
                    if not isinstance(item, dict):
                        raise UnexpectedAnswer("the list holds an item that is no object", status=200)
                    self._caches.records.found(item)
                    await cooperative_yield.leave_turn()
        self._caches.records_barrier.list_completed(unlisted)

    def recorded(self, cluster: ClusterKey, node_name: str) -> AttestedNode | NoRecord:
        """The authentic record of that node name.

        Raises:
            Deferred: the controller key is not available, or a newer one must be read first.
        """
        return self._caches.authentic.get(cluster.namespace, record_name(cluster, node_name))

    async def write(self, record: AttestedNode, cluster: ClusterView) -> AttestedNode:
        """Seal the record, and create it or replace the version from which it was derived.

        Raises:
            RecordChanged: the record was created or changed meanwhile; the cache now holds the new version.
            Deferred: the controller key is not available, or a newer one must be read first.
            ApiError: from the management cluster.
        """
        spec = {**record_spec(record), "seal": self._caches.authentic.require_keys().seal(record)}
        try:
            if record.resource_version:
                written = await self._replace(record, cluster, spec)
            else:
                written = await self._create(record, cluster, spec)
        except (AlreadyExists, Conflict, NotFound) as error:
            await self.refresh(record.machine.cluster, record.name)
            raise RecordChanged(record.name) from error
        stored = self._caches.records.written(written)
        return stored.claimed if isinstance(stored, UnverifiedRecord) else parse_record(written)

    async def _replace(self, record: AttestedNode, cluster: ClusterView, spec: JsonObject) -> JsonObject:
        """Replace the version from which ``record`` was derived; keep the metadata that other clients set."""
        path, version = _path(record), _Version(record.uid, record.resource_version)
        kept = self._caches.authentic.metadata_of(record)
        preserved = await self._read_preserved(path, version) if isinstance(kept, NotKept) else kept.fields()
        return await self._client.replace(
            path, _replacement(record, version, self._with_owner(preserved, cluster), spec)
        )

    def _with_owner(self, preserved: JsonObject, cluster: ClusterView) -> JsonObject:
        """Add the Cluster as owner if no Cluster owns the record: backups are restored without owners, and the record
        would never be deleted.
        """
        owners, own = items_of(preserved, "ownerReferences"), _owner_reference(cluster, self._caches)
        if any(isinstance(owner, Mapping) and _kind_of(owner) == _kind_of(own) for owner in owners):
            return preserved
        return {**preserved, "ownerReferences": [*owners, own]}

    async def _create(self, record: AttestedNode, cluster: ClusterView, spec: JsonObject) -> JsonObject:
        """Create the record if there is none, or replace an object that is not authentic."""
        namespace, name = record.machine.cluster.namespace, record.name
        if not isinstance(self._caches.authentic.get(namespace, name), NoRecord):
            raise RecordChanged(name)
        manifest = _manifest(record, cluster, self._caches, spec)
        match self._caches.authentic.in_the_way(namespace, name):
            case NothingInTheWay():
                return await self._client.create(ATTESTED_NODES.collection(namespace), manifest)
            case InTheWay(uid, resource_version):
                _LOG.info(
                    "replacing an AttestedNode that is not authentic", extra={"namespace": namespace, "object": name}
                )
                path, version = _path(record), _Version(uid, resource_version)
                ours = {key: manifest["metadata"][key] for key in ("labels", "ownerReferences")}
                preserved = {**await self._read_preserved(path, version), **ours}
                return await self._client.replace(path, _replacement(record, version, preserved, spec))

    async def _read_preserved(self, path: str, version: _Version) -> JsonObject:
        """The metadata that other clients set on that version, read from the API server because it is not kept.

        Raises:
            Conflict: the object has another version now.
            ApiError: from the management cluster.
        """
        metadata = mapping_of(await self._client.get(path), "metadata")
        if _Version(text_of(metadata, "uid"), text_of(metadata, "resourceVersion")) != version:
            raise Conflict("another version than was read", status=409)
        return preserved_fields(metadata)

    async def refresh(self, cluster: ClusterKey, name: str) -> None:
        """Read a record from the API server and update the cache.

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


def _replacement(record: AttestedNode, version: _Version, preserved: JsonObject, spec: JsonObject) -> JsonObject:
    # Metadata of other clients stays, such as the owner that `clusterctl move` rewrites. The resourceVersion makes the
    # call fail, rather than overwrite, if the object has changed. The spec is written whole; the schema prunes unknown
    # fields.
    metadata = {
        **preserved,
        "name": record.name,
        "namespace": record.machine.cluster.namespace,
        "uid": version.uid,
        "resourceVersion": version.resource_version,
        # Cleared: no client applies parts of a record, and tracking field ownership doubles the cost of a write for the
        # API server (Kubernetes, "Server-Side Apply", Clearing managedFields).
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
    """API group and kind, without the version."""
    return text_of(owner, "apiVersion").rpartition("/")[0], text_of(owner, "kind")


def conflicting_names(
    caches: Caches,
    records: Records,
    machine: MachineView,
    dns_names: tuple[str, ...],
    ip_addresses: tuple[IPAddress, ...],
) -> frozenset[str]:
    """The requested names and addresses that other Machines have now, or other nodes by their records.

    Equivalent addresses count too. Each is in canonical form (:func:`~signer.model.addresses.canonical`).
    """
    names = frozenset(canonical(name) for name in dns_names)
    return caches.names.conflicting_names(machine, names | _written(ip_addresses)) | frozenset(
        name for name in names if _is_anothers_node(records, machine, name)
    )


def possibly_conflicting_names(
    caches: Caches, machine: MachineView, dns_names: tuple[str, ...], ip_addresses: tuple[IPAddress, ...]
) -> frozenset[str]:
    """The requested names and addresses, in the same form, that an unreadable address of another Machine may be."""
    names = frozenset(canonical(name) for name in dns_names)
    return caches.names.possibly_conflicting_names(machine, names | _written(ip_addresses))


def _written(ip_addresses: tuple[IPAddress, ...]) -> frozenset[str]:
    return frozenset(str(face) for address in ip_addresses for face in equivalent_addresses(address))


def _is_anothers_node(records: Records, machine: MachineView, name: str) -> bool:
    record = records.recorded(machine.cluster, name)
    return isinstance(record, AttestedNode) and record.machine != MachineKey.of(machine)
