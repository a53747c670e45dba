"""Answers to the question whether a person may use a login, or approve its use. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Final, TypeAlias

LONGEST_WITHOUT_ANSWER: Final = timedelta(minutes=5)
"""A right whose last answer is older counts as lost."""


class Verb(Enum):
    """What a person may do with a login."""

    USE = "use"
    APPROVE = "approve"


@dataclass(frozen=True, slots=True)
class Allowed:
    """The person has the right."""


@dataclass(frozen=True, slots=True)
class Denied:
    """The person does not have it. The message names the login."""

    message: str


@dataclass(frozen=True, slots=True)
class RightUnknown:
    """The API server gave no answer."""

    message: str
    seconds: float
    """How long ago the last answer came; since the first question, if none came."""


RightAnswer: TypeAlias = Allowed | Denied | RightUnknown


__all__ = ["LONGEST_WITHOUT_ANSWER", "Allowed", "Denied", "RightAnswer", "RightUnknown", "Verb"]
