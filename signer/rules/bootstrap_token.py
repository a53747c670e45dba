"""Rules about bootstrap tokens of MachinePools: how long they live.

Whose requests a token may be used for is judged in :mod:`signer.rules.claim`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from signer.model.bootstrap_token import (
    Extension,
    NeverExpires,
    TokenSecret,
)

EXTEND_BELOW: Final = timedelta(hours=12)
"""Cluster API's provider rotates a pool's token when less than half of its own lifetime is left: 7.5 minutes of 15 by
default (``--bootstrap-token-ttl``). With more than a day for that flag, it would rotate before this extends."""
EXTEND_TO: Final = timedelta(hours=24)
CUT_BACK_TO: Final = timedelta(minutes=15)
"""What is left to a machine that is just booting; the provider's default lifetime."""


@dataclass(frozen=True, slots=True)
class Extend:
    """Write this expiration, and our mark with it."""

    until: datetime


@dataclass(frozen=True, slots=True)
class CutBack:
    """Write this expiration, and take our mark off."""

    until: datetime


@dataclass(frozen=True, slots=True)
class TakeMarkOff:
    """The expiration is not ours any more, or near enough; our mark has nothing to say."""


@dataclass(frozen=True, slots=True)
class LeaveAsItIs:
    """Nothing is due."""


Due: TypeAlias = Extend | CutBack | TakeMarkOff | LeaveAsItIs


def due_for(secret: TokenSecret, *, wanted: bool, now: datetime) -> Due:
    """What is due for a bootstrap token; ``wanted`` says that a living MachinePool uses it, and may go on using it.

    A token that has run out stays so: its owner's provider makes a new one. What was never extended is never shortened.
    """
    if isinstance(secret.expiration, NeverExpires):
        return TakeMarkOff() if secret.extension is not Extension.NONE and not wanted else LeaveAsItIs()
    if wanted:
        is_due = secret.authenticates and now < secret.expiration < now + EXTEND_BELOW
        return Extend(now + EXTEND_TO) if is_due else LeaveAsItIs()
    if secret.extension is Extension.NONE:
        return LeaveAsItIs()
    if secret.extension is Extension.OURS and secret.expiration > now + CUT_BACK_TO:
        return CutBack(now + CUT_BACK_TO)
    return TakeMarkOff()
