"""Answers of others to an attestor: noted, and given again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from attestors.contract import (
    AnswerForm,
    AnswerNotRecorded,
    Document,
    DocumentKind,
    ManagementCluster,
    NotThere,
    digest_of,
)
from signer.audit.values import write

T = TypeVar("T")

_MAXIMUM_RECORDED_CALLS: Final = 64
_INFRASTRUCTURE: Final = "annotations of the InfraMachine"
_UNANSWERED: Final = "Unanswered"
"""Noted of a question that still had no answer when the attestor was done."""

_WITHIN: Final[ContextVar[tuple[CallRecorder, ...]]] = ContextVar("_WITHIN", default=())
"""Whose questions a task, or what it started, is finding the answer to: a plugin may ask several at once."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Of an entry among what is noted."""

    index: int


_NOWHERE: Final = _Place(-1)
"""It is part of another answer, or too much was noted."""


@dataclass(slots=True)
class CallRecorder:
    """Implements :class:`attestors.contract.RecordedCalls`: asks, and notes in the order of the questions."""

    noted: list[dict[str, Any]] = field(default_factory=list)

    def look(self, question: str, answer: Callable[[], T], form: AnswerForm[T]) -> T:
        """See the contract."""
        found = answer()
        written = form.write(found)
        self._note(self._reserved(question), {"question": question, "answer": written})
        return found

    async def ask(self, question: str, answer: Callable[[], Awaitable[T]], form: AnswerForm[T]) -> T:
        """See the contract. What is asked within a question belongs to its answer, and is not noted by itself."""
        place = self._reserved(question)
        within = _WITHIN.set((*_WITHIN.get(), self))
        try:
            found = await answer()
            written = form.write(found)
        except BaseException as error:  # a time limit of the attestor's own cancels, and has to be seen
            self._note(place, {"question": question, "failed": type(error).__name__})
            raise
        finally:
            _WITHIN.reset(within)
        self._note(place, {"question": question, "answer": written})
        return found

    def _reserved(self, question: str) -> _Place:
        """Of several that are asked at once, the answers come in any order."""
        if any(one is self for one in _WITHIN.get()) or len(self.noted) >= _MAXIMUM_RECORDED_CALLS:
            return _NOWHERE
        self.noted.append({"question": question, "failed": _UNANSWERED})
        return _Place(len(self.noted) - 1)

    def _note(self, place: _Place, entry: dict[str, Any]) -> None:
        if place is not _NOWHERE:
            self.noted[place.index] = entry


@dataclass(slots=True)
class ReplayedCalls:
    """Implements :class:`attestors.contract.RecordedCalls`: nobody is asked, each answer is the one of that day.

    It is found by its question, for what is asked at once may come in another order; of equal ones by their order.
    """

    noted: Sequence[Mapping[str, Any]]
    _used: set[int] = field(default_factory=set)

    def look(self, question: str, answer: Callable[[], T], form: AnswerForm[T]) -> T:
        """See the contract.

        Raises:
            AnswerNotRecorded: there is none to that question, or none any more.
        """
        return self._next(question, form)

    async def ask(self, question: str, answer: Callable[[], Awaitable[T]], form: AnswerForm[T]) -> T:
        """See the contract; raises like :meth:`look`."""
        return self._next(question, form)

    def _next(self, question: str, form: AnswerForm[T]) -> T:
        entry = self._take(question)
        if "answer" not in entry:
            raise AnswerNotRecorded(f"there was no answer about {question}")
        try:
            return form.read(entry["answer"])
        except (KeyError, TypeError, ValueError) as error:
            raise AnswerNotRecorded(f"the answer about {question} is not of its form") from error

    def _take(self, question: str) -> Mapping[str, Any]:
        for index, entry in enumerate(self.noted):
            if index not in self._used and entry.get("question") == question:
                self._used.add(index)
                return entry
        raise AnswerNotRecorded(f"there is no answer about {question}")


def _written(said: Mapping[str, str] | NotThere) -> Any:
    return {"notThere": said.cause} if isinstance(said, NotThere) else {"annotations": dict(said)}


def _read(written: Any) -> Mapping[str, str] | NotThere:
    if "notThere" in written:
        return NotThere(_text(written["notThere"]))
    return {_text(key): _text(value) for key, value in written["annotations"].items()}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not text")
    return value


_ANNOTATIONS: Final[AnswerForm[Mapping[str, str] | NotThere]] = AnswerForm(_written, _read)


def _document_written(said: Document | NotThere) -> Any:
    if isinstance(said, NotThere):
        return {"notThere": said.cause}
    return {"digest": digest_of(write(said.texts).decode("utf-8")), "resourceVersion": said.resource_version}


def _secret_written(said: Document | NotThere) -> Any:
    """Without a digest, by which a short secret could be guessed."""
    return {"notThere": said.cause} if isinstance(said, NotThere) else {"resourceVersion": said.resource_version}


def _document_read(written: Any) -> Document | NotThere:
    if "notThere" in written:
        return NotThere(_text(written["notThere"]))
    raise AnswerNotRecorded("of ConfigMaps and Secrets only the digest is kept")


_DOCUMENTS: Final[Mapping[DocumentKind, AnswerForm[Document | NotThere]]] = {
    DocumentKind.CONFIG_MAP: AnswerForm(_document_written, _document_read),
    DocumentKind.SECRET: AnswerForm(_secret_written, _document_read),
}


@dataclass(frozen=True, slots=True)
class RecordedManagementCluster:
    """Implements :class:`attestors.contract.ManagementCluster` through consultations: every attestor's are noted."""

    management: ManagementCluster
    recorded_calls: CallRecorder | ReplayedCalls

    async def infrastructure_annotations(self) -> Mapping[str, str] | NotThere:
        """See the contract."""
        return await self.recorded_calls.ask(_INFRASTRUCTURE, self.management.infrastructure_annotations, _ANNOTATIONS)

    async def document(self, kind: DocumentKind, name: str) -> Document | NotThere:
        """See the contract. Of the content the digest at most is noted."""
        return await self.recorded_calls.ask(
            f"{kind.value} {name}", lambda: self.management.document(kind, name), _DOCUMENTS[kind]
        )
