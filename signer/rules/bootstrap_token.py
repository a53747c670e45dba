"""Rules for bootstrap tokens of MachinePools: how long they live.

:mod:`signer.rules.claim` decides which Machine may use a token.
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
"""A token is extended when less than this is left. Cluster API's kubeadm provider rotates a pool's token when less than
half of ``--bootstrap-token-ttl`` is left: 7.5 of 15 minutes by default. With a flag of more than a day, the provider
would rotate before this extends."""
EXTEND_TO: Final = timedelta(hours=24)
SHORTEN_TO: Final = timedelta(minutes=15)
"""The time that a machine that is booting has left to use the token; the provider's default lifetime."""


@dataclass(frozen=True, slots=True)
class Extend:
    """Write this expiration and the extension annotation."""

    until: datetime


@dataclass(frozen=True, slots=True)
class Shorten:
    """Write this expiration and remove the extension annotation."""

    until: datetime


@dataclass(frozen=True, slots=True)
class RemoveAnnotation:
    """Remove the extension annotation: the expiration is no longer ours, or is near enough."""


@dataclass(frozen=True, slots=True)
class NoChange:
    """Leave the Secret as it is."""


TokenChange: TypeAlias = Extend | Shorten | RemoveAnnotation | NoChange


def token_change(secret: TokenSecret, *, wanted: bool, now: datetime) -> TokenChange:
    """The change that a token's Secret needs. ``wanted``: a living MachinePool uses the token and may go on using it.

    An expired token is never extended: the provider makes a new one. A token that was never extended is not shortened.
    """
    if isinstance(secret.expiration, NeverExpires):
        return RemoveAnnotation() if secret.extension is not Extension.NONE and not wanted else NoChange()
    if wanted:
        is_due = secret.authenticates and now < secret.expiration < now + EXTEND_BELOW
        return Extend(now + EXTEND_TO) if is_due else NoChange()
    if secret.extension is Extension.NONE:
        return NoChange()
    if secret.extension is Extension.OURS and secret.expiration > now + SHORTEN_TO:
        return Shorten(now + SHORTEN_TO)
    return RemoveAnnotation()
