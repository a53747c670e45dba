"""Supervised tasks: a fault in one is logged, and the task starts again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from random import SystemRandom
from types import TracebackType
from typing import Final

from signer.kube.backoff import Backoff

_LOG = logging.getLogger(__name__)
RESTART: Final = Backoff(base_seconds=1.0, maximum_seconds=300.0, jitter=0.5)


def _ignore(name: str) -> None:
    """Ignore the fault."""


def is_task_ending(error: BaseException) -> bool:
    """Whether the current task raises ``error`` because it is to end: it is cancelled or closed, or the process is to
    end.

    Every other error is a fault, even if it is no ``Exception``: a panic of Rust code (PyO3's ``PanicException``), or
    the cancellation of another task. Call this in the task that raises.
    """
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        return True
    return isinstance(error, asyncio.CancelledError) and is_cancelled()


def is_cancelled() -> bool:
    """Whether the current task is cancelled, even if other code swallowed the cancellation and returned."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class isolated:  # noqa: N801 - used like contextlib.suppress
    """Passes a fault inside the block to ``failed`` and continues after the block. The end of the task or of the
    process is no fault.
    """

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Whether the error was a fault, and is suppressed."""
        if error is None or is_task_ending(error):
            return False
        self._failed(error)
        return True


async def until_wanted(wanted: asyncio.Event, seconds: float) -> None:
    """Wait for the event, for so long at most: between two passes of a reconciler."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await wanted.wait()


async def supervised(name: str, run: Callable[[], Awaitable[object]], failed: Callable[[str], None] = _ignore) -> None:
    """Run until it returns or is cancelled. After a fault, call ``failed`` and run it again, with growing delays."""
    attempt = 0
    while True:
        seconds = RESTART.delay(attempt, SystemRandom())
        with isolated(partial(_task_failed, name, failed, seconds)):
            await run()
            return
        attempt += 1
        await asyncio.sleep(seconds)


def _task_failed(name: str, failed: Callable[[str], None], seconds: float, error: BaseException) -> None:
    failed(name)
    _LOG.error("a task failed", exc_info=error, extra={"task": name, "retryInSeconds": round(seconds, 1)})
