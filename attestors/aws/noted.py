"""What others say to the AWS attestor, as the audit log notes it: nothing secret is among it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from attestors.aws.verdict import Ended
from attestors.clouds.noted import ending_read, ending_written
from attestors.contract import AnswerForm, Consultations

T = TypeVar("T")


async def asked(
    consultations: Consultations, question: str, answer: Callable[[], Awaitable[T]], form: AnswerForm[T]
) -> T:
    """Ask, where the answer may also end the judgement.

    Raises:
        Ended: it does.
    """
    said = await consultations.ask(question, lambda: _or_ended(answer), _form(form))
    if isinstance(said, Ended):
        raise said
    return said


async def _or_ended(answer: Callable[[], Awaitable[T]]) -> T | Ended:
    try:
        return await answer()
    except Ended as ended:
        return ended


def _form(form: AnswerForm[T]) -> AnswerForm[T | Ended]:
    def write(said: T | Ended) -> Any:
        if isinstance(said, Ended):
            return {"ended": ending_written(said.outcome)}
        return {"said": form.write(said)}

    def read(written: Any) -> T | Ended:
        return Ended(ending_read(written["ended"])) if "ended" in written else form.read(written["said"])

    return AnswerForm(write, read)
