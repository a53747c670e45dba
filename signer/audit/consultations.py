"""Answers of others to an attestor: noted, and given again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
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

_MAXIMUM_CONSULTATIONS: Final = 64
_INFRASTRUCTURE: Final = "annotations of the InfraMachine"


@dataclass(slots=True)
class RecordedConsultations:
    """Implements :class:`attestors.contract.Consultations`: asks, and notes."""

    noted: list[dict[str, Any]] = field(default_factory=list)
    _depth: int = 0

    def look(self, question: str, answer: Callable[[], T], form: AnswerForm[T]) -> T:
        """See the contract."""
        found = answer()
        self._note(question, form.write(found))
        return found

    async def ask(self, question: str, answer: Callable[[], Awaitable[T]], form: AnswerForm[T]) -> T:
        """See the contract. What is asked within a question belongs to its answer, and is not noted by itself."""
        self._depth += 1
        try:
            found = await answer()
        except Exception as error:
            self._depth -= 1
            self._add({"question": question, "failed": type(error).__name__})
            raise
        self._depth -= 1
        self._note(question, form.write(found))
        return found

    def _note(self, question: str, answer: Any) -> None:
        self._add({"question": question, "answer": answer})

    def _add(self, entry: dict[str, Any]) -> None:
        if self._depth == 0 and len(self.noted) < _MAXIMUM_CONSULTATIONS:
            self.noted.append(entry)


@dataclass(slots=True)
class NotedConsultations:
    """Implements :class:`attestors.contract.Consultations`: nobody is asked, each answer is the one of that day."""

    noted: Sequence[Mapping[str, Any]]
    used: int = 0

    def look(self, question: str, answer: Callable[[], T], form: AnswerForm[T]) -> T:
        """See the contract.

        Raises:
            AnswerNotRecorded: there is none, or not to that question.
        """
        return self._next(question, form)

    async def ask(self, question: str, answer: Callable[[], Awaitable[T]], form: AnswerForm[T]) -> T:
        """See the contract; raises like :meth:`look`."""
        return self._next(question, form)

    def _next(self, question: str, form: AnswerForm[T]) -> T:
        if self.used >= len(self.noted) or self.noted[self.used].get("question") != question:
            raise AnswerNotRecorded(f"there is no answer about {question}")
        entry = self.noted[self.used]
        self.used += 1
        if "answer" not in entry:
            raise AnswerNotRecorded(f"there was no answer about {question}")
        try:
            return form.read(entry["answer"])
        except (KeyError, TypeError, ValueError) as error:
            raise AnswerNotRecorded(f"the answer about {question} is not of its form") from error


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
class ConsultedManagement:
    """Implements :class:`attestors.contract.ManagementCluster` through consultations: every attestor's are noted."""

    management: ManagementCluster
    consultations: RecordedConsultations | NotedConsultations

    async def infrastructure_annotations(self) -> Mapping[str, str] | NotThere:
        """See the contract."""
        return await self.consultations.ask(_INFRASTRUCTURE, self.management.infrastructure_annotations, _ANNOTATIONS)

    async def document(self, kind: DocumentKind, name: str) -> Document | NotThere:
        """See the contract. Of the content the digest at most is noted."""
        return await self.consultations.ask(
            f"{kind.value} {name}", lambda: self.management.document(kind, name), _DOCUMENTS[kind]
        )
