"""Reservations as a controller with these keys writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from signer.model.reservation import Attested, Basis, Pair, ReservationSeals, ReservationSide
from signer.model.seal import ControllerKeys

KEYS: Final = ControllerKeys(bytes(range(32)))
LONG_BEFORE: Final = datetime(2020, 1, 1, tzinfo=UTC)
ATTESTED: Final = Attested("c-1", "m-1", LONG_BEFORE)
"""The Cluster and the Machine of ``tests/unit/signer/builders.py``."""


def reservation_spec(
    side: ReservationSide, pair: Pair, basis: Basis = ATTESTED, keys: ControllerKeys = KEYS
) -> dict[str, Any]:
    """The ``spec`` of that side."""
    return ReservationSeals(keys).spec(side, pair, basis)
