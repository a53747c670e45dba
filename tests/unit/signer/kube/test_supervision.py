"""A failing background task is restarted, and never ends the decisions."""

from __future__ import annotations

import asyncio
import logging

import pytest

from signer.kube import supervision
from signer.kube.backoff import Backoff
from signer.kube.supervision import isolated, supervised


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "RESTART", Backoff(base_seconds=0.001, maximum_seconds=0.002, jitter=0.5))


async def test_a_failed_task_is_restarted_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    runs = 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise RuntimeError("defect")

    with caplog.at_level(logging.ERROR):
        await supervised("upkeep", run)
    assert runs == 3
    assert [(record.task, record.exc_info is not None) for record in caplog.records if hasattr(record, "task")] == [
        ("upkeep", True),
        ("upkeep", True),
    ]


class Panic(BaseException):
    """As of Rust code."""


async def test_an_error_that_is_no_exception_is_a_fault() -> None:
    faults, told = [Panic(), asyncio.CancelledError()], list[str]()

    async def run() -> None:
        if faults:
            raise faults.pop()

    await supervised("upkeep", run, told.append)
    assert told == ["upkeep", "upkeep"]


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_the_end_of_the_process_is_no_fault(end: type[BaseException]) -> None:
    async def run() -> None:
        raise end

    with pytest.raises(end):
        supervised("upkeep", run).send(None)


async def test_several_faults_at_once_are_a_fault() -> None:
    """A task group raises them together."""
    runs = 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise ExceptionGroup("two", [RuntimeError("one"), ValueError("other")])

    await supervised("restoration", run)
    assert runs == 2


async def test_cancelled_is_cancelled() -> None:
    begun = asyncio.Event()

    async def run() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(supervised("events", run))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_fault_inside_is_reported_and_the_code_after_it_runs() -> None:
    faults = [RuntimeError("defect"), Panic(), asyncio.CancelledError()]
    told: list[BaseException] = []
    for fault in faults:
        with isolated(told.append):
            raise fault
    with isolated(told.append):
        pass
    assert told == faults


async def test_a_cancelled_task_ends_all_the_same() -> None:
    told: list[BaseException] = []

    async def run() -> None:
        with isolated(told.append):
            await asyncio.sleep(60)

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == []
