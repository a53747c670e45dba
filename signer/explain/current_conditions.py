"""The current conditions of a CSR, and the CSR as it was before it had any."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from signer.model.decision import printable
from signer.model.fields import items_of, mapping_of, text_of
from signer.model.reasons import Reason
from signer.model.signing_request import Condition


@dataclass(frozen=True, slots=True)
class CurrentCondition:
    """One condition of a CSR, as the workload cluster claims it; all texts are printable."""

    type: str
    reason: str
    message: str


class Answer(enum.Enum):
    """How a CSR was decided, according to its conditions."""

    APPROVED = "approved"
    CHALLENGED = "challenged"
    """Denied with a challenge, which the node answers with another request."""
    DENIED = "denied"
    FAILED = "failed"
    """It was approved, and is not signed."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The decision on a CSR that is decided; all texts are printable."""

    answer: Answer
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class NotAnswered:
    """The CSR is not decided yet."""


_ANSWERS: Final = (
    (Condition.FAILED, Answer.FAILED),
    (Condition.DENIED, Answer.DENIED),
    (Condition.APPROVED, Answer.APPROVED),
)
"""In the order in which a condition counts: a failed CSR is also approved."""


@dataclass(frozen=True, slots=True)
class CurrentConditions:
    """The status of a CSR."""

    conditions: tuple[CurrentCondition, ...]
    has_certificate: bool

    @property
    def is_settled(self) -> bool:
        """Whether the controller ignores the CSR from now on."""
        ended = {Condition.DENIED.value, Condition.FAILED.value}
        return self.has_certificate or any(one.type in ended for one in self.conditions)

    @property
    def answered(self) -> Answered | NotAnswered:
        """How the CSR was decided. A certificate without a condition counts as an approval."""
        for condition, answer in _ANSWERS:
            for one in self.conditions:
                if one.type != condition.value:
                    continue
                if answer is Answer.DENIED and one.reason == Reason.CHALLENGE_ISSUED:
                    answer = Answer.CHALLENGED
                return Answered(answer, one.reason, one.message)
        return Answered(Answer.APPROVED, "", "") if self.has_certificate else NotAnswered()


def current_conditions_of(manifest: Mapping[str, Any]) -> CurrentConditions:
    """Read ``status`` of a CSR, even if it is malformed."""
    status = mapping_of(manifest, "status")
    found = tuple(
        CurrentCondition(*(printable(text_of(one, field)) for field in ("type", "reason", "message")))
        for one in items_of(status, "conditions")[:8]
        if isinstance(one, Mapping)
    )
    return CurrentConditions(found, bool(status.get("certificate")))


def as_posted(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The CSR with an empty status, as it was posted."""
    return {**manifest, "status": {}}
