"""The next step, from the stored state and the time. Nothing else decides it.

======================================  =======================================================================
stored                                  next
======================================  =======================================================================
valid, more than 20 % of life left      use it
valid, less left                        renew with it, and use it until the new one is stored
valid, less left, cannot be renewed     use it until it expires (the attestor ``insecure``)
none or expired, bootstrap credential   request one with the bootstrap credential
expired, no bootstrap credential        stop: an expired certificate cannot be renewed
none, no bootstrap credential           stop: there is no credential
refused recently                        pause until its end, or until a new credential is supplied
======================================  =======================================================================

The agent renews earlier (:data:`AGENT_SHARE`), so that the plugin, which blocks a kubelet, rarely has to.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final, TypeAlias

from authenticator.model.attempt import Attempt, Pause, pause_in_force
from authenticator.model.certificate import CLOCK_SKEW
from authenticator.model.cluster import Bootstrap
from authenticator.model.pair import LONGEST_ANSWER_SECONDS, RENEWAL_DIVISOR, Pair
from authenticator.model.unix_time import time_text

PLUGIN_SHARE: Final = 1 / RENEWAL_DIVISOR
"""Remaining share of its life at which the plugin renews a certificate."""
AGENT_SHARE: Final = 0.3
"""The same for the agent, at the latest."""
AGENT_SPREAD: Final = 0.05
"""By up to this share earlier, individually per certificate: nodes that joined together do not renew together."""


@dataclass(frozen=True, slots=True)
class Use:
    """Use the stored pair; the next step is due at ``until`` (Unix time)."""

    pair: Pair
    until: int
    overdue: str = ""
    """Why a due renewal has not happened, for a person; empty if it is not due, or the certificate is not renewed."""


@dataclass(frozen=True, slots=True)
class Renew:
    """Renew with the stored certificate, which stays in use meanwhile."""

    pair: Pair


@dataclass(frozen=True, slots=True)
class Join:
    """Request the first certificate with the bootstrap credential."""

    bootstrap: Bootstrap


@dataclass(frozen=True, slots=True)
class KeepStill:
    """Make no request until the pause ends."""

    pause: Pause


@dataclass(frozen=True, slots=True)
class Expired:
    """The certificate expired (Unix time), and there is no bootstrap credential."""

    not_after: int


@dataclass(frozen=True, slots=True)
class Nothing:
    """There is neither a certificate nor a bootstrap credential."""


Next: TypeAlias = Use | Renew | Join | KeepStill | Expired | Nothing


def renewal_time(pair: Pair, share: float) -> int:
    """The time at which ``share`` of the certificate's life is left, or a little earlier (:data:`AGENT_SPREAD`)."""
    if share == PLUGIN_SHARE:
        return pair.renewal  # exactly the time that the printing path computes
        # Derived from the certificate, not random: every later check and restart computes the same time.
    digest = hashlib.sha256(pair.certificate.encode("ascii")).digest()
    earlier = AGENT_SPREAD * int.from_bytes(digest[:4], "big") / 2**32
    return pair.not_after - int(pair.lifetime * (share + earlier))


def next_step(
    pair: Pair | None,
    bootstrap: Bootstrap | None,
    attempt: Attempt,
    *,
    renews: bool,
    now: int,
    share: float = PLUGIN_SHARE,
    asker: str = "",
) -> Next:
    """The next step at ``now`` (Unix time). ``renews`` says whether the attestor renews.

    ``asker`` is the configuration's digest, which prefixes the credential in pauses: after a correction of the
    configuration, no pause applies.
    """
    if pair is not None and now < pair.not_after:
        due = renewal_time(pair, share)
        if now < due:
            return Use(pair, due)
        if not renews:
            return Use(pair, pair.not_after)
        if attempt.pause is not None and pause_in_force(attempt.pause, credential=asker, now=now):
            return Use(pair, min(attempt.pause.until, pair.not_after), attempt.pause.message)
        return Renew(pair)
    if bootstrap is not None:
        if attempt.pause is not None and pause_in_force(attempt.pause, credential=asker + bootstrap.digest, now=now):
            return KeepStill(attempt.pause)
        return Join(bootstrap)
    return Expired(pair.not_after) if pair is not None else Nothing()


def clock_behind(not_before: int, now: int) -> str:
    """A message if the certificate becomes valid only after ``now``: the clock was right when it was issued."""
    if now + CLOCK_SKEW.seconds >= not_before:
        return ""
    return f"not valid before {time_text(not_before)}: is this node's clock right?"


def expiration(use: Use, now: int) -> int:
    """``expirationTimestamp``: the next time at which the plugin has work, at most an hour away."""
    return max(now + 1, min(use.until, now + LONGEST_ANSWER_SECONDS))
