"""The workers of one cluster: started on demand, up to a limit."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Self

OWN_WORKERS: Final = 8
"""Workers reserved for each cluster."""
SHARED_WORKERS: Final = 64
"""Workers that all clusters share beyond their reserved ones. Each may hold a request and a response of a hostile API
server, and needs a connection to the management cluster; the connection limit is the same number."""

_LOG = logging.getLogger(__name__)


class SharedWorkerPool:
    """Workers that clusters share beyond their reserved ones."""

    def __init__(self, available: int = SHARED_WORKERS) -> None:
        self.available = available

    @classmethod
    def for_limit(cls, workers_per_cluster: int) -> Self:
        """A pool large enough for one cluster to reach the operator's limit."""
        return cls(max(SHARED_WORKERS, workers_per_cluster - OWN_WORKERS))


class Workers:
    """Tasks that do the same work, over one connection.

    A worker ends by itself when it finds no work. All workers run in the context in which this object was created, so
    that log lines and metrics name its cluster, regardless of which task starts them.
    """

    def __init__(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        *,
        limit: int,
        name: str,
        needs_worker: Callable[[], bool] = lambda: False,
        worker_pool: SharedWorkerPool | None = None,
    ) -> None:
        """``limit`` is the maximum number of workers, and ``name`` the name of each task.

        ``needs_worker`` is called when a worker has ended: whether there is work that no other worker takes. Workers
        beyond ``OWN_WORKERS`` come from ``worker_pool``.
        """
        self._work = work
        self._limit = limit
        self._name = name
        self._needs_worker = needs_worker
        self._worker_pool = worker_pool if worker_pool is not None else SharedWorkerPool()
        self._context = contextvars.copy_context()
        self._tasks: dict[asyncio.Task[None], None] = {}
        """In the order in which they were started, which is also the order in which they are cancelled."""
        self._borrowed = 0
        """Workers taken from the pool."""
        self._ended = False

    def __len__(self) -> int:
        """The number of running workers."""
        return len(self._tasks)

    def start(self, count: int = 1) -> None:
        """Start ``count`` more workers, up to the limit; further work waits for the running ones."""
        while count > 0 and self._may_start():
            task = asyncio.create_task(self._work(), name=self._name, context=self._context.copy())
            self._tasks[task] = None
            self._update_borrowed()
            task.add_done_callback(self._task_ended)
            count -= 1

    async def finished(self) -> None:
        """Wait until every worker has ended by itself."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def end(self) -> None:
        """Cancel all workers and wait for them. No worker starts afterwards."""
        self._ended = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _may_start(self) -> bool:
        count = len(self._tasks)
        return not self._ended and count < self._limit and (count < OWN_WORKERS or self._worker_pool.available > 0)

    def _update_borrowed(self) -> None:
        more = max(0, len(self._tasks) - OWN_WORKERS) - self._borrowed
        self._worker_pool.available -= more
        self._borrowed += more

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """Free the worker's slot. A start that found no slot meanwhile is made up for here."""
        self._tasks.pop(task, None)
        self._update_borrowed()
        if not task.cancelled() and (fault := task.exception()) is not None:
            _LOG.error("a worker failed", exc_info=fault, extra={"task": self._name})
        if self._needs_worker():
            self.start()
