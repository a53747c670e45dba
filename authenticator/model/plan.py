"""What to do next, from what is stored and the time. All of it; nothing else decides.

======================================  =======================================================================
stored                                  next
======================================  =======================================================================
valid, more than 20 % of life left      use it
valid, less left                        renew with it, and use it until the new one is there
valid, less left, cannot be renewed     use it until it runs out (the attestor ``insecure``)
none or run out, bootstrap credential   ask for one with the bootstrap credential
run out, no bootstrap credential        stop: nothing renews a certificate that has run out
none, no bootstrap credential           stop: nothing to ask with
refused a short while ago               keep still until the pause ends, or a new credential is supplied
======================================  =======================================================================

The agent renews earlier (:data:`AGENT_SHARE`), so that the plugin that a kubelet waits for seldom has to.
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
"""Share of its life that a certificate has left when the plugin renews it."""
AGENT_SHARE: Final = 0.3
"""The same for the agent, which has time; at the latest."""
AGENT_SPREAD: Final = 0.05
"""So much earlier it may be, each certificate at a moment of its own: who joined together does not renew together."""


@dataclass(frozen=True, slots=True)
class Use:
    """Use the stored pair; there is nothing to do before ``until`` (Unix time)."""

    pair: Pair
    until: int
    overdue: str = ""
    """Why it was not renewed although it is due, for a person; empty where it is not due, or is not renewed at all."""


@dataclass(frozen=True, slots=True)
class Renew:
    """Ask for a new certificate with the stored one, which stays in use until then."""

    pair: Pair


@dataclass(frozen=True, slots=True)
class Join:
    """Ask for the first certificate with the bootstrap credential."""

    bootstrap: Bootstrap


@dataclass(frozen=True, slots=True)
class KeepStill:
    """Ask nothing until the pause ends."""

    pause: Pause


@dataclass(frozen=True, slots=True)
class Expired:
    """The certificate ran out (Unix time), and there is no bootstrap credential."""

    not_after: int


@dataclass(frozen=True, slots=True)
class Nothing:
    """Neither a certificate nor a bootstrap credential."""


Next: TypeAlias = Use | Renew | Join | KeepStill | Expired | Nothing


def renewal_time(pair: Pair, share: float) -> int:
    """When ``share`` of the certificate's life is left, or a little earlier (:data:`AGENT_SPREAD`)."""
    if share == PLUGIN_SHARE:
        return pair.renewal  # the very moment that the printing path computes
    # By the certificate and not by chance: whoever looks again, or begins again, finds the same moment.
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
    """What to do at ``now`` (Unix time). ``renews`` says whether the attestor does.

    ``asker`` stands before the credential in pauses: who asks as somebody else, after the configuration was mended,
    need not wait.
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
    """What to say to a person of a certificate that begins only after ``now``: the clock was right when it came."""
    if now + CLOCK_SKEW.seconds >= not_before:
        return ""
    return f"valid from {time_text(not_before)} only: is this node's clock right?"


def expiration(use: Use, now: int) -> int:
    """``expirationTimestamp``: the next moment at which the plugin has work, at most an hour away."""
    return max(now + 1, min(use.until, now + LONGEST_ANSWER_SECONDS))
