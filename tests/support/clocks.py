"""Clocks that agree or not, as a test says."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from signer.kube.clocks import ClockAnswer, ClocksAgree


@dataclass
class AnsweredClocks:
    """Implements ClockAnswers."""

    said: ClockAnswer = field(default_factory=ClocksAgree)

    def answer(self) -> ClockAnswer:
        return self.said

    async def fresh(self, path: str) -> ClockAnswer:
        return self.said


@dataclass(frozen=True)
class AgreedClocks:
    """Implements RequiredClocks: it is never wrong."""

    async def require_agree(self, now: datetime) -> None:
        """It is."""
