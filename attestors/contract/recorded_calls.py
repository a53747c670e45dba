"""Records the answers that an attestor gets from other parties, in a form that can be stored and read back.

Replaying a decision needs the answers of that time. An attestor therefore makes its calls through the
:class:`RecordedCalls` of its request. On the controller they forward the call, and record the answer if there is an
audit log. During a replay they return the recorded answer and make no call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

from attestors.wire.evidence import Evidence

JSONValue: TypeAlias = Any
"""Text, a whole number, true, false, or a list or object of these."""

Answered = TypeVar("Answered")


class AnswerNotRecorded(Exception):
    """A replay needs an answer that the log does not hold, or holds in another form; the message says which."""


@dataclass(frozen=True, slots=True)
class AnswerForm(Generic[Answered]):
    """How an answer is serialised and read back."""

    write: Callable[[Answered], JSONValue]
    """Must leave out secrets, and credentials that let their holder act."""
    read: Callable[[JSONValue], Answered]
    """Raises AnswerNotRecorded, KeyError, TypeError or ValueError if the form is wrong."""


class RecordedCalls(Protocol):
    """Calls to other parties on behalf of one request.

    Several calls may run concurrently. A replay finds an answer by its question; answers to equal questions are
    returned in the order of the calls, so concurrent calls must have different questions. A call that failed or was
    cancelled has no recorded answer.
    """

    def look(self, question: str, answer: Callable[[], Answered], form: AnswerForm[Answered]) -> Answered:
        """Read changeable state of this controller: an operator's file, a key."""
        ...

    async def ask(
        self, question: str, answer: Callable[[], Awaitable[Answered]], form: AnswerForm[Answered]
    ) -> Answered:
        """Call another party. Exceptions of ``answer`` pass through."""
        ...


class Unrecorded:
    """Forwards every call and records nothing: there is no audit log."""

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
    """Optional interface of an :class:`~attestors.contract.Attestor` whose outcomes can be replayed from the audit log.

    It promises that its server plugin makes every call to another party through ``request.recorded_calls`` (except
    ``request.management``'s annotations, which the core records), and that it knows its own bearer credentials. For
    other attestors the log holds only digests of the evidence's fields, and a replay takes the recorded outcome.
    """

    def redacted_fields(self, evidence: Evidence) -> Mapping[str, str]:
        """The evidence's fields, with :func:`digest_of` in place of each part that is a bearer credential for a time.

        Returns ``evidence.fields`` itself if there is no such part. A field that cannot be parsed is replaced whole.
        """
        ...


def digest_of(text: str) -> str:
    """The digest that replaces a text that is not stored: ``sha256:`` and hexadecimal digits."""
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
