"""``CertificateAuthorityRotation``: the sealed state of one Cluster's rotation.

``clusterctl move`` drops status, so the state is in ``spec``. The seal (:mod:`signer.model.seal`) covers every value
and the object's place. An object that does not authenticate changes nothing: the controller signs with what Secret
``<cluster>-ca`` holds, and a condition says so. The sequence increases with every write, so a restored older state is
recognised by what the API servers present.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

from signer.model.cluster import ClusterKey
from signer.model.fields import format_time, mapping_of, required_text, required_time, text_of
from signer.model.rotation_waits import MAXIMUM_WAIT, Waits
from signer.model.seal import Authentic, ControllerKeys, KeyUse, Seals, Unauthentic, joined
from signer.rotation.authorities import (
    ROTATION_ID,
    AuthorityKind,
    AuthorityReference,
    NotMade,
    RotatedAuthority,
)
from signer.rotation.operations import Gate
from signer.rotation.phases import (
    BACK,
    HOLDING_STEPS,
    STEPS_OF,
    Phase,
    RollbackAvailable,
    SigningPairs,
    Step,
    TakesBack,
    rollback_available,
)

MOVE_LABEL: Final = "clusterctl.cluster.x-k8s.io/move"
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_MAXIMUM_OPERATION_CHARACTERS: Final = 256
_MAXIMUM_SEAL_CHARACTERS: Final = 128
_MAXIMUM_SEQUENCE: Final = 2**63 - 1
"""Of ``format: int64``."""
_MAXIMUM_SECONDS: Final = int(MAXIMUM_WAIT.total_seconds())
_MAXIMUM_SKIPPED: Final = 64
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


class Moment(enum.Enum):
    """A time that the record keeps; the value is the field's name."""

    STARTED = "startedTime"
    PREPARED = "preparedTime"
    COMPLETION_TRIGGERED = "completionTriggeredTime"
    FINISHED = "finishedTime"
    """Of the completion or of the rollback."""
    STEP = "stepTime"
    """When the present step began."""
    TRUST_WRITTEN = "trustWrittenTime"
    """When the controller last saw that everything it publishes holds the present trust, and Secret
    ``<cluster>-signing`` its present pairs.
    """
    SWITCHED = "switchedTime"
    """When Secret ``<cluster>-ca`` held the new CA."""
    CONTROLLER_MANAGERS = "controllerManagersTime"
    """When step ``ControllerManagersSign`` began: Machines that are younger may sign with the new CA."""
    LINK_RENEWED = "linkRenewedTime"
    """When the link certificate was last replaced, before its end. Older Machines present the one before."""
    LINK_ENDS = "linkNotAfter"
    """When the link certificate ends that API servers were given last. They present it until they are replaced."""


@dataclass(frozen=True, slots=True)
class NotYet:
    """The moment has not come."""


class WorkersRollout(enum.Enum):
    """Who restarts kubelets."""

    BY_CONTROLLER = "ByController"
    """The nodes' agents restart them, in turn."""
    BY_OWNER = "ByOwner"
    """The owner of the cluster replaces or restarts them (GEP: without workers rollout)."""


@dataclass(frozen=True, slots=True)
class SkippedGate:
    """A gate that an operator skipped."""

    gate: Gate
    at: datetime


_MACHINES_MADE_AFTER: Final[Mapping[Step, Moment]] = MappingProxyType(
    {
        Step.SERVERS_TRUST: Moment.TRUST_WRITTEN,
        Step.NODES_TRUST: Moment.TRUST_WRITTEN,  # later than it was at the step before if the link was renewed
        Step.PREPARED: Moment.TRUST_WRITTEN,
        Step.CONTROLLER_MANAGERS_SIGN: Moment.TRUST_WRITTEN,
        Step.SERVERS_PRESENT: Moment.SWITCHED,
        Step.DROP_OLD: Moment.TRUST_WRITTEN,
        Step.NODES_RETURN: Moment.TRUST_WRITTEN,
    }
)


@dataclass(frozen=True, slots=True)
class RotationRecord:
    """The state of one Cluster's rotation. Immutable: each write has the next sequence."""

    cluster: ClusterKey
    rotation_id: str
    sequence: int
    phase: Phase
    step: Step
    """What the rotation works on; every step before it is proven."""
    authorities: tuple[RotatedAuthority, ...]
    workers_rollout: WorkersRollout
    takes_back: TakesBack
    operation: str
    """Identifier of the order that was carried out last."""
    waits: Waits = field(default_factory=Waits)
    times: Mapping[Moment, datetime] = field(default_factory=lambda: MappingProxyType({}))
    skipped: tuple[SkippedGate, ...] = ()
    held_at: Step | NotYet = NotYet()
    """The step to which ``retry-ca-rotation`` returns after a rollback of clients only."""
    signing_pairs: SigningPairs = SigningPairs.ONE_PAIR
    """What the template had at the start. It never changes."""

    def authority(self, kind: AuthorityKind) -> RotatedAuthority:
        """The authority of that kind. Raises LookupError if the rotation has none."""
        for one in self.authorities:
            if one.kind is kind:
                return one
        raise LookupError(f"the rotation has no {kind.value} authority")

    def at(self, moment: Moment) -> datetime | NotYet:
        """That time."""
        return self.times.get(moment, NotYet())

    def has_passed(self, moment: Moment, wait: timedelta, now: datetime) -> bool:
        """Whether ``wait`` has passed since that moment; false while the moment has not come."""
        since = self.at(moment)
        return not isinstance(since, NotYet) and now - since >= wait

    @property
    def link_was_renewed(self) -> bool:
        """Whether older Machines may present a link certificate that ends before the published one."""
        return not isinstance(self.at(Moment.LINK_RENEWED), NotYet)

    @property
    def machines_made_after(self) -> datetime | NotYet:
        """When the last object was written that Machines of the control plane must have read by the present step;
        NotYet if it does not matter when they were made.
        """
        needed = self.at(_MACHINES_MADE_AFTER[self.step]) if self.step in _MACHINES_MADE_AFTER else NotYet()
        renewed, switched = self.at(Moment.LINK_RENEWED), self.at(Moment.SWITCHED)
        completes = self.step in (Step.SERVERS_PRESENT, Step.SIGN_SERVING) or isinstance(self.held_at, Step)
        if not completes or isinstance(renewed, NotYet) or isinstance(switched, NotYet) or renewed <= switched:
            return needed
        return renewed

    def skips(self, gate: Gate) -> bool:
        """Whether an operator skipped the gate in this rotation."""
        return any(one.gate is gate for one in self.skipped)

    @property
    def rollback_available(self) -> RollbackAvailable:
        """How much can be taken back now."""
        return rollback_available(self.phase, self.step, self.takes_back)

    @property
    def goes_back(self) -> bool:
        """Whether the rotation is on the way back."""
        return self.step in BACK

    def next(self, now: datetime, **changes: Any) -> RotationRecord:
        """The record after a change, with the next sequence. Entering another step sets its time.

        Times are whole seconds, as in the object.
        """
        times = {**self.times, **changes.pop("times", {})}
        if changes.get("step", self.step) is not self.step:
            times[Moment.STEP] = now
        times = {moment: at.replace(microsecond=0) for moment, at in times.items()}
        return replace(self, sequence=self.sequence + 1, times=MappingProxyType(times), **changes)


class InvalidRotation(ValueError):
    """The object is no state that this controller writes."""


def record_spec(record: RotationRecord) -> dict[str, Any]:
    """``spec`` without its seal."""
    return {
        "rotationID": record.rotation_id,
        "sequence": record.sequence,
        "phase": record.phase.value,
        "step": record.step.value,
        "authorities": [_authority_object(one) for one in record.authorities],
        "workersRollout": record.workers_rollout.value,
        "takesBack": record.takes_back.value,
        "operation": record.operation,
        "waits": {
            "trustAgeSeconds": int(record.waits.trust_age.total_seconds()),
            "overlapSeconds": int(record.waits.overlap.total_seconds()),
            "openWatchesSeconds": int(record.waits.open_watches.total_seconds()),
        },
        **{moment.value: format_time(at) for moment, at in record.times.items()},
        "skippedGates": [{"gate": one.gate.value, "time": format_time(one.at)} for one in record.skipped],
        **({} if isinstance(record.held_at, NotYet) else {"heldAt": record.held_at.value}),
        # Without the field it is OnePair: so the seals of records that are older than the field hold.
        **({} if record.signing_pairs is SigningPairs.ONE_PAIR else {"signingPairs": record.signing_pairs.value}),
    }


def _authority_object(authority: RotatedAuthority) -> dict[str, Any]:
    new = {} if isinstance(authority.new, NotMade) else {"new": _reference_object(authority.new)}
    return {"kind": authority.kind.value, "old": _reference_object(authority.old), **new}


def _reference_object(reference: AuthorityReference) -> dict[str, Any]:
    return {
        "digest": reference.digest,
        "publicKeyHash": reference.public_key_hash,
        "notAfter": format_time(reference.not_after),
    }


_KEYS: Final = frozenset(
    {
        "rotationID", "sequence", "phase", "step", "authorities", "workersRollout", "takesBack", "operation", "waits",
        "skippedGates", "heldAt", "signingPairs", "seal", *(moment.value for moment in Moment),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredRotation:
    """A parsed object whose seal is not verified yet."""

    claimed: RotationRecord
    seal: str
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class UnreadableRotation:
    """An object that is no state of ours."""

    message: str
    uid: str
    resource_version: str


Stored: TypeAlias = StoredRotation | UnreadableRotation


def parse_rotation(manifest: Mapping[str, Any]) -> StoredRotation:
    """Read a CertificateAuthorityRotation strictly. Only :class:`RotationSeals` verifies it.

    Raises:
        InvalidRotation: a field is missing, unknown or malformed, or two of them contradict each other.
    """
    try:
        metadata, spec = manifest["metadata"], manifest["spec"]
        if not isinstance(spec, dict) or not spec.keys() <= _KEYS:
            raise ValueError("an unknown field")
        cluster = ClusterKey(required_text(metadata, "namespace"), required_text(metadata, "name"))
        record = RotationRecord(
            cluster=cluster,
            rotation_id=_matching(ROTATION_ID, required_text(spec, "rotationID")),
            sequence=_positive(spec["sequence"]),
            phase=Phase(spec["phase"]),
            step=Step(spec["step"]),
            authorities=_authorities(spec["authorities"]),
            workers_rollout=WorkersRollout(spec["workersRollout"]),
            takes_back=TakesBack(spec["takesBack"]),
            operation=_short(spec, "operation", _MAXIMUM_OPERATION_CHARACTERS),
            waits=_waits(spec["waits"]),
            times=MappingProxyType({one: required_time(spec, one.value) for one in Moment if one.value in spec}),
            skipped=_skipped(spec["skippedGates"]),
            held_at=Step(spec["heldAt"]) if "heldAt" in spec else NotYet(),
            signing_pairs=_signing_pairs(spec),
        )
        _require_consistent(record)
        return StoredRotation(
            record,
            _short(spec, "seal", _MAXIMUM_SEAL_CHARACTERS),
            required_text(metadata, "uid"),
            text_of(metadata, "resourceVersion"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRotation(f"not a rotation of ours: {type(error).__name__}: {error}") from error


def stored_rotation(manifest: Mapping[str, Any]) -> Stored:
    """Parse an object from the API server; one that is unreadable is kept as such."""
    try:
        return parse_rotation(manifest)
    except InvalidRotation as error:
        metadata = mapping_of(manifest, "metadata")
        return UnreadableRotation(str(error), text_of(metadata, "uid"), text_of(metadata, "resourceVersion"))


def _matching(pattern: re.Pattern[str], text: str) -> str:
    if pattern.fullmatch(text) is None:
        raise ValueError("a name or digest has another form")
    return text


def _short(spec: Mapping[str, Any], key: str, maximum: int) -> str:
    text = required_text(spec, key)
    if len(text) > maximum:
        raise ValueError(f"{key} is too long")
    return text


def _positive(value: object) -> int:
    if type(value) is not int or not 1 <= value <= _MAXIMUM_SEQUENCE:
        raise ValueError("sequence is not a positive integer of 64 bits")
    return value


def _seconds(spec: Mapping[str, Any], key: str) -> timedelta:
    value = spec[key]
    if type(value) is not int or not 0 <= value <= _MAXIMUM_SECONDS:
        raise ValueError(f"{key} is no number of seconds")
    return timedelta(seconds=value)


def _signing_pairs(spec: Mapping[str, Any]) -> SigningPairs:
    if "signingPairs" not in spec:
        return SigningPairs.ONE_PAIR
    if spec["signingPairs"] != SigningPairs.SPLIT.value:
        raise ValueError("signingPairs is written for split pairs alone")
    return SigningPairs.SPLIT


def _waits(spec: object) -> Waits:
    if not isinstance(spec, dict) or spec.keys() != {"trustAgeSeconds", "overlapSeconds", "openWatchesSeconds"}:
        raise ValueError("waits do not have exactly their fields")
    return Waits(
        _seconds(spec, "trustAgeSeconds"), _seconds(spec, "overlapSeconds"), _seconds(spec, "openWatchesSeconds")
    )


def _reference(spec: object) -> AuthorityReference:
    if not isinstance(spec, dict) or spec.keys() != {"digest", "publicKeyHash", "notAfter"}:
        raise ValueError("a reference does not have exactly its fields")
    return AuthorityReference(
        _matching(_DIGEST, required_text(spec, "digest")),
        _matching(_HASH, required_text(spec, "publicKeyHash")),
        required_time(spec, "notAfter"),
    )


def _authorities(items: object) -> tuple[RotatedAuthority, ...]:
    if not isinstance(items, list) or not 1 <= len(items) <= len(AuthorityKind):
        raise ValueError("authorities is no list of them")
    found = tuple(map(_authority, items))
    kinds = {one.kind for one in found}
    if len(kinds) != len(found):
        raise ValueError("an authority is listed twice")
    if AuthorityKind.CLUSTER not in kinds:
        raise ValueError("the cluster's CA is missing")
    return found


def _authority(item: object) -> RotatedAuthority:
    if not isinstance(item, dict) or not {"kind", "old"} <= item.keys() <= {"kind", "old", "new"}:
        raise ValueError("an authority does not have exactly its fields")
    new = _reference(item["new"]) if "new" in item else NotMade()
    return RotatedAuthority(AuthorityKind(item["kind"]), _reference(item["old"]), new)


def _skipped(items: object) -> tuple[SkippedGate, ...]:
    if not isinstance(items, list) or len(items) > _MAXIMUM_SKIPPED:
        raise ValueError("skippedGates is no list of them")
    return tuple(map(_skipped_gate, items))


def _skipped_gate(item: object) -> SkippedGate:
    if not isinstance(item, dict) or item.keys() != {"gate", "time"}:
        raise ValueError("a skipped gate does not have exactly its fields")
    return SkippedGate(Gate(item["gate"]), required_time(item, "time"))


def _require_consistent(record: RotationRecord) -> None:
    """Proofs and signing rely on these: a step of another phase has no meaning."""
    if record.step not in STEPS_OF[record.phase]:
        raise ValueError(f"step {record.step.value} is none of phase {record.phase.value}")
    if record.step is Step.CONTROLLER_MANAGERS_SIGN and record.signing_pairs is not SigningPairs.SPLIT:
        raise ValueError(f"step {record.step.value} belongs to split signing pairs")
    if isinstance(record.held_at, Step):
        if record.step is not Step.SIGN_BY_OLD:
            raise ValueError("heldAt belongs to step SignByOld")
        if record.held_at not in HOLDING_STEPS:
            raise ValueError("heldAt is no step to which a rotation returns")
    needs_new = record.step is not Step.NEW_AUTHORITY and not record.goes_back
    if (needs_new or isinstance(record.held_at, Step)) and any(
        isinstance(authority.new, NotMade) for authority in record.authorities
    ):
        raise ValueError("a new authority is missing after step NewAuthority")


class RotationSeals:
    """Makes and verifies the seals of rotations."""

    def __init__(self, keys: ControllerKeys) -> None:
        self._seals = Seals(keys, KeyUse.ROTATION)

    def seal(self, record: RotationRecord) -> str:
        """``spec.seal`` of that record with the current key."""
        return self._seals.seal(_sealed(record))

    def verify(self, stored: StoredRotation) -> Authentic | Unauthentic:
        """Whether the seal is valid for the record's content, namespace and name."""
        return self._seals.verify(stored.seal, lambda: _sealed(stored.claimed))


def _sealed(record: RotationRecord) -> str:
    """The sealed content: rendered from the parsed values, so these are what is verified."""
    content = _ENCODER.encode(record_spec(record)).decode("utf-8")
    return joined(record.cluster.namespace, record.cluster.name, content)
