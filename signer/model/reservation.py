"""``IdentityReservation``: one identity belongs to one Machine, and the reverse.

Two objects make a pair. Each is named by the digest of its side and names its partner. Their pair never changes: they
are only created and deleted, so a creation is the atomic step. An annotation is set and removed, and an attestation may
write the basis and the seal anew.

A Machine has a second pair, with its hardware, if its attestor names that apart from the identity.

Each object has a seal. One that is not as the controller wrote it reserves nothing (:mod:`signer.store.reservations`).
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from attestors.contract import Security
from signer.model.cluster import MACHINE_POOL_KIND, ClusterKey
from signer.model.fields import format_time, parse_time, required_text
from signer.model.record import AttestedIdentity, MachineKey
from signer.model.seal import Authentic, ControllerKeys, KeyUse, Seals, Unauthentic, joined

CONTESTED_ANNOTATION: Final = "attestation.cluster.x-k8s.io/contested"
"""On a side that a controller takes as abandoned and is about to delete. Its owner removes the annotation."""

HARDWARE: Final = "+hardware"
"""After the attestor's name, in a pair of a Machine and its hardware. Hardware may have several identities, such as a
TPM's endorsement keys. A second pair, beside that of the identity, keeps it from being two Machines. An attestor's name
holds no plus sign."""
HARDWARE_IDENTITY: Final = "+hardware-identity"
"""The same, in a pair of a Machine and what identifies its hardware alone, where the identity is a joined one."""

CLOCKS_APART: Final = timedelta(minutes=5)
"""Maximum difference between the clocks of two controllers."""
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")


class InvalidReservation(ValueError):
    """The object is not a reservation that the controller wrote."""


class ReservationSide(enum.Enum):
    """The side of a pair."""

    MACHINE = "machine"
    IDENTITY = "identity"

    @property
    def other(self) -> ReservationSide:
        """The partner's side."""
        return ReservationSide.IDENTITY if self is ReservationSide.MACHINE else ReservationSide.MACHINE


@dataclass(frozen=True, slots=True)
class Pair:
    """The content of a reservation: an identity and its Machine."""

    machine: MachineKey
    identity: AttestedIdentity

    def name(self, side: ReservationSide) -> str:
        """The name of that side's object."""
        if side is ReservationSide.IDENTITY:
            return f"{side.value}-{self.identity.digest}"
        _, plus, beside = self.identity.provider.partition("+")
        if plus:
            return f"{side.value}-{hashlib.sha256(f'{self.machine.digest}{plus}{beside}'.encode()).hexdigest()}"
        return f"{side.value}-{self.machine.digest}"

    def of_hardware(self, name: str) -> Pair:
        """The pair of the same Machine and its hardware, whose other name the attestor gave."""
        return self._beside(HARDWARE, name)

    def of_hardware_identity(self, identity: str) -> Pair:
        """The pair of the same Machine and what identifies its hardware alone."""
        return self._beside(HARDWARE_IDENTITY, identity)

    def _beside(self, what: str, name: str) -> Pair:
        return Pair(self.machine, replace(self.identity, provider=f"{self.identity.provider}{what}", identity=name))


@dataclass(frozen=True, slots=True)
class Attested:
    """The pair was reserved after the attestor had accepted evidence for exactly these objects."""

    cluster_uid: str
    machine_uid: str
    at: datetime
    """Whole seconds, by the clock of the controller that reserved it."""

    def is_for(self, cluster_uid: str, machine: MachineKey, machine_uid: str) -> bool:
        """Whether the attestation was of the Cluster and the Machine with these UIDs. An instance of a MachinePool is
        the same before and after its Machine is created.
        """
        return self.cluster_uid == cluster_uid and (
            machine.kind == MACHINE_POOL_KIND or self.machine_uid == machine_uid
        )


@dataclass(frozen=True, slots=True)
class FromRecord:
    """The pair was rebuilt from a record alone, as after ``clusterctl move``. It keeps identity and Machine from
    others, and lets the record approve nothing until the node attests again.
    """


FROM_RECORD: Final = FromRecord()
Basis: TypeAlias = Attested | FromRecord
"""What the controller reserved the pair for."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """One stored side of a pair."""

    side: ReservationSide
    pair: Pair
    uid: str
    resource_version: str
    contested: bool = False
    """A controller takes it as abandoned and is about to delete it."""
    basis: Basis = FROM_RECORD
    seal: str = field(default="", compare=False)
    """As read; :class:`ReservationSeals` verifies it."""

    @property
    def name(self) -> str:
        """The object's name."""
        return self.pair.name(self.side)

    def is_partner_of(self, other: Reservation) -> bool:
        """Whether both have the same Machine and the same identity, whatever the security of its attestor."""
        mine, others = self.pair, other.pair
        return mine.machine == others.machine and mine.identity.digest == others.identity.digest


class ReservationSeals:
    """Makes and verifies the seals of reservations. A seal covers the side and everything in the ``spec``."""

    def __init__(self, keys: ControllerKeys) -> None:
        self._seals = Seals(keys, KeyUse.RESERVATION)

    def spec(self, side: ReservationSide, pair: Pair, basis: Basis) -> dict[str, Any]:
        """The ``spec`` of that side, with its seal under the current key."""
        return {**_unsealed_spec(pair, basis), "seal": self._seals.seal(_sealed(side, pair, basis))}

    def verify(self, reservation: Reservation) -> Authentic | Unauthentic:
        """Whether the controller wrote exactly this side."""
        side, pair, basis = reservation.side, reservation.pair, reservation.basis
        return self._seals.verify(reservation.seal, lambda: _sealed(side, pair, basis))


def _sealed(side: ReservationSide, pair: Pair, basis: Basis) -> str:
    machine, identity = pair.machine, pair.identity
    attested = (basis.cluster_uid, basis.machine_uid, format_time(basis.at)) if isinstance(basis, Attested) else ()
    return joined(
        side.value,
        machine.cluster.namespace,
        machine.cluster.name,
        machine.kind,
        machine.name,
        machine.provider_id,
        machine.claimed_by,
        identity.provider,
        identity.identity,
        identity.security.value,
        *attested,
    )


def _unsealed_spec(pair: Pair, basis: Basis) -> dict[str, Any]:
    machine, identity = pair.machine, pair.identity
    claimed_by = {"uid": machine.claimed_by} if machine.is_claimed else {}
    attested = (
        {
            "attestedFor": {
                "clusterUID": basis.cluster_uid,
                "machineUID": basis.machine_uid,
                "time": format_time(basis.at),
            }
        }
        if isinstance(basis, Attested)
        else {}
    )
    return {
        "machineRef": {
            "namespace": machine.cluster.namespace,
            "clusterName": machine.cluster.name,
            "kind": machine.kind,
            "name": machine.name,
            **claimed_by,
        },
        "providerID": machine.provider_id,
        "attestor": identity.provider,
        "identity": identity.identity,
        "security": identity.security.value,
        **attested,
    }


def parse_reservation(manifest: Mapping[str, Any]) -> Reservation:
    """Read an IdentityReservation.

    Raises:
        InvalidReservation: a field is missing or malformed, or the object's name does not match its content.
    """
    try:
        metadata, spec = manifest["metadata"], manifest["spec"]
        reference = spec["machineRef"]
        cluster = ClusterKey(required_text(reference, "namespace"), required_text(reference, "clusterName"))
        pair = Pair(
            MachineKey(
                cluster,
                required_text(reference, "kind"),
                required_text(reference, "name"),
                required_text(spec, "providerID"),
                required_text(reference, "uid") if "uid" in reference else "",
            ),
            AttestedIdentity(
                required_text(spec, "attestor"), required_text(spec, "identity"), Security(spec["security"])
            ),
        )
        name, uid, resource_version = (required_text(metadata, key) for key in ("name", "uid", "resourceVersion"))
        if not all(_NAME.fullmatch(part) for part in (cluster.namespace, cluster.name, pair.machine.name)):
            raise ValueError("an invalid object name")
        contested = CONTESTED_ANNOTATION in (metadata.get("annotations") or {})
        basis = _basis(spec["attestedFor"]) if "attestedFor" in spec else FROM_RECORD
        seal = required_text(spec, "seal")
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidReservation(f"not a reservation of ours: {type(error).__name__}") from error
    for side in ReservationSide:
        if pair.name(side) == name:
            return Reservation(side, pair, uid, resource_version, contested, basis, seal)
    raise InvalidReservation("the object's name is not the digest of its content")


def _basis(attested: Mapping[str, Any]) -> Attested:
    at = parse_time(required_text(attested, "time"))
    return Attested(required_text(attested, "clusterUID"), required_text(attested, "machineUID"), at)
