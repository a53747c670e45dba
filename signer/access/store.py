"""AccessGrants and Bastions as the caches keep them: small, because there may be thousands.

A record is kept as it came, compressed: its seal is verified when the grant is looked at, with the keys of that moment.
Certificates and ``known_hosts`` are not kept. A write of status leaves fields alone that it does not name.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

import msgspec

from signer.access.record import MAXIMUM_RECORD_BYTES, BrokenRecord, GrantSeals, NoRecord, StoredRecord
from signer.kube.client import JsonObject
from signer.model.access import (
    AccessGrant,
    CreatorNotStated,
    InvalidAccessGrant,
    ObjectMetadata,
    StatedCreator,
    parse_access_grant,
)
from signer.model.access.creator import read_creator
from signer.model.access.metadata import read_metadata
from signer.model.access.reader import Reader
from signer.model.cluster import ClusterKey
from signer.model.fields import items_of, mapping_of, text_of

_ENCODE: Final = msgspec.json.Encoder(order="sorted").encode
_DECODE: Final = msgspec.json.Decoder().decode
_FASTEST: Final = 1
_NO_STATUS: Final[Mapping[str, Any]] = MappingProxyType({})
_NONE: Final = b""
_TOO_LARGE: Final = b"-"
_MAXIMUM_CONDITIONS: Final = 16


@dataclass(frozen=True, slots=True)
class StoredGrant:
    """One AccessGrant."""

    metadata: ObjectMetadata
    grant: AccessGrant | InvalidAccessGrant
    """Without its status."""
    cluster: ClusterKey
    """As the object says."""
    asks_keepalive: bool
    asks_suspension: bool
    """Also of an invalid object."""
    creator: StatedCreator
    """As the object says, also of an invalid one."""
    record: bytes = field(repr=False)
    conditions: bytes = field(repr=False)
    """``status.conditions``, as they came, compressed."""
    observed_generation: int
    shown: tuple[str, str]
    """``lastHeartbeatTimestamp`` and ``expirationTimestamp`` of the status, which decide nothing."""

    @property
    def has_record(self) -> bool:
        """Whether the status holds a record, whoever wrote it."""
        return self.record != _NONE

    def unsealed(self, seals: GrantSeals) -> StoredRecord:
        """The record, if its seal is valid for this grant."""
        if self.record == _NONE:
            return NoRecord()
        if self.record == _TOO_LARGE:
            return BrokenRecord("the record is too large")
        return seals.read(self.metadata, _unpacked(self.record))

    def record_fields(self) -> frozenset[str]:
        """The names of the record's fields, whatever they hold."""
        found = _unpacked(self.record) if self.record not in (_NONE, _TOO_LARGE) else None
        return frozenset(found) if isinstance(found, dict) else frozenset()

    def present_conditions(self) -> dict[str, Mapping[str, Any]]:
        """The conditions by type."""
        found = {}
        for one in _unpacked(self.conditions):
            found[text_of(one, "type")] = one
        return found


def stored_grant(manifest: JsonObject) -> StoredGrant:
    """Parse an object from the API server; an invalid one is kept as such, because it must still be able to end.

    Raises:
        InvalidAccessGrant: not even its metadata is valid.
    """
    whole = Reader(InvalidAccessGrant, "", manifest)
    metadata = read_metadata(whole)
    spec, status = mapping_of(manifest, "spec"), mapping_of(manifest, "status")
    grant: AccessGrant | InvalidAccessGrant
    try:
        grant = replace(parse_access_grant(manifest), status=_NO_STATUS)
        cluster, keepalive, creator = grant.cluster, grant.asks_keepalive, grant.created_by
    except InvalidAccessGrant as error:
        grant, keepalive = InvalidAccessGrant(error.field, error.message), False
        cluster = ClusterKey(metadata.namespace, text_of(mapping_of(spec, "clusterRef"), "name")[:253])
        creator = _stated_creator(spec)
    conditions = [one for one in items_of(status, "conditions") if isinstance(one, Mapping)][:_MAXIMUM_CONDITIONS]
    generation = status.get("observedGeneration")
    return StoredGrant(
        metadata,
        grant,
        cluster,
        keepalive,
        spec.get("suspend") is True,
        creator,
        _bounded(status.get("record")),
        _packed(_ENCODE(conditions)),
        generation if type(generation) is int else 0,
        (text_of(status, "lastHeartbeatTimestamp"), text_of(status, "expirationTimestamp")),
    )


def _stated_creator(spec: Mapping[str, Any]) -> StatedCreator:
    try:
        return read_creator(Reader(InvalidAccessGrant, "spec", spec))
    except InvalidAccessGrant:
        return CreatorNotStated()


def _bounded(record: object) -> bytes:
    if record is None:
        return _NONE
    encoded: bytes = _ENCODE(record)
    return _packed(encoded) if len(encoded) <= MAXIMUM_RECORD_BYTES else _TOO_LARGE


def _packed(encoded: bytes) -> bytes:
    return zlib.compress(encoded, _FASTEST)


def _unpacked(packed: bytes) -> Any:
    """What this process has packed itself."""
    return _DECODE(zlib.decompress(packed))


@dataclass(frozen=True, slots=True)
class StoredBastion:
    """One Bastion."""

    name: str
    uid: str
    grant_uid: str
    is_deleting: bool
    content: bytes = field(repr=False)
    """Compressed: ``metadata``, ``spec`` and ``status``, without managed fields."""

    @property
    def manifest(self) -> JsonObject:
        """The object."""
        found: JsonObject = _unpacked(self.content)
        return found


def stored_bastion(manifest: JsonObject) -> StoredBastion:
    """Parse an object from the API server. Only controllers write them."""
    metadata = mapping_of(manifest, "metadata")
    spec = mapping_of(manifest, "spec")
    kept = {
        "apiVersion": text_of(manifest, "apiVersion"),
        "kind": text_of(manifest, "kind"),
        "metadata": {name: value for name, value in metadata.items() if name not in ("managedFields", "annotations")},
        "spec": spec,
        "status": mapping_of(manifest, "status"),
    }
    return StoredBastion(
        text_of(metadata, "name"),
        text_of(metadata, "uid"),
        text_of(mapping_of(spec, "grantRef"), "uid"),
        "deletionTimestamp" in metadata,
        _packed(_ENCODE(kept)),
    )


__all__ = ["StoredBastion", "StoredGrant", "stored_bastion", "stored_grant"]
