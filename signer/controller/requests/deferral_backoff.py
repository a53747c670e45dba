"""How long requests wait for an attestor's live recheck: at first as long as it asks for, then in step with their age.

What an attestor waits for may be the node's to choose, such as a TPM that nobody knows: each of a thousand requests
would be judged every ten seconds for a day. One that has waited for long can wait a little longer; whatever wakes a
request does so all the same.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random, SystemRandom
from typing import Final

from signer.model.decision import Defer

GROWTH: Final = 1.25
"""Each pause is that many times the one before: a quarter of the time that a request has waited by then, or less."""
LONGEST: Final = timedelta(minutes=5)
"""Beyond that a pause grows no more; one that an attestor asks for may be longer."""
SPREAD: Final = 0.1
"""By how much of it, at random: what came together comes apart."""


class DeferralBackoff:
    """Of the requests of one cluster that wait for attestors."""

    def __init__(self, random: Random | None = None) -> None:
        self._random = random or SystemRandom()
        self._times: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._times)

    def seconds(self, name: str, decision: Defer, asked: timedelta) -> float:
        """For how long the request waits now; ``asked`` is what ``decision`` asks for."""
        if not decision.grows:
            return asked.total_seconds()
        times = self._times.get(name, 0)
        self._times[name] = times + 1
        grown = min(asked.total_seconds() * GROWTH**times, LONGEST.total_seconds())
        return max(asked.total_seconds(), grown) * (1 + SPREAD * self._random.random())

    def forget(self, name: str) -> None:
        """That request is settled or gone."""
        self._times.pop(name, None)
