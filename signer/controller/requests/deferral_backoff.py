"""Backoff of requests that an attestor defers: first as long as it asks for, then in proportion to their age.

The node may control what the attestor waits for, such as an unknown TPM: without backoff, each of a thousand requests
would be decided every ten seconds for a day. A change that a request waits for wakes it regardless of the backoff.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random, SystemRandom
from typing import Final

from signer.model.decision import Defer

GROWTH: Final = 1.25
"""Each pause is this many times the previous one: at most a quarter of the time that the request has waited."""
MAXIMUM: Final = timedelta(minutes=5)
"""A pause grows no further than this; an attestor may ask for a longer one."""
JITTER: Final = 0.1
"""Random fraction added to each pause, so that requests that came together spread."""


class DeferralBackoff:
    """Backoff of one cluster's requests that wait for attestors."""

    def __init__(self, random: Random | None = None) -> None:
        self._random = random or SystemRandom()
        self._times: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._times)

    def seconds(self, name: str, decision: Defer, retry_after: timedelta) -> float:
        """How long the request waits now, in seconds; ``retry_after`` is the pause that ``decision`` asks for."""
        if not decision.grows:
            return retry_after.total_seconds()
        times = self._times.get(name, 0)
        self._times[name] = times + 1
        grown = min(retry_after.total_seconds() * GROWTH**times, MAXIMUM.total_seconds())
        return max(retry_after.total_seconds(), grown) * (1 + JITTER * self._random.random())

    def forget(self, name: str) -> None:
        """The request is settled or gone."""
        self._times.pop(name, None)
