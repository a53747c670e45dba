"""What a person needs who reads a reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class ReasonExplanation:
    """Cause and cure of a reason: sentences, in Markdown. Links are relative to ``docs/``."""

    cause: str
    """What was found."""
    remedy: str
    """What to do about it."""


@runtime_checkable
class ExplainsReasons(Protocol):
    """What an :class:`~attestors.contract.Attestor` may have besides: ``explain`` and the documents say it."""

    def explanations(self) -> Mapping[str, ReasonExplanation]:
        """By reason: each that its outcomes may have, and that is its own."""
        ...
