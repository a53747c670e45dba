"""The workers of one cluster: as many as there is work for, up to a limit."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Self

OWN_WORKERS: Final = 8
"""Of each cluster, for which nobody has to ask."""
SHARED_WORKERS: Final = 64
"""Of all clusters together, beyond what each has for itself. Each may hold a request and an answer of a hostile API
server, and waits for a connection to the management cluster, for which there are as many."""

_LOG = logging.getLogger(__name__)


class SharedWorkerPool:
    """Workers beyond those that each cluster has for itself, shared by clusters."""

    def __init__(self, left: int = SHARED_WORKERS) -> None:
        self.left = left

    @classmethod
    def for_limit(cls, workers_per_cluster: int) -> Self:
        """At least as many as one cluster alone may have by the operator's word."""
        return cls(max(SHARED_WORKERS, workers_per_cluster - OWN_WORKERS))


class Workers:
    """Tasks that do the same work, over one connection.

    One that ends by itself found nothing to do, or no more work to come. All see the context variables of whoever made
    this object, whoever calls for them: what is logged and counted names their cluster.
    """

    def __init__(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        *,
        limit: int,
        name: str,
        is_wanted: Callable[[], bool] = lambda: False,
        worker_pool: SharedWorkerPool | None = None,
    ) -> None:
        """``limit``: how many there are at most. ``name``: of each task. ``is_wanted``: asked when one has ended,
        whether there is work that nobody else takes. Beyond ``OWN_WORKERS`` there are more while ``worker_pool`` has
        some.
        """
        self._work = work
        self._limit = limit
        self._name = name
        self._is_wanted = is_wanted
        self._worker_pool = worker_pool if worker_pool is not None else SharedWorkerPool()
        self._context = contextvars.copy_context()
        self._tasks: dict[asyncio.Task[None], None] = {}
        """In the order in which they were called, in which they are ended, too."""
        self._held = 0
        """Of the crew."""
        self._ended = False

    def __len__(self) -> int:
        """How many there are now."""
        return len(self._tasks)

    def call(self, count: int = 1) -> None:
        """There is work for so many more of them; beyond the limit it waits for those that there are."""
        while count > 0 and self._may_be_more():
            task = asyncio.create_task(self._work(), name=self._name, context=self._context.copy())
            self._tasks[task] = None
            self._hold()
            task.add_done_callback(self._leave)
            count -= 1

    async def finished(self) -> None:
        """Wait until each has ended by itself: there is no more work to come."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def end(self) -> None:
        """End all of them, wherever they are, and wait for that. None is called any more."""
        self._ended = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _may_be_more(self) -> bool:
        count = len(self._tasks)
        return not self._ended and count < self._limit and (count < OWN_WORKERS or self._worker_pool.left > 0)

    def _hold(self) -> None:
        more = max(0, len(self._tasks) - OWN_WORKERS) - self._held
        self._worker_pool.left -= more
        self._held += more

    def _leave(self, task: asyncio.Task[None]) -> None:
        """It has ended. Whoever was called for meanwhile found its place still taken."""
        self._tasks.pop(task, None)
        self._hold()
        if not task.cancelled() and (fault := task.exception()) is not None:
            _LOG.error("a worker failed", exc_info=fault, extra={"task": self._name})
        if self._is_wanted():
            self.call()
