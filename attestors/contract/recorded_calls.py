"""What an attestor is told by others while it judges, in a form that can be written down and read back.

A decision can be judged again later only with the answers of that day. So an attestor asks through the
:class:`RecordedCalls` of its request: on the controller they pass the question on, and note the answer where there is
an audit log; when a logged decision is judged again they give the noted answer, and nobody is asked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

from attestors.wire.evidence import Evidence

JSONValue: TypeAlias = Any
"""Text, a whole number, true, false, or a list or object of such."""

Answered = TypeVar("Answered")


class AnswerNotRecorded(Exception):
    """Judging again needs an answer that the log does not hold, or not in its form; the message says which."""


@dataclass(frozen=True, slots=True)
class AnswerForm(Generic[Answered]):
    """How an answer is written down, and read back."""

    write: Callable[[Answered], JSONValue]
    """It must leave out what is secret, and what lets its holder act."""
    read: Callable[[JSONValue], Answered]
    """Raises AnswerNotRecorded, KeyError, TypeError or ValueError where it is of another form."""


class RecordedCalls(Protocol):
    """The answers of others for one request.

    Several may be asked at once. When a decision is judged again an answer is found by its question, and those to equal
    questions in the order in which they were asked: what is asked at once has different questions. Where asking failed,
    or was given up, there is no answer then.
    """

    def look(self, question: str, answer: Callable[[], Answered], form: AnswerForm[Answered]) -> Answered:
        """Something of this controller that changes: a file of the operator, a key."""
        ...

    async def ask(
        self, question: str, answer: Callable[[], Awaitable[Answered]], form: AnswerForm[Answered]
    ) -> Answered:
        """Somebody else. What ``answer`` raises passes through."""
        ...


class Unrecorded:
    """Passes every question on and notes nothing: there is no audit log."""

    def look(self, question: str, answer: Callable[[], Answered], form: AnswerForm[Answered]) -> Answered:
        """See :class:`RecordedCalls`."""
        return answer()

    async def ask(
        self, question: str, answer: Callable[[], Awaitable[Answered]], form: AnswerForm[Answered]
    ) -> Answered:
        """See :class:`RecordedCalls`."""
        return await answer()


UNRECORDED: Final = Unrecorded()


@runtime_checkable
class Auditable(Protocol):
    """What an :class:`~attestors.contract.Attestor` has besides, whose answers can be judged again from the audit log.

    It promises two things: that its server plugin asks everybody through ``request.recorded_calls`` (but
    ``request.management``'s annotations, which the core notes itself), and that it knows its own bearer credentials.
    Without it the log holds digests of the evidence's fields only, and its answer counts as it was noted.
    """

    def redacted_fields(self, evidence: Evidence) -> Mapping[str, str]:
        """The evidence's fields, with :func:`digest_of` in place of each part that lets its holder act for a time.

        The very ``evidence.fields`` where there is none. A field that cannot be read is replaced whole.
        """
        ...


def digest_of(text: str) -> str:
    """What stands for a text that is not kept: ``sha256:`` and hexadecimal digits."""
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
