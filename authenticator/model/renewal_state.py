"""What this node keeps about a renewal that the controller has asked for: which certificate, and when."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from authenticator.model.pair import Pair
from authenticator.model.trust_state import pair_digest

_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class RenewalState:
    """The last accepted statement. It concerns one certificate at most: the renewed one is another."""

    sequence: int = 0
    """0 for none."""
    certificate: str = ""
    """Digest of the pair that is to be renewed; empty if it was by another CA."""
    due: int = 0
    """Unix time."""

    def is_due(self, pair: Pair | None, now: int) -> bool:
        """Whether that pair is to be renewed now."""
        return pair is not None and now >= self.due and pair_digest(pair) == self.certificate


def encode_renewal(state: RenewalState) -> str:
    """The content of the state's file."""
    document = {
        "format": _FORMAT,
        "sequence": state.sequence,
        "certificate": state.certificate,
        "due": state.due,
    }
    return json.dumps(document, indent=1) + "\n"


def decode_renewal(text: str) -> RenewalState:
    """Parse the content of the state's file.

    Other content counts as no state: the worst that follows is one renewal before its time.
    """
    try:
        document = json.loads(text)
        state = RenewalState(document["sequence"], document["certificate"], document["due"])
        known = document["format"] == _FORMAT
    except (ValueError, KeyError, TypeError, RecursionError):
        return RenewalState()
    numbers = type(state.sequence) is int and type(state.due) is int and state.sequence >= 0
    return state if known and numbers and isinstance(state.certificate, str) else RenewalState()
