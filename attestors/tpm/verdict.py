"""How a step of the controller half says that it has the answer."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from attestors.contract import Denied, NotProvableYet
from attestors.tpm.ownership import LOOK_AGAIN

MAXIMUM_MESSAGE_CHARACTERS: Final = 500


class Ended(Exception):
    """A step has the answer."""

    def __init__(self, outcome: Denied | NotProvableYet) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


def denied(reason: str, message: str) -> Ended:
    """Wrong for good."""
    return Ended(Denied(reason, _bounded(message)))


def not_yet(reason: str, message: str, retry_after: timedelta = LOOK_AGAIN) -> Ended:
    """To be tried again: of the operator's making, or of a moment's."""
    return Ended(NotProvableYet(reason, _bounded(message), retry_after))


def _bounded(message: str) -> str:
    """As long as an outcome's message may be, and printable: it may quote a certificate's names."""
    text = "".join(character if character.isprintable() else " " for character in message)
    return text[:MAXIMUM_MESSAGE_CHARACTERS]
