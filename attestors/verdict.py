"""What ends the judgement of a request in a server plugin: an answer that a step further down has.

A step raises one of these, or the next one follows. The server plugin turns them into outcomes of the contract; an
exception that it did not foresee is a Defer of the core's.
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
    """There is an answer; no further step is taken."""

    def __init__(self, outcome: Denied | NotProvableYet) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


def denied(reason: str, message: str) -> Ended:
    """Wrong for good."""
    return Ended(Denied(reason, _bounded(message)))


def not_yet(reason: str, message: str, retry_after: timedelta = _SOON) -> Ended:
    """Neither right nor wrong yet, by no fault of the node; ``retry_after`` is brought into the contract's bounds."""
    return Ended(NotProvableYet(reason, _bounded(message), min(max(retry_after, _SHORTEST), _LONGEST)))


def not_until_mended(reason: str, message: str) -> Ended:
    """Somebody who runs the controller or the cloud's account has to mend it; asking often does not help."""
    return not_yet(reason, message, _LATER)


def _bounded(message: str) -> str:
    """As long as an outcome's message may be, and printable: it may quote what others wrote."""
    text = "".join(character if character.isprintable() else " " for character in message)
    return text[:MAXIMUM_MESSAGE_CHARACTERS]
