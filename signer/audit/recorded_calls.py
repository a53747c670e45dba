"""Records the answers to an attestor's calls, and returns them in a replay."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, TypeVar

from attestors.contract import (
    AnswerForm,
    AnswerNotRecorded,
    Document,
    DocumentKind,
    Host,
    ManagementCluster,
    NotThere,
    digest_of,
)
from signer.audit.values import write

T = TypeVar("T")

_MAXIMUM_RECORDED_CALLS: Final = 64
_INFRASTRUCTURE: Final = "annotations of the InfraMachine"
_HOST: Final = "host of the InfraMachine"
_UNANSWERED: Final = "Unanswered"
"""Recorded for a question without an answer when the attestor returned."""

_WITHIN: Final[ContextVar[tuple[CallRecorder, ...]]] = ContextVar("_WITHIN", default=())
"""The recorders whose questions this task, or the task that started it, is answering. Plugins may ask concurrently."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The index of an entry in the record."""

    index: int


_NOWHERE: Final = _Place(-1)
"""For a question that is not recorded: it is part of another answer, or the limit is reached."""


@dataclass(slots=True)
class CallRecorder:
    """Implements :class:`attestors.contract.RecordedCalls`: makes the calls and records them in order."""

    recorded: list[dict[str, Any]] = field(default_factory=list)

    def look(self, question: str, answer: Callable[[], T], form: AnswerForm[T]) -> T:
        """See the contract."""
        found = answer()
        written = form.write(found)
        self.record(self._reserved(question), {"question": question, "answer": written})
        return found

    async def ask(self, question: str, answer: Callable[[], Awaitable[T]], form: AnswerForm[T]) -> T:
        """See the contract. A question that is asked while answering another one is not recorded separately."""
        place = self._reserved(question)
        with _Asking(self, place, question):
            found = await answer()
            written = form.write(found)
        self.record(place, {"question": question, "answer": written})
        return found

    def record(self, place: _Place, entry: dict[str, Any]) -> None:
        """Replace the entry at a reserved place."""
        if place is not _NOWHERE:
            self.recorded[place.index] = entry

    def _reserved(self, question: str) -> _Place:
        """Reserve the place of a question: the answers to concurrent questions come in any order."""
        if any(one is self for one in _WITHIN.get()) or len(self.recorded) >= _MAXIMUM_RECORDED_CALLS:
            return _NOWHERE
        self.recorded.append({"question": question, "failed": _UNANSWERED})
        return _Place(len(self.recorded) - 1)


@dataclass(slots=True)
class _Asking:
    """A context manager around a question's answer. It records every error, also the cancellation by the attestor's own
    timeout.
    """

    recorder: CallRecorder
    place: _Place
    question: str
    _within: Token[tuple[CallRecorder, ...]] = field(init=False)

    def __enter__(self) -> None:
        self._within = _WITHIN.set((*_WITHIN.get(), self.recorder))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _WITHIN.reset(self._within)
        if kind is not None:
            self.recorder.record(self.place, {"question": self.question, "failed": kind.__name__})


@dataclass(slots=True)
class ReplayedCalls:
    """Implements :class:`attestors.contract.RecordedCalls`: makes no call and returns the recorded answers.

    An answer is found by its question, because concurrent questions may come in another order. Equal questions get
    their answers in order.
    """

    recorded: Sequence[Mapping[str, Any]]
    _used: set[int] = field(default_factory=set)

    def look(self, question: str, answer: Callable[[], T], form: AnswerForm[T]) -> T:
        """See the contract.

        Raises:
            AnswerNotRecorded: there is no answer, or no further answer, to that question.
        """
        return self._next(question, form)

    async def ask(self, question: str, answer: Callable[[], Awaitable[T]], form: AnswerForm[T]) -> T:
        """See the contract; raises like :meth:`look`."""
        return self._next(question, form)

    def _next(self, question: str, form: AnswerForm[T]) -> T:
        entry = self._entry(question)
        if "answer" not in entry:
            raise AnswerNotRecorded(f"there was no answer about {question}")
        try:
            return form.read(entry["answer"])
        except (KeyError, TypeError, ValueError) as error:
            raise AnswerNotRecorded(f"the answer about {question} is malformed") from error

    def _entry(self, question: str) -> Mapping[str, Any]:
        for index, entry in enumerate(self.recorded):
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
        raise TypeError("not a string")
    return value


_ANNOTATIONS: Final[AnswerForm[Mapping[str, str] | NotThere]] = AnswerForm(_written, _read)


def _host_written(said: Host | NotThere) -> Any:
    if isinstance(said, NotThere):
        return {"notThere": said.cause}
    return {"reference": said.reference, "annotations": dict(said.annotations)}


def _host_read(written: Any) -> Host | NotThere:
    if "notThere" in written:
        return NotThere(_text(written["notThere"]))
    annotations = {_text(key): _text(value) for key, value in written["annotations"].items()}
    return Host(_text(written["reference"]), annotations)


_HOSTS: Final[AnswerForm[Host | NotThere]] = AnswerForm(_host_written, _host_read)


def _document_written(said: Document | NotThere) -> Any:
    if isinstance(said, NotThere):
        return {"notThere": said.cause}
    return {"digest": digest_of(write(said.texts).decode("utf-8")), "resourceVersion": said.resource_version}


def _secret_written(said: Document | NotThere) -> Any:
    """The form without a digest, from which a short secret could be guessed."""
    return {"notThere": said.cause} if isinstance(said, NotThere) else {"resourceVersion": said.resource_version}


def _document_read(written: Any) -> Document | NotThere:
    if "notThere" in written:
        return NotThere(_text(written["notThere"]))
    raise AnswerNotRecorded("the contents of ConfigMaps and Secrets are not recorded")


_DOCUMENTS: Final[Mapping[DocumentKind, AnswerForm[Document | NotThere]]] = {
    DocumentKind.CONFIG_MAP: AnswerForm(_document_written, _document_read),
    DocumentKind.SECRET: AnswerForm(_secret_written, _document_read),
}


@dataclass(frozen=True, slots=True)
class RecordedManagementCluster:
    """Implements :class:`attestors.contract.ManagementCluster` and records every call."""

    management: ManagementCluster
    recorded_calls: CallRecorder | ReplayedCalls

    async def infrastructure_annotations(self) -> Mapping[str, str] | NotThere:
        """See the contract."""
        return await self.recorded_calls.ask(_INFRASTRUCTURE, self.management.infrastructure_annotations, _ANNOTATIONS)

    async def host(self) -> Host | NotThere:
        """See the contract."""
        return await self.recorded_calls.ask(_HOST, self.management.host, _HOSTS)

    async def document(self, kind: DocumentKind, name: str) -> Document | NotThere:
        """See the contract. At most a digest of the content is recorded."""
        return await self.recorded_calls.ask(
            f"{kind.value} {name}", lambda: self.management.document(kind, name), _DOCUMENTS[kind]
        )
