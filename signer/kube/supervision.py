"""Tasks without which decisions can be made: a defect in one of them is logged, and it begins anew."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from random import SystemRandom
from types import TracebackType
from typing import Final

from signer.kube.backoff import Backoff

_LOG = logging.getLogger(__name__)
RESTART: Final = Backoff(base_seconds=1.0, maximum_seconds=300.0, jitter=0.5)


def _nobody(name: str) -> None:
    """Nobody counts."""


def was_told_to_end(error: BaseException) -> bool:
    """Whether the task that raises this is to end: it is cancelled or closed, or the process is to end.

    Everything else is a fault, also where it is no ``Exception``: what Rust code panics with is not (PyO3's
    ``PanicException``), nor is a cancellation that was another task's. To be called in that task.
    """
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
        return True
    return isinstance(error, asyncio.CancelledError) and is_told_to_end()


def is_told_to_end() -> bool:
    """Whether the task that asks is cancelled: also where code of others has kept that to itself, and returned."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class isolated:  # noqa: N801 - used like contextlib.suppress
    """A fault inside goes to ``failed``, and what follows the block goes on; the end of the task, or of the process, is
    no fault."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Whether the fault was told and ends here."""
        if error is None or was_told_to_end(error):
            return False
        self._failed(error)
        return True


async def supervised(name: str, run: Callable[[], Awaitable[object]], failed: Callable[[str], None] = _nobody) -> None:
    """Run until it returns or is cancelled; after a fault, which ``failed`` is told of, again, with growing pauses."""
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
