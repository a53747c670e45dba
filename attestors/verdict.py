"""Exceptions by which a step of a server plugin ends verification with an outcome.

A step either raises one of these or returns, and then the next step runs. The server plugin turns them into outcomes of
the contract. The core defers the request for any other exception.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from attestors.contract import Denied, NotProvableYet

MAXIMUM_MESSAGE_CHARACTERS: Final = 500
_SHORTEST: Final = timedelta(seconds=1)
_LONGEST: Final = timedelta(minutes=10)
_SOON: Final = timedelta(seconds=10)
_LATER: Final = timedelta(minutes=1)


class Ended(Exception):
    """Verification has an outcome; no further step runs."""

    def __init__(self, outcome: Denied | NotProvableYet) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


def denied(reason: str, message: str) -> Ended:
    """A final denial."""
    return Ended(Denied(reason, _bounded(message)))


def not_yet(reason: str, message: str, retry_after: timedelta = _SOON) -> Ended:
    """Not provable yet, through no fault of the node; ``retry_after`` is clamped to the contract's bounds."""
    return Ended(NotProvableYet(reason, _bounded(message), min(max(retry_after, _SHORTEST), _LONGEST)))


def not_until_fixed(reason: str, message: str) -> Ended:
    """Not provable until an operator fixes the controller or the cloud account; frequent retries do not help."""
    return not_yet(reason, message, _LATER)


def _bounded(message: str) -> str:
    """Truncated to an outcome's maximum length and printable, since the message may quote untrusted text."""
    text = "".join(character if character.isprintable() else " " for character in message)
    return text[:MAXIMUM_MESSAGE_CHARACTERS]
