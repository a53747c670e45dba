"""Every answer is noted, in whatever order it comes, and is given again to the question that it belongs to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import pytest

from attestors.contract import AnswerForm, AnswerNotRecorded
from signer.audit.recorded_calls import CallRecorder, ReplayedCalls


def _written(said: str) -> Any:
    return {"said": said}


def _read(written: Any) -> str:
    return str(written["said"])


FORM: Final = AnswerForm(_written, _read)


def noted(question: str, said: str) -> Mapping[str, Any]:
    return {"question": question, "answer": {"said": said}}


def after(turns: int, said: str) -> Callable[[], Awaitable[str]]:
    """Answers behind so many turns of the event loop."""

    async def answer() -> str:
        for _ in range(turns):
            await asyncio.sleep(0)
        return said

    return answer


async def never() -> str:
    await asyncio.Event().wait()
    raise AssertionError


async def nobody() -> str:
    raise AssertionError("somebody is asked")


async def test_several_at_once_in_the_order_of_the_questions() -> None:
    recorded = CallRecorder()
    said = await asyncio.gather(
        recorded.ask("EC2", after(9, "instance"), FORM),
        recorded.ask("IAM", after(1, "role"), FORM),
        recorded.ask("STS", after(5, "caller"), FORM),
    )
    assert [*said] == ["instance", "role", "caller"]
    assert recorded.recorded == [noted("EC2", "instance"), noted("IAM", "role"), noted("STS", "caller")]


async def test_what_is_asked_within_a_question_is_part_of_its_answer() -> None:
    """Also by the tasks that it starts, and while another question is asked."""
    recorded = CallRecorder()

    async def caches() -> str:
        parts = await asyncio.gather(
            recorded.ask("its page 1", after(2, "a"), FORM), recorded.ask("its page 2", after(1, "b"), FORM)
        )
        return "".join((*parts, recorded.look("its file", lambda: "c", FORM)))

    await asyncio.gather(recorded.ask("inventory", caches, FORM), recorded.ask("IAM", after(1, "role"), FORM))
    recorded.look("file", lambda: "text", FORM)
    assert recorded.recorded == [noted("inventory", "abc"), noted("IAM", "role"), noted("file", "text")]


async def test_requests_do_not_hide_each_others_questions() -> None:
    """Such as in a task that serves many requests, and was started by an answer to one of them."""
    first, second = CallRecorder(), CallRecorder()
    await first.ask("batch", lambda: second.ask("EC2", after(1, "instance"), FORM), FORM)
    assert first.recorded == [noted("batch", "instance")]
    assert second.recorded == [noted("EC2", "instance")]


async def test_a_time_limit_of_the_attestors_own() -> None:
    recorded = CallRecorder()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await recorded.ask("slow", never, FORM)
    await recorded.ask("another", after(1, "fallback"), FORM)
    recorded.look("file", lambda: "text", FORM)
    assert recorded.recorded == [
        {"question": "slow", "failed": "CancelledError"},
        noted("another", "fallback"),
        noted("file", "text"),
    ]


async def test_what_failed_is_noted_by_its_kind_alone() -> None:
    recorded = CallRecorder()

    async def fails() -> str:
        raise ConnectionResetError("with a secret")

    with pytest.raises(ConnectionResetError):
        await recorded.ask("EC2", fails, FORM)

    def unwritable(said: str) -> Any:
        raise TypeError(said)

    with pytest.raises(TypeError):
        await recorded.ask("IAM", after(1, "role"), AnswerForm(unwritable, _read))
    assert recorded.recorded == [
        {"question": "EC2", "failed": "ConnectionResetError"},
        {"question": "IAM", "failed": "TypeError"},
    ]


async def test_what_has_no_answer_when_the_attestor_is_done() -> None:
    """The line is as it was then, whatever is answered later."""
    recorded = CallRecorder()
    late = asyncio.create_task(recorded.ask("late", after(5, "too late"), FORM))
    await recorded.ask("EC2", after(0, "instance"), FORM)
    await asyncio.sleep(0)
    written = tuple(recorded.recorded)
    await late
    assert written == (noted("EC2", "instance"), {"question": "late", "failed": "Unanswered"})


async def test_no_more_is_noted_than_a_line_holds() -> None:
    recorded = CallRecorder()
    await asyncio.gather(*(recorded.ask(f"{number}", after(number % 3, ""), FORM) for number in range(70)))
    assert [entry["question"] for entry in recorded.recorded] == [f"{number}" for number in range(64)]


async def test_answers_are_found_by_their_questions() -> None:
    """Two that went on by themselves asked in turns then, and do not now."""
    recorded = CallRecorder()

    async def chain(recorded_calls: Any, service: str, turns: int) -> list[str]:
        return [
            await recorded_calls.ask(f"{service} {step}", after(turns, f"{service}'s {step}"), FORM) for step in "ab"
        ]

    async def judged(recorded_calls: Any) -> tuple[list[str], list[str]]:
        return await asyncio.gather(chain(recorded_calls, "EC2", 3), chain(recorded_calls, "IAM", 1))

    said = await judged(recorded)
    written = json.loads(json.dumps(recorded.recorded))
    assert [entry["question"] for entry in written] == ["EC2 a", "IAM a", "IAM b", "EC2 b"]
    assert await judged(ReplayedCalls(written)) == said


async def test_equal_questions_have_their_answers_in_order() -> None:
    again = ReplayedCalls([noted("EC2", "pending"), noted("IAM", "role"), noted("EC2", "running")])
    assert again.look("IAM", lambda: "", FORM) == "role"
    assert [await again.ask("EC2", nobody, FORM) for _ in range(2)] == ["pending", "running"]
    with pytest.raises(AnswerNotRecorded, match="there is no answer about EC2"):
        await again.ask("EC2", nobody, FORM)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"question": "IAM", "answer": {"said": "x"}}, "there is no answer about EC2"),
        ({"answer": {"said": "x"}}, "there is no answer about EC2"),
        ({"question": "EC2", "failed": "CancelledError"}, "there was no answer about EC2"),
        ({"question": "EC2", "answer": {}}, "is malformed"),
        ({"question": "EC2", "answer": None}, "is malformed"),
    ],
)
async def test_what_was_not_answered_is_not_made_up(entry: Mapping[str, Any], why: str) -> None:
    with pytest.raises(AnswerNotRecorded, match=why):
        await ReplayedCalls([entry]).ask("EC2", nobody, FORM)
