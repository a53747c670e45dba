"""Errors of writing and replaying lines."""

from __future__ import annotations


class Inconsistent(Exception):
    """The line contradicts itself. The message says how."""


class DecisionInputsEnd(Exception):
    """The decision inputs end before the stage that the replay needs next."""

    def __init__(self, stage: str) -> None:
        super().__init__(f"the decision inputs end before: {stage}")
        self.stage = stage


class NotRedacted(Exception):
    """The request cannot be redacted for the log. The message names the attestor at fault."""
