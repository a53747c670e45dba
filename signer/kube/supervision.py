"""Tasks without which decisions can be made: a defect in one of them is logged, and it begins anew."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import SystemRandom
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


async def supervised(name: str, run: Callable[[], Awaitable[object]], failed: Callable[[str], None] = _nobody) -> None:
    """Run until it returns or is cancelled; after a fault, which ``failed`` is told of, again, with growing pauses."""
    attempt = 0
    while True:
        try:
            await run()
            return
        except BaseException as error:  # isolation: upkeep's defect must not end decisions
            if was_told_to_end(error):
                raise
            failed(name)
            seconds = RESTART.delay(attempt, SystemRandom())
            _LOG.error("a task failed", exc_info=error, extra={"task": name, "retryInSeconds": round(seconds, 1)})
        attempt += 1
        await asyncio.sleep(seconds)
