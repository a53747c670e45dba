"""The explanation of a reason, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class ReasonExplanation:
    """Cause and remedy of a reason: Markdown sentences. Links are relative to ``docs/``."""

    cause: str
    """What the controller found."""
    remedy: str
    """What to do about it."""


@runtime_checkable
class ExplainsReasons(Protocol):
    """Optional interface of an :class:`~attestors.contract.Attestor`; ``explain`` and the documents print it."""

    def explanations(self) -> Mapping[str, ReasonExplanation]:
        """Explanations by reason, for every reason that is specific to this attestor's outcomes."""
        ...
