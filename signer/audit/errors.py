"""Why a line cannot be written, or not be judged again to a decision."""

from __future__ import annotations


class Inconsistent(Exception):
    """The line contradicts itself; the message says in what."""


class DecisionInputsEnd(Exception):
    """The account does not reach what is needed next."""

    def __init__(self, stage: str) -> None:
        super().__init__(f"the decision inputs end before: {stage}")
        self.stage = stage


class NotRedacted(Exception):
    """What must not stand in the log cannot be taken out of the request; the message says whose fault that is."""
