"""The AttestedNodes that the controller sealed, by name, by Machine and by identity. No other record is ever used.

Tenants may be able to write AttestedNodes in their namespaces, so the cache of AttestedNodes is untrusted input. Each
version of a record is verified once, when it arrives. A record that is not authentic or not readable counts as no
record; it is kept only so that the next write can replace it.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from signer.authority.statement_signing import StatementKeys
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred
from signer.model.host_keys import AttestedHostKeys
from signer.model.reasons import Reason
from signer.model.record import AttestedIdentity, AttestedNode, MachineKey, is_known
from signer.model.record_object import InvalidRecord, parse_record
from signer.model.reservation import Pair
from signer.model.seal import ControllerKeys, Fault, KeyUse, RecordSeals, Unauthentic, Unsealed
from signer.rules.machine import NoRecord
from signer.store.cache import ObjectKey
from signer.store.newest_attestations import NewestAttestations
from signer.store.unknown_keys import UnknownKeys

MAXIMUM_BYTES: Final = 2048
"""Tenants may fill annotations; an object with more metadata is read again before it is written."""
_SERVER_FIELDS: Final = frozenset(
    {"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"}
)
"""Fields that identify the object, or that only the API server sets (``metav1.ObjectMeta``)."""


@dataclass(frozen=True, slots=True)
class PreservedMetadata:
    """All of an object's metadata but what the API server fills in, as JSON, so that the whole can be written again.

    A PUT costs an API server half of what a PATCH does (measured on 1.20: 1.2 beside 2.5 ms of its CPU for an
    AttestedNode), but it must carry everything that is to stay: labels, annotations, owners that ``clusterctl move``
    rewrites, finalizers. The resourceVersion in it makes sure that nothing has come since.
    """

    packed: bytes

    def fields(self) -> dict[str, Any]:
        """The decoded fields."""
        unpacked: dict[str, Any] = msgspec.json.decode(self.packed)
        return unpacked


@dataclass(frozen=True, slots=True)
class NotKept:
    """No metadata is kept: there was none, or more than ``MAXIMUM_BYTES``."""


KeptMetadata: TypeAlias = PreservedMetadata | NotKept


def preserved_metadata(metadata: Mapping[str, Any]) -> KeptMetadata:
    """Keep what other clients set in ``metadata``, which came from the API server."""
    packed = msgspec.json.encode(preserved_fields(metadata))
    return _interned(packed) if len(packed) <= MAXIMUM_BYTES else NotKept()


def preserved_fields(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """``metadata`` without the fields that the API server sets."""
    return {key: value for key, value in metadata.items() if key not in _SERVER_FIELDS}


@lru_cache(maxsize=4096)
def _interned(packed: bytes) -> PreservedMetadata:
    """One object for equal metadata: all records of a Cluster have the same label and owner."""
    return PreservedMetadata(packed)


_LOG = logging.getLogger(__name__)
_KEY_RETRY: Final = timedelta(seconds=2)
"""A request that needs the key makes the controller read its Secret again at once, so a short retry is enough."""


@dataclass(frozen=True, slots=True)
class UnverifiedRecord:
    """An object with the form of a record, whose seal is not verified yet."""

    claimed: AttestedNode
    metadata: KeptMetadata = field(default_factory=NotKept)


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """An AttestedNode that does not parse as a record, whichever client wrote it."""

    uid: str
    resource_version: str
    message: str


StoredRecord: TypeAlias = UnverifiedRecord | UnreadableRecord


@dataclass(frozen=True, slots=True)
class KeysUnavailable:
    """The controller key is not available, so no record can be verified."""

    message: str


@dataclass(frozen=True, slots=True)
class InTheWay:
    """An object that is not the controller's record has the record's name: replace exactly this version."""

    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class NothingInTheWay:
    """No object has that name."""


def stored_record(manifest: Mapping[str, Any]) -> StoredRecord:
    """Parse an AttestedNode from the API server. Only :class:`AuthenticRecords` verifies its seal."""
    try:
        return UnverifiedRecord(parse_record(manifest), preserved_metadata(manifest["metadata"]))
    except InvalidRecord as error:
        metadata = manifest.get("metadata")
        metadata = metadata if isinstance(metadata, Mapping) else {}
        uid, version = (str(metadata.get(key) or "") for key in ("uid", "resourceVersion"))
        return UnreadableRecord(uid, version, str(error))


class AuthenticChanged(Protocol):
    """Callback for each change of an authentic record."""

    def __call__(self, key: ObjectKey, before: AttestedNode | NoRecord, after: AttestedNode | NoRecord) -> None:
        """A record was verified, changed, or is no longer authentic."""
        ...


def _ignore_change(key: ObjectKey, before: AttestedNode | NoRecord, after: AttestedNode | NoRecord) -> None:
    """Ignore the change."""


def _ignore_keys() -> None:
    """Ignore the change of keys."""


class AuthenticRecords:
    """Verifies records with the controller keys. The cache of AttestedNodes reports each change to it.

    ``keys_changed`` is called when the keys that were read differ from the previous ones.
    """

    def __init__(
        self, tell: AuthenticChanged = _ignore_change, keys_changed: Callable[[], None] = _ignore_keys
    ) -> None:
        self._tell = tell
        self._keys_changed = keys_changed
        self._keys: ControllerKeys | KeysUnavailable = KeysUnavailable("the controller key has not been read yet")
        self._seals: RecordSeals | KeysUnavailable = self._keys
        self._stored: dict[ObjectKey, StoredRecord] = {}
        self._authentic: dict[ObjectKey, AttestedNode] = {}
        self._unverified: dict[ObjectKey, UnverifiedRecord] = {}
        """Records that arrived without any key available, or with an unknown one since the Secret was last read."""
        self._unverified_by_machine: dict[MachineKey, set[ObjectKey]] = {}
        self._unverified_by_identity: dict[tuple[str, str], set[ObjectKey]] = {}
        self._by_machine: dict[MachineKey, dict[ObjectKey, AttestedNode]] = {}
        self._by_identity: dict[tuple[str, str], dict[ObjectKey, AttestedNode]] = {}
        self._by_host_key: dict[str, dict[ObjectKey, AttestedNode]] = {}
        """By the public key of sshd."""
        self._claiming: dict[str, dict[ObjectKey, AttestedNode]] = {}
        """By claimed provider ID."""
        self._claims_by: dict[str, dict[ObjectKey, AttestedNode]] = {}
        """By the UID of the Machine that a provider ID is claimed for. A node may claim any text, even such a UID."""
        self._claims_of: dict[ClusterKey, dict[ObjectKey, AttestedNode]] = {}
        self._arrived_while_reading: set[ObjectKey] = set()
        """The unverified records that arrived since the last read of the Secret began."""
        self._reported: dict[ObjectKey, str] = {}
        """The last version of each object that a log line reported."""
        self.ignored = 0
        """Number of object versions found not to be authentic records, since the start."""
        self.key_wanted = asyncio.Event()
        """Set when an object was sealed with an unknown key: the Secret may hold a newer one."""
        self._unknown_keys = UnknownKeys()
        self.newest = NewestAttestations()

    # The keys

    def begin_key_read(self) -> None:
        """A read of the Secret begins. A record that arrives from now on may be sealed with a newer key than this read
        finds.
        """
        self._unknown_keys.begin_read()
        self._arrived_while_reading.clear()
        self.key_wanted.clear()

    def use_keys(self, keys: ControllerKeys) -> None:
        """Use the keys that were just read, and verify what they concern. A record sealed with any other key is not
        authentic.
        """
        self._unknown_keys.read_succeeded()
        changed, self._keys, self._seals = keys != self._keys, keys, RecordSeals(keys)
        concerned: Mapping[ObjectKey, StoredRecord] = self._stored if changed else self._unverified
        late = frozenset(self._arrived_while_reading)
        for key, stored in list(concerned.items()):
            self._verify(key, stored, keys_are_newest=key not in late)
        if changed:
            self._keys_changed()

    def use_no_keys(self, unavailable: KeysUnavailable) -> None:
        """The keys are not available any more: every decision waits."""
        self._seals = unavailable

    def require_keys(self) -> RecordSeals:
        """The seals, made and verified with the current keys.

        Raises:
            Deferred: the controller key is not available.
        """
        if isinstance(self._seals, KeysUnavailable):
            raise Deferred(Reason.CONTROLLER_KEY_UNAVAILABLE, self._seals.message, _KEY_RETRY)
        return self._seals

    def keys(self) -> ControllerKeys:
        """The controller keys, for objects of other kinds than records.

        Raises:
            Deferred: they are not available.
        """
        self.require_keys()
        if isinstance(self._keys, KeysUnavailable):
            raise Deferred(Reason.CONTROLLER_KEY_UNAVAILABLE, self._keys.message, _KEY_RETRY)
        return self._keys

    def see_unknown_key(self, identifier: str) -> None:
        """Remember the key of a seal: what was read before does not tell whether it is the controller's."""
        self._unknown_keys.see(identifier)

    def require_looked_for(self, identifier: str, what: str) -> None:
        """The Secret was read since a seal under an unknown key was seen: the key is not the controller's.

        Raises:
            Deferred: it was not read since. The read is asked for; ``what`` was sealed.
        """
        self.see_unknown_key(identifier)
        if self._unknown_keys.was_looked_for(identifier):
            return
        self.key_wanted.set()
        raise Deferred(
            Reason.CONTROLLER_KEY_UNAVAILABLE, f"{what} was sealed with a key that was not read yet", _KEY_RETRY
        )

    def challenge_keys(self, provider: str) -> tuple[bytes, ...]:
        """Keys for the challenges of one attestor, newest first. No two attestors share a key.

        Raises:
            Deferred: the controller key is not available.
        """
        subkeys = self.keys().subkeys(KeyUse.CHALLENGE)
        return tuple(hmac.digest(subkey.secret, provider.encode("utf-8"), "sha256") for subkey in subkeys)

    def statement_keys(self) -> StatementKeys:
        """The keys that sign statements for nodes.

        Raises:
            Deferred: the controller key is not available.
        """
        return StatementKeys.of(self.keys().subkeys(KeyUse.STATEMENT))

    # The records

    def get(self, namespace: str, name: str) -> AttestedNode | NoRecord:
        """The authentic record of that name.

        Raises:
            Deferred: the controller key is not available, or must be read again before the record can be verified.
        """
        self.require_keys()
        key = namespace, name
        if key in self._unverified:
            raise _not_verified(namespace, name)
        return self._authentic.get(key) or NoRecord()

    def in_the_way(self, namespace: str, name: str) -> InTheWay | NothingInTheWay:
        """The object that has the name for which :meth:`get` found no record."""
        match self._stored.get((namespace, name)):
            case None:
                return NothingInTheWay()
            case UnverifiedRecord(claimed=claimed):
                return InTheWay(claimed.uid, claimed.resource_version)
            case UnreadableRecord(uid, resource_version):
                return InTheWay(uid, resource_version)

    def metadata_of(self, record: AttestedNode) -> KeptMetadata:
        """The metadata that other clients set on exactly that version of ``record``."""
        stored = self._stored.get((record.machine.cluster.namespace, record.name))
        if isinstance(stored, UnverifiedRecord) and stored.claimed.resource_version == record.resource_version:
            return stored.metadata
        return NotKept()

    def values(self) -> tuple[AttestedNode, ...]:
        """All authentic records.

        Raises:
            Deferred: the controller key is not available.
        """
        self.require_keys()
        return tuple(self._authentic.values())

    def count_unauthentic(self) -> Counter[ClusterKey]:
        """For each cluster, the number of objects that name one of its Machines and are not authentic."""
        others = (stored for key, stored in self._stored.items() if key not in self._authentic)
        return Counter(stored.claimed.machine.cluster for stored in others if isinstance(stored, UnverifiedRecord))

    def naming(self, pair: Pair) -> tuple[AttestedNode, ...]:
        """Authentic records of any namespace that name the pair's Machine or identity, last attested first.

        Raises:
            Deferred: the controller key is not available, or must be read again to verify a record that names one of
                them. An unverified record of another namespace does not count: it must not delay this namespace's
                requests.
        """
        self.require_keys()
        self.require_all_known(pair.machine)
        for namespace, name in self._unverified_by_identity.get(_identity_key(pair.identity), ()):
            if namespace == pair.machine.cluster.namespace:
                raise _not_verified(namespace, name)
        by_machine = self._by_machine.get(pair.machine, {})
        found = {**by_machine, **self._by_identity.get(_identity_key(pair.identity), {})}
        return tuple(sorted(found.values(), key=lambda record: record.last_attestation, reverse=True))

    def of_machine(self, machine: MachineKey) -> tuple[AttestedNode, ...]:
        """The authentic records that name that Machine.

        Raises:
            Deferred: the controller key is not available.
        """
        self.require_keys()
        return tuple(self._by_machine.get(machine, {}).values())

    def with_host_key(self, public_key: str) -> tuple[AttestedNode, ...]:
        """The authentic records of any namespace whose node has that host key, ``type base64``.

        Raises:
            Deferred: the controller key is not available.
        """
        self.require_keys()
        return tuple(self._by_host_key.get(public_key, {}).values())

    def claiming(self, provider_id: str) -> tuple[AttestedNode, ...]:
        """The authentic records of any namespace that claim that provider ID for a Machine that did not show it.

        Raises:
            Deferred: the controller key is not available.
        """
        self.require_keys()
        return tuple(self._claiming.get(provider_id, {}).values())

    def of_claims_by(self, machine_uid: str) -> tuple[AttestedNode, ...]:
        """The authentic records that claim a provider ID for the Machine of that UID.

        Raises:
            Deferred: the controller key is not available.
        """
        self.require_keys()
        return tuple(self._claims_by.get(machine_uid, {}).values())

    def claims_of(self, cluster: ClusterKey) -> tuple[AttestedNode, ...]:
        """The cluster's authentic records that claim a provider ID.

        Raises:
            Deferred: the controller key is not available.
        """
        self.require_keys()
        return tuple(self._claims_of.get(cluster, {}).values())

    def require_all_known(self, machine: MachineKey) -> None:
        """Call this where :meth:`of_machine` must be complete.

        Raises:
            Deferred: the controller key must be read again to verify a record that names that Machine.
        """
        for namespace, name in self._unverified_by_machine.get(machine, ()):
            raise _not_verified(namespace, name)

    def changed(self, key: ObjectKey, before: StoredRecord | None, after: StoredRecord | None) -> None:
        """See :class:`~signer.store.cache.Changed`."""
        if after is None:
            self._drop_unverified(key)
            for known in (self._stored, self._reported):
                known.pop(key, None)
            self._index(key, NoRecord())
        else:
            self._stored[key] = after
            self._verify(key, after, keys_are_newest=False)

    def _verify(self, key: ObjectKey, stored: StoredRecord, *, keys_are_newest: bool) -> None:
        """Verify one stored record. If even the newest keys do not include its key, it is not the controller's."""
        self._drop_unverified(key)
        self._index(key, NoRecord())
        if isinstance(stored, UnreadableRecord):
            self._ignore(key, stored.resource_version, stored.message)
            return
        unsealed: Unsealed = Unauthentic(Fault.UNKNOWN_KEY)
        if isinstance(self._seals, RecordSeals):
            unsealed = self._seals.unseal(stored.claimed)
        if isinstance(unsealed, AttestedNode):
            self._report_unknown_kinds(key, unsealed)
            self._index(key, unsealed)
        elif unsealed.fault is Fault.UNKNOWN_KEY and not keys_are_newest:
            self._unverified[key] = stored
            self._unverified_by_machine.setdefault(stored.claimed.machine, set()).add(key)
            self._unverified_by_identity.setdefault(_identity_key(stored.claimed.identity), set()).add(key)
            self._arrived_while_reading.add(key)
            self.key_wanted.set()
        else:
            self._ignore(key, stored.claimed.resource_version, unsealed.fault.value)

    def _drop_unverified(self, key: ObjectKey) -> None:
        """The record is verified or deleted: take it off the unverified ones."""
        before = self._unverified.pop(key, None)
        if before is not None:
            _discard(self._unverified_by_machine, before.claimed.machine, key)
            _discard(self._unverified_by_identity, _identity_key(before.claimed.identity), key)

    def _ignore(self, key: ObjectKey, resource_version: str, why: str) -> None:
        if self._reported.get(key) == resource_version:
            return
        self._reported[key] = resource_version
        self.ignored += 1
        _LOG.warning(
            "ignored an AttestedNode that is not authentic: its node must attest again",
            extra={"namespace": key[0], "object": key[1], "resourceVersion": resource_version, "error": why},
        )

    def _report_unknown_kinds(self, key: ObjectKey, record: AttestedNode) -> None:
        """Log certificate kinds that this version does not know. The record counts; of such certificates only the end
        is used.
        """
        kinds = {entry.kind for entry in record.journal} | {approval.kind for approval in record.builtin_approvals}
        unknown = sorted(kind for kind in kinds if not is_known(kind))
        if unknown and self._reported.get(key) != record.resource_version:
            self._reported[key] = record.resource_version
            _LOG.warning(
                "an AttestedNode names certificate kinds that this version does not know: the controller cannot tell "
                "which certificates its node uses",
                extra={
                    "namespace": key[0],
                    "object": key[1],
                    "resourceVersion": record.resource_version,
                    "detail": ", ".join(unknown),
                },
            )

    def _index(self, key: ObjectKey, record: AttestedNode | NoRecord) -> None:
        before = self._authentic.pop(key, None)
        if before is not None or isinstance(record, AttestedNode):
            self._tell(key, before or NoRecord(), record)
        if before is not None:
            _drop(self._by_machine, before.machine, key)
            _drop(self._by_identity, _identity_key(before.identity), key)
            for host_key in _host_keys_of(before):
                _drop(self._by_host_key, host_key, key)
            if before.machine.is_claimed:
                _drop(self._claiming, before.machine.provider_id, key)
                _drop(self._claims_by, before.machine.claimed_by, key)
                _drop(self._claims_of, before.machine.cluster, key)
        if isinstance(record, AttestedNode):
            self.newest.see(record)
            self._authentic[key] = record
            self._by_machine.setdefault(record.machine, {})[key] = record
            self._by_identity.setdefault(_identity_key(record.identity), {})[key] = record
            for host_key in _host_keys_of(record):
                self._by_host_key.setdefault(host_key, {})[key] = record
            if record.machine.is_claimed:
                self._claiming.setdefault(record.machine.provider_id, {})[key] = record
                self._claims_by.setdefault(record.machine.claimed_by, {})[key] = record
                self._claims_of.setdefault(record.machine.cluster, {})[key] = record


def _not_verified(namespace: str, name: str) -> Deferred:
    return Deferred(
        Reason.CONTROLLER_KEY_UNAVAILABLE,
        f"AttestedNode {namespace}/{name} was sealed with a key that was not read yet",
        _KEY_RETRY,
    )


def _host_keys_of(record: AttestedNode) -> frozenset[str]:
    ssh = record.ssh
    return frozenset(one.public_key for one in ssh.host_keys) if isinstance(ssh, AttestedHostKeys) else frozenset()


def _identity_key(identity: AttestedIdentity) -> tuple[str, str]:
    """The input of :attr:`AttestedIdentity.digest`."""
    return identity.provider, identity.identity


def _discard(index: dict[Any, set[ObjectKey]], index_key: Any, key: ObjectKey) -> None:
    index[index_key].discard(key)
    if not index[index_key]:
        del index[index_key]


def _drop(index: dict[Any, dict[ObjectKey, AttestedNode]], index_key: Any, key: ObjectKey) -> None:
    del index[index_key][key]
    if not index[index_key]:
        del index[index_key]
