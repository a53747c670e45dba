"""What ends the judgement of a request: the answer that a step has, so that no further step is taken."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from attestors.contract import Denied, NotProvableYet

_MAXIMUM_MESSAGE_CHARACTERS: Final = 500
_SHORTEST: Final = timedelta(seconds=1)
_LONGEST: Final = timedelta(minutes=10)
SOON: Final = timedelta(seconds=10)


class Ended(Exception):
    """A step has the answer."""

    def __init__(self, outcome: Denied | NotProvableYet) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


def denied(reason: str, message: str) -> Ended:
    """Wrong for good."""
    return Ended(Denied(reason, _bounded(message)))


def not_yet(reason: str, message: str, retry_after: timedelta = SOON) -> Ended:
    """Neither right nor wrong yet, by no fault of the node; ``retry_after`` is brought into the contract's bounds."""
    return Ended(NotProvableYet(reason, _bounded(message), min(max(retry_after, _SHORTEST), _LONGEST)))


def _bounded(message: str) -> str:
    """As long as an outcome's message may be, and printable: it may quote what a service said."""
    text = "".join(character if character.isprintable() else " " for character in message)
    return text[:_MAXIMUM_MESSAGE_CHARACTERS]
