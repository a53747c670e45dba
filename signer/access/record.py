"""``status.record`` of an AccessGrant: what the controller has proven and done, under its seal. Pure.

The seal (:mod:`signer.model.seal`) covers every value, and the grant's namespace, name and UID. Everything that decides
about a grant after its first sight is in here; the object's other fields only ask for changes. One write of status
holds an entry of the journal and the certificate that it is about, so no certificate leaves without its entry.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

import msgspec

from attestors.wire.ssh.certificate import MAXIMUM_KEY_ID_BYTES
from attestors.wire.ssh.key_line import key_line
from signer.access.approvals import MAXIMUM_SEALED, SealedApproval
from signer.access.parts import HopRequest
from signer.kube.clocks import ClockAnswer, ClocksAgree
from signer.model.access import AccessGrant, AsPolicySays, Creator, ObjectMetadata, parse_cidr
from signer.model.access.creator import MAXIMUM_GROUP, MAXIMUM_GROUPS, MAXIMUM_USERNAME
from signer.model.access.networks import MAXIMUM_INGRESS
from signer.model.access.targets import MAXIMUM_LOGINS
from signer.model.access_policy import MAXIMUM_LIFETIME
from signer.model.fields import MAXIMUM_NAME_CHARACTERS, format_time, required_text, required_time, text_of
from signer.model.seal import Authentic, ControllerKeys, Fault, KeyUse, Seals, Unauthentic, joined
from signer.model.serving_networks import IPNetwork
from signer.rules.access_certificates import Hop, grant_key_id

MAXIMUM_RECORD_BYTES: Final = 96 * 1024
"""A larger one is not even kept in memory."""
MAXIMUM_ENTRIES: Final = 16
"""Of the journal: entries of ended certificates go first, then the oldest."""
MAXIMUM_EPOCH: Final = 15
"""A grant comes back so many times at most: if its record is lost, the key ids of all epochs are revoked."""
MAXIMUM_SEQUENCE: Final = 2**53
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_LOGIN: Final = re.compile(r"[a-z0-9._][a-z0-9._-]{0,62}", re.ASCII)
_MAXIMUM_SECONDS: Final = int(MAXIMUM_LIFETIME.total_seconds())
_GUARD: Final = re.compile(r"unverified|[0-9a-f]{32}", re.ASCII)
_SERIAL: Final = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
_FINGERPRINT: Final = re.compile(r"SHA256:[A-Za-z0-9+/]{43}", re.ASCII)
_ENCODER: Final = msgspec.json.Encoder(order="sorted")
_REQUIRED: Final = frozenset(
    {
        "sequence",
        "cluster",
        "createdBy",
        "createdTime",
        "specDigest",
        "logins",
        "heartbeatTime",
        "seen",
        "ingress",
        "suspended",
        "approvals",
        "epoch",
        "journal",
    }
)
_OPTIONAL: Final = frozenset({"durationSeconds", "closing", "lastEndTime", "everyEpoch", "seal"})


class Cause(enum.Enum):
    """Why a grant ends, or pauses; the reason of its conditions."""

    DELETED = "Deleted"
    HEARTBEAT_MISSING = "HeartbeatMissing"
    DURATION_OVER = "DurationOver"
    CLUSTER_GONE = "ClusterGone"
    TARGETS_GONE = "TargetsGone"
    DENIED = "DeniedByApprover"
    RECORD_NOT_AUTHENTIC = "RecordNotAuthentic"
    TOO_MANY_RETURNS = "TooManyReturns"
    SUSPENDED = "Suspended"
    RIGHT_LOST = "RightLost"
    RIGHT_UNKNOWN = "RightUnknown"
    NOT_ALLOWED = "NotAllowed"

    @property
    def is_final(self) -> bool:
        """Whether the grant never comes back."""
        return self not in _REVERSIBLE


_REVERSIBLE: Final = frozenset({Cause.SUSPENDED, Cause.RIGHT_LOST, Cause.RIGHT_UNKNOWN, Cause.NOT_ALLOWED})


class Stage(enum.Enum):
    """How far the end of a grant has come."""

    CLOSING = "Closing"
    """Nothing is issued any more; nothing is revoked yet."""
    REVOKED = "Revoked"
    """The list of revocations has the key id, or no certificate lives."""
    TERMINATED = "Terminated"
    """Nodes know, or every certificate has ended; the bastion is gone."""


@dataclass(frozen=True, slots=True)
class Live:
    """Certificates may be issued."""


@dataclass(frozen=True, slots=True)
class Closing:
    """The grant has ended, or pauses."""

    cause: Cause
    since: datetime
    stage: Stage = Stage.CLOSING


State: TypeAlias = Live | Closing


@dataclass(frozen=True, slots=True)
class NoCertificate:
    """None was issued."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One certificate."""

    hop: Hop
    serial: int
    issued: datetime
    ends: datetime
    key_id: str
    authority: str
    """Fingerprint of the key that signed it."""
    content: str
    """SHA-256, hexadecimal, of everything else that the certificate says; see :func:`content_of`."""

    @property
    def canonical(self) -> bytes:
        """What its nonce is derived from."""
        return _ENCODER.encode(_entry_object(self))


def content_of(request: HopRequest) -> str:
    """What a certificate says, but for its time, serial number, nonce and authority."""
    return digest_of(
        request.hop.value,
        key_line(request.public_key),
        str(request.key_id),
        joined(*map(str, request.principals)),
        joined(*(text for one in request.critical_options for text in (one.name.value, one.value.hex()))),
        joined(*(one.value for one in request.extensions)),
    )


@dataclass(frozen=True, slots=True)
class Seen:
    """What the object asked for when the controller last looked, and under which admission.

    A change counts only if admission was the same at both looks: otherwise somebody else may have made it.
    """

    guard: str
    """Identity of the admission that proves creators."""
    heartbeat: str
    ingress: str
    is_suspended: bool

    @classmethod
    def of(cls, grant: AccessGrant, guard: str) -> Seen:
        """What the object asks for now."""
        return cls(guard, digest_of(grant.heartbeat), digest_of(*map(str, grant.ingress)), grant.is_suspended)


@dataclass(frozen=True, slots=True)
class GrantRecord:
    """The record of one grant."""

    sequence: int
    """Increases with every write."""
    cluster: str
    """Name of the Cluster, in the grant's namespace."""
    creator: Creator
    created: datetime
    spec_digest: str
    logins: tuple[str, ...]
    """Those to which the creator needs the right; ``container`` for a container."""
    duration: timedelta | AsPolicySays
    """As the grant states it."""
    heartbeat: datetime
    seen: Seen
    ingress: tuple[IPNetwork, ...]
    """The networks that count."""
    is_suspended: bool
    """As it counts."""
    approvals: tuple[SealedApproval, ...] = ()
    epoch: int = 0
    state: State = field(default_factory=Live)
    journal: tuple[JournalEntry, ...] = ()
    last_end: datetime | NoCertificate = field(default_factory=NoCertificate)
    """When the last certificate of this epoch ends, or of any."""
    every_epoch: bool = False
    """The former record was lost: all key ids that the grant may have had are to be revoked."""

    def next(self, **changes: Any) -> GrantRecord:
        """The record after a change."""
        return replace(self, sequence=self.sequence + 1, **changes)

    def may_be_accepted(self, now: datetime, clocks: ClockAnswer) -> bool:
        """Whether a node may still accept a certificate. While the clocks do not agree, none has ended."""
        return isinstance(self.last_end, datetime) and (self.last_end > now or not isinstance(clocks, ClocksAgree))

    @property
    def revoked_epochs(self) -> tuple[int, ...]:
        """The epochs whose key ids the end of the grant revokes."""
        return tuple(range(MAXIMUM_EPOCH + 1)) if self.every_epoch else (self.epoch,)

    def current(self, grant: ObjectMetadata, now: datetime) -> tuple[JournalEntry, ...]:
        """The entries of the last issuance of this epoch, one for each hop; none if a certificate of it has ended."""
        key_id = self.key_id(grant, self.epoch)
        of_epoch = [one for one in self.journal if one.key_id == key_id]
        last = max((one.issued for one in of_epoch), default=now)
        found = {one.hop: one for one in of_epoch if one.issued == last}
        return tuple(found.values()) if all(one.ends > now for one in found.values()) else ()

    def key_id(self, grant: ObjectMetadata, epoch: int) -> str:
        """The key id of the grant's certificates in an epoch. It takes no field that people write, so that a grant that
        became invalid is still revoked.
        """
        return str(grant_key_id(grant.namespace, grant.name, grant.uid, self.creator.username, epoch))


def with_entries(record: GrantRecord, entries: Sequence[JournalEntry], now: datetime) -> GrantRecord:
    """The record with further entries; those of ended certificates are dropped, then the oldest."""
    journal = (*(one for one in record.journal if one.ends > now), *entries)[-MAXIMUM_ENTRIES:]
    ends = [one.ends for one in entries]
    if isinstance(record.last_end, datetime):
        ends.append(record.last_end)
    return replace(record, journal=journal, last_end=max(ends))


def digest_of(*texts: str) -> str:
    """SHA-256, hexadecimal, of these texts."""
    return hashlib.sha256(joined(*texts).encode("utf-8", "surrogatepass")).hexdigest()


# The object


class InvalidRecord(ValueError):
    """The object is no record of this release."""


def record_object(record: GrantRecord, seal: str) -> dict[str, Any]:
    """``status.record``."""
    return {**_content(record), "seal": seal}


def _content(record: GrantRecord) -> dict[str, Any]:
    found: dict[str, Any] = {
        "sequence": record.sequence,
        "cluster": record.cluster,
        "createdBy": _creator_object(record.creator),
        "createdTime": format_time(record.created),
        "specDigest": record.spec_digest,
        "logins": list(record.logins),
        "heartbeatTime": format_time(record.heartbeat),
        "seen": {
            "guard": record.seen.guard,
            "heartbeat": record.seen.heartbeat,
            "ingress": record.seen.ingress,
            "suspend": record.seen.is_suspended,
        },
        "ingress": [str(one) for one in record.ingress],
        "suspended": record.is_suspended,
        "approvals": [{"uid": one.uid, "username": one.username, "digest": one.digest} for one in record.approvals],
        "epoch": record.epoch,
        "journal": [_entry_object(one) for one in record.journal],
    }
    if isinstance(record.duration, timedelta):
        found["durationSeconds"] = int(record.duration.total_seconds())
    if isinstance(record.state, Closing):
        state = record.state
        found["closing"] = {
            "cause": state.cause.value,
            "sinceTime": format_time(state.since),
            "stage": state.stage.value,
        }
    if isinstance(record.last_end, datetime):
        found["lastEndTime"] = format_time(record.last_end)
    if record.every_epoch:
        found["everyEpoch"] = True
    return found


def _creator_object(creator: Creator) -> dict[str, Any]:
    found: dict[str, Any] = {"username": creator.username, "groups": sorted(creator.groups)}
    return {**found, "uid": creator.uid} if creator.uid else found


def _entry_object(entry: JournalEntry) -> dict[str, Any]:
    return {
        "hop": entry.hop.value,
        "serialNumber": str(entry.serial),
        "issuedTime": format_time(entry.issued),
        "notAfter": format_time(entry.ends),
        "keyID": entry.key_id,
        "authorityFingerprint": entry.authority,
        "content": entry.content,
    }


def parse_record(value: object) -> tuple[GrantRecord, str]:
    """Read ``status.record``; returns the record and its seal, which is not verified.

    Raises:
        InvalidRecord: it is anything else than what :func:`record_object` writes.
    """
    try:
        if not isinstance(value, Mapping):
            raise TypeError("no object")
        _require_keys(value, _REQUIRED, _OPTIONAL)
        record = _record(value)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidRecord(f"not a record of ours: {type(error).__name__}") from error
    return record, text_of(value, "seal")


def _record(value: Mapping[str, Any]) -> GrantRecord:
    closing = value.get("closing")
    return GrantRecord(
        sequence=_number(value["sequence"], 1, MAXIMUM_SEQUENCE),
        cluster=_bounded(value, "cluster", MAXIMUM_NAME_CHARACTERS),
        creator=_creator(value["createdBy"]),
        created=required_time(value, "createdTime"),
        spec_digest=_matching(_DIGEST, value["specDigest"]),
        logins=tuple(_matching(_LOGIN, one) for one in _list(value["logins"], MAXIMUM_LOGINS)),
        duration=timedelta(seconds=_number(value["durationSeconds"], 1, _MAXIMUM_SECONDS))
        if "durationSeconds" in value
        else AsPolicySays(),
        heartbeat=required_time(value, "heartbeatTime"),
        seen=_seen(value["seen"]),
        ingress=tuple(map(parse_cidr, _list(value["ingress"], MAXIMUM_INGRESS))),
        is_suspended=_flag(value["suspended"]),
        approvals=tuple(map(_approval, _list(value["approvals"], MAXIMUM_SEALED))),
        epoch=_number(value["epoch"], 0, MAXIMUM_EPOCH),
        state=_closing(closing) if "closing" in value else Live(),
        journal=tuple(map(_entry, _list(value["journal"], MAXIMUM_ENTRIES))),
        last_end=required_time(value, "lastEndTime") if "lastEndTime" in value else NoCertificate(),
        every_epoch=_flag(value["everyEpoch"]) if "everyEpoch" in value else False,
    )


def _require_keys(value: object, required: frozenset[str], optional: frozenset[str] = frozenset()) -> None:
    if not isinstance(value, Mapping) or not required <= value.keys() <= required | optional:
        raise ValueError("other fields")


def _creator(value: Any) -> Creator:
    _require_keys(value, frozenset({"username", "groups"}), frozenset({"uid"}))
    groups = _list(value["groups"], MAXIMUM_GROUPS)
    if any(not isinstance(one, str) or not 0 < len(one) <= MAXIMUM_GROUP for one in groups):
        raise ValueError("a group has another form")
    uid = _bounded(value, "uid", 256) if "uid" in value else ""
    return Creator(_bounded(value, "username", MAXIMUM_USERNAME), uid, frozenset(groups))


def _seen(value: Any) -> Seen:
    _require_keys(value, frozenset({"guard", "heartbeat", "ingress", "suspend"}))
    return Seen(
        _matching(_GUARD, value["guard"]),
        _matching(_DIGEST, value["heartbeat"]),
        _matching(_DIGEST, value["ingress"]),
        _flag(value["suspend"]),
    )


def _approval(value: Any) -> SealedApproval:
    _require_keys(value, frozenset({"uid", "username", "digest"}))
    return SealedApproval(
        _bounded(value, "uid", 128), _bounded(value, "username", MAXIMUM_USERNAME), _matching(_DIGEST, value["digest"])
    )


def _closing(value: Any) -> Closing:
    _require_keys(value, frozenset({"cause", "sinceTime", "stage"}))
    return Closing(Cause(value["cause"]), required_time(value, "sinceTime"), Stage(value["stage"]))


def _entry(value: Any) -> JournalEntry:
    _require_keys(
        value,
        frozenset({"hop", "serialNumber", "issuedTime", "notAfter", "keyID", "authorityFingerprint", "content"}),
    )
    return JournalEntry(
        Hop(value["hop"]),
        int(_matching(_SERIAL, value["serialNumber"])),
        required_time(value, "issuedTime"),
        required_time(value, "notAfter"),
        _bounded(value, "keyID", MAXIMUM_KEY_ID_BYTES),
        _matching(_FINGERPRINT, value["authorityFingerprint"]),
        _matching(_DIGEST, value["content"]),
    )


def _list(value: Any, maximum: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > maximum:
        raise ValueError("no list, or too long")
    return value


def _number(value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError("a number is out of range")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("neither true nor false")
    return value


def _matching(pattern: re.Pattern[str], value: Any) -> str:
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise ValueError("a text has another form")
    return value


def _bounded(value: Mapping[str, Any], key: str, maximum: int) -> str:
    text = required_text(value, key)
    if len(text) > maximum:
        raise ValueError(f"{key} is too long")
    return text


# The seal


@dataclass(frozen=True, slots=True)
class NoRecord:
    """The grant has none: it was never looked at."""


@dataclass(frozen=True, slots=True)
class BrokenRecord:
    """The grant has one that is not as the controller wrote it."""

    message: str
    is_key_unknown: bool = False
    """Its key is unknown, perhaps because it is newer than what this process has read."""


StoredRecord: TypeAlias = GrantRecord | NoRecord | BrokenRecord


class GrantSeals:
    """Makes and verifies the seals of grants' records."""

    def __init__(self, keys: ControllerKeys) -> None:
        self._seals = Seals(keys, KeyUse.ACCESS_GRANT)

    def sealed_object(self, grant: ObjectMetadata, record: GrantRecord) -> dict[str, Any]:
        """``status.record`` with the seal of the current key."""
        return record_object(record, self._seals.seal(_sealed(grant, record)))

    def read(self, grant: ObjectMetadata, value: object) -> StoredRecord:
        """The record of that grant, if its seal is valid for exactly this grant."""
        if value is None:
            return NoRecord()
        try:
            record, seal = parse_record(value)
        except InvalidRecord as error:
            return BrokenRecord(str(error))
        verified = self._seals.verify(seal, lambda: _sealed(grant, record))
        if isinstance(verified, Authentic):
            return record
        return BrokenRecord(verified.fault.value, _is_key_unknown(verified))


def _is_key_unknown(verified: Unauthentic) -> bool:
    return verified.fault is Fault.UNKNOWN_KEY


def _sealed(grant: ObjectMetadata, record: GrantRecord) -> str:
    """The sealed content: rendered from the parsed values, so these are what is verified."""
    return joined(grant.namespace, grant.name, grant.uid, _ENCODER.encode(_content(record)).decode("utf-8"))


__all__ = [
    "MAXIMUM_ENTRIES",
    "MAXIMUM_EPOCH",
    "BrokenRecord",
    "Cause",
    "Closing",
    "GrantRecord",
    "GrantSeals",
    "InvalidRecord",
    "JournalEntry",
    "Live",
    "NoCertificate",
    "NoRecord",
    "Seen",
    "Stage",
    "State",
    "StoredRecord",
    "digest_of",
    "parse_record",
    "record_object",
    "content_of",
    "with_entries",
]
