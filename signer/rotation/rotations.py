"""The records of all rotations: read from a cache, verified, and written with a seal.

Only a record whose seal is valid counts. One that is not changes nothing: the controller signs with what Secret
``<cluster>-ca`` holds, and the policy's condition says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from signer.kube.calls import GetCreateReplace
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, Conflict, NotFound
from signer.kube.resources import CERTIFICATE_AUTHORITY_ROTATIONS
from signer.model.authority_suffixes import (
    ExpectedSecret,
    FormerAuthorities,
    NoRecord,
    RotatingAuthorities,
    RotationOfAuthorities,
)
from signer.model.cluster import CLUSTER_NAME_LABEL, ClusterKey, ClusterView
from signer.model.decision import Deferred
from signer.model.fields import mapping_of, text_of
from signer.model.seal import ControllerKeys, Generation, Unauthentic
from signer.rotation.authorities import AuthorityKind, NotMade, Role, pair_suffix
from signer.rotation.desired import AsBefore, signing
from signer.rotation.operations import NeverRotated
from signer.rotation.phases import Phase
from signer.rotation.record import (
    MOVE_LABEL,
    RotationRecord,
    RotationSeals,
    Stored,
    StoredRotation,
    UnreadableRotation,
    record_spec,
    stored_rotation,
)
from signer.store.authentic_records import preserved_fields
from signer.store.cache import ObjectKey
from signer.store.cache_registry import CacheDeclaration, Scope
from signer.store.caches import Caches

_KIND: Final = "CertificateAuthorityRotation"
_MOST_REMEMBERED: Final = 8
"""Rotations of one Cluster."""


@dataclass(frozen=True, slots=True)
class Unverified:
    """There is an object, and it is not as this controller wrote it."""

    message: str


@dataclass(frozen=True, slots=True)
class Verified:
    """A record that this controller sealed."""

    record: RotationRecord
    uid: str
    resource_version: str
    sealed_with: Generation = Generation.CURRENT


Known: TypeAlias = Verified | Unverified | NeverRotated


class RotationChanged(Exception):
    """Another client wrote the record first: look again."""


class GetKeys(Protocol):
    """The controller keys."""

    def __call__(self) -> ControllerKeys:
        """The keys.

        Raises:
            Deferred: they are not available.
        """
        ...


class Rotations:
    """The rotations of all Clusters. Create it before the caches run."""

    def __init__(self, client: GetCreateReplace, caches: Caches, keys: GetKeys) -> None:
        self._client = client
        self._caches = caches
        self._keys = keys
        self._wakes: list[Callable[[ClusterKey], None]] = []
        self._cache = caches.registry.register(
            CacheDeclaration(
                CERTIFICATE_AUTHORITY_ROTATIONS,
                stored_rotation,
                Scope.WATCHED,
                needed_by_decisions=True,
                changed=self._changed,
            )
        )
        self._unsealed: dict[ObjectKey, tuple[Stored, ControllerKeys, Known]] = {}
        """The last verification of each object."""
        self._newest: dict[ObjectKey, dict[str, int]] = {}
        """The highest sequence that this process has seen of each rotation, authentic ones alone; the newest last."""
        self._lineage: dict[ObjectKey, frozenset[str]] = {}
        """Hashes of the CAs that a Cluster's record names or named before it was deleted; authentic or not."""

    def on_change(self, wake: Callable[[ClusterKey], None]) -> None:
        """Call ``wake`` when the record of a Cluster has changed."""
        self._wakes.append(wake)

    def _changed(self, key: ObjectKey, before: Stored | None, after: Stored | None) -> None:
        if after is None:
            self._unsealed.pop(key, None)
        if isinstance(after, StoredRotation):
            self._lineage[key] = _hashes(after.claimed)
            with contextlib.suppress(Deferred):  # also in a replica that leads later
                self.of(ClusterKey(*key))
        for wake in self._wakes:
            wake(ClusterKey(*key))

    def of(self, key: ClusterKey) -> Known:
        """The Cluster's rotation.

        Raises:
            Deferred: the controller keys are not available.
        """
        stored = self._cache.get(key.namespace, key.name)
        if stored is None:
            return NeverRotated()
        keys = self._keys()
        before = self._unsealed.get((key.namespace, key.name))
        if before is None or before[0] is not stored or before[1] is not keys:
            known = self._judged((key.namespace, key.name), _verify(stored, keys))
            before = self._unsealed[key.namespace, key.name] = stored, keys, known
        return before[2]

    def _judged(self, key: ObjectKey, known: Known) -> Known:
        """Refuse an authentic record that is older than one that this process has seen: somebody put it back.

        It may sign by a CA that API servers refuse by now. A restart forgets it, because a management cluster that was
        restored from a backup has nothing newer in any of its objects.
        """
        if not isinstance(known, Verified):
            return known
        seen, record = self._newest.setdefault(key, {}), known.record
        newest = next(reversed(seen), record.rotation_id)
        if record.rotation_id in seen and (record.rotation_id != newest or record.sequence < seen[record.rotation_id]):
            return Unverified(
                f"{_KIND} {record.cluster} is older than one that this controller has seen (sequence {record.sequence} "
                f"of rotation {record.rotation_id}, after {seen[newest]} of {newest}). Put the newer one back; or, if "
                "the management cluster was restored from a backup, restart the controller to go on from this one"
            )
        seen[record.rotation_id] = record.sequence
        while len(seen) > _MOST_REMEMBERED:
            del seen[next(iter(seen))]
        return known

    def authorities(self, key: ClusterKey) -> RotationOfAuthorities:
        """Implements :class:`~signer.decision.authority_source.KnowsRotation`.

        Where the record is not authentic, or was deleted while this process runs, Secret ``<cluster>-ca`` decides who
        signs, and evidence that names a CA of the record waits. In the middle of a rotation that may be every node's,
        and a denial would be final.

        Raises:
            Deferred: the controller keys are not available.
        """
        known = self.of(key)
        if isinstance(known, Verified):
            return authorities_of(known.record)
        named = self._lineage.get((key.namespace, key.name))
        return NoRecord() if named is None else FormerAuthorities(named)

    async def require_newest(self, known: Verified) -> None:
        """The API server has no other version of the record now.

        Called between the reads and the write of a pass. A write at exactly the version that was read is not enough: a
        replica that was the leader may still work by a record that another one has replaced, and read what that other
        one has written since.

        Raises:
            RotationChanged: it has, or none.
            ApiError: from the management cluster.
        """
        cluster = known.record.cluster
        path = CERTIFICATE_AUTHORITY_ROTATIONS.object(cluster.name, cluster.namespace)
        try:
            metadata = mapping_of(await self._client.get(path), "metadata")
        except NotFound as error:
            raise RotationChanged(str(error)) from error
        if (text_of(metadata, "uid"), text_of(metadata, "resourceVersion")) != (known.uid, known.resource_version):
            raise RotationChanged("the record has changed since this pass began")

    async def write(self, record: RotationRecord, before: Known, cluster: ClusterView) -> Verified:
        """Seal the record, and create it or replace exactly the version from which it was derived.

        Raises:
            RotationChanged: another client was first.
            Deferred: the controller keys are not available.
            ApiError: from the management cluster.
        """
        spec = {**record_spec(record), "seal": RotationSeals(self._keys()).seal(record)}
        metadata = _metadata(record, cluster, self._caches.version.clusters.api_version)
        path = CERTIFICATE_AUTHORITY_ROTATIONS.object(record.cluster.name, record.cluster.namespace)
        try:
            if isinstance(before, Verified):
                exactly = {"uid": before.uid, "resourceVersion": before.resource_version}
                kept = preserved_fields(mapping_of(await self._client.get(path), "metadata"))
                labels = {**mapping_of(kept, "labels"), **metadata["labels"]}
                written = await self._client.replace(
                    path, _body({**kept, **metadata, "labels": labels, **exactly}, spec)
                )
            else:
                collection = CERTIFICATE_AUTHORITY_ROTATIONS.collection(record.cluster.namespace)
                written = await self._client.create(collection, _body(metadata, spec))
        except (AlreadyExists, Conflict, NotFound) as error:
            raise RotationChanged(str(error)) from error
        self._cache.written(written)
        stored = stored_rotation(written)
        known = _verify(stored, self._keys())
        if not isinstance(known, Verified) or known.record != record:
            raise RotationChanged("the API server stored another record than was written")
        return known


def _verify(stored: Stored, keys: ControllerKeys) -> Known:
    if isinstance(stored, UnreadableRotation):
        return Unverified(stored.message)
    verified = RotationSeals(keys).verify(stored)
    if isinstance(verified, Unauthentic):
        return Unverified(f"{_KIND} {stored.claimed.cluster}: {verified.fault.value}")
    return Verified(stored.claimed, stored.uid, stored.resource_version, verified.generation)


def authorities_of(record: RotationRecord) -> RotationOfAuthorities:
    """What the record says about the cluster's CAs."""
    cluster = record.authority(AuthorityKind.CLUSTER)
    decides = signing(record)
    if record.phase is Phase.ABANDONED:
        # Nodes may know the cluster by either CA, and are told of no other one any more.
        return FormerAuthorities(_hashes(record), tuple(_kept_secrets(record).values()))
    if isinstance(decides, AsBefore):
        return FormerAuthorities(_hashes(record))
    secrets = _kept_secrets(record)
    others = decides.accepted - {decides.client, decides.serving}
    return RotatingAuthorities(
        client=secrets[decides.client],
        serving=secrets[decides.serving],
        also_accepted=tuple(secrets[role] for role in Role if role in others),
        retired=frozenset(cluster.of(role).public_key_hash for role in Role),
    )


def _kept_secrets(record: RotationRecord) -> dict[Role, ExpectedSecret]:
    """The rotation's own Secrets of the cluster's CA that it has made."""
    cluster = record.authority(AuthorityKind.CLUSTER)
    made = tuple(role for role in Role if role is Role.OLD or not isinstance(cluster.new, NotMade))
    return {
        role: ExpectedSecret(
            pair_suffix(AuthorityKind.CLUSTER, record.rotation_id, role),
            cluster.of(role).digest,
            cluster.of(role).public_key_hash,
        )
        for role in made
    }


def _hashes(record: RotationRecord) -> frozenset[str]:
    """The hashes of both CAs. Evidence that names the one that stays waits, too, if somebody puts another CA into
    Secret ``<cluster>-ca``: a denial would be final.
    """
    cluster = record.authority(AuthorityKind.CLUSTER)
    made = () if isinstance(cluster.new, NotMade) else (cluster.new,)
    return frozenset(one.public_key_hash for one in (cluster.old, *made))


def _metadata(record: RotationRecord, cluster: ClusterView, api_version: str) -> dict[str, Any]:
    return {
        "name": record.cluster.name,
        "namespace": record.cluster.namespace,
        "labels": {CLUSTER_NAME_LABEL: record.cluster.name, MOVE_LABEL: ""},
        "ownerReferences": [
            {"apiVersion": api_version, "kind": "Cluster", "name": cluster.key.name, "uid": cluster.uid}
        ],
    }


def _body(metadata: dict[str, Any], spec: dict[str, Any]) -> JsonObject:
    return {
        "apiVersion": CERTIFICATE_AUTHORITY_ROTATIONS.api_version,
        "kind": _KIND,
        "metadata": metadata,
        "spec": spec,
    }


__all__ = ["Known", "RotationChanged", "Rotations", "StoredRotation", "Unverified", "Verified", "authorities_of"]
