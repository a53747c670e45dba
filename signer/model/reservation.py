"""``IdentityReservation``: one identity belongs to one Machine, and the reverse.

Two objects make a pair, each named by the digest of what it reserves and naming its partner. Their content never
changes: they are created and deleted, never updated, so creating one is the atomic act.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attestors.contract import Security
from signer.model.cluster import ClusterKey
from signer.model.record import AttestedIdentity, MachineKey, required_text


class InvalidReservation(ValueError):
    """The object is no reservation that we wrote."""


class ReservationSide(enum.Enum):
    """Which of the pair an object is."""

    MACHINE = "machine"
    IDENTITY = "identity"


@dataclass(frozen=True, slots=True)
class Pair:
    """What a reservation says: this identity is this Machine."""

    machine: MachineKey
    identity: AttestedIdentity

    def name(self, side: ReservationSide) -> str:
        """The object name of that side."""
        digest = self.machine.digest if side is ReservationSide.MACHINE else self.identity.digest
        return f"{side.value}-{digest}"


@dataclass(frozen=True, slots=True)
class Reservation:
    """One stored side of a pair."""

    side: ReservationSide
    pair: Pair
    uid: str
    resource_version: str

    @property
    def name(self) -> str:
        """The object's name."""
        return self.pair.name(self.side)


def reservation_spec(pair: Pair) -> dict[str, Any]:
    """The ``spec`` of either side."""
    machine, identity = pair.machine, pair.identity
    return {
        "machineRef": {
            "namespace": machine.cluster.namespace,
            "clusterName": machine.cluster.name,
            "kind": machine.kind,
            "name": machine.name,
        },
        "providerID": machine.provider_id,
        "attestor": identity.provider,
        "identity": identity.identity,
        "security": identity.security.value,
    }


def parse_reservation(manifest: Mapping[str, Any]) -> Reservation:
    """Read an IdentityReservation.

    Raises:
        InvalidReservation: a field is missing or of another form, or the name is not the digest of its content.
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
            ),
            AttestedIdentity(
                required_text(spec, "attestor"), required_text(spec, "identity"), Security(spec["security"])
            ),
        )
        name, uid, resource_version = (required_text(metadata, key) for key in ("name", "uid", "resourceVersion"))
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidReservation(f"not a reservation of ours: {type(error).__name__}") from error
    for side in ReservationSide:
        if pair.name(side) == name:
            return Reservation(side, pair, uid, resource_version)
    raise InvalidReservation("the object's name is not the digest of its content")
