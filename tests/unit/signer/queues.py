"""Waiting for a work queue."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import TypeVar

from signer.kube.workqueue import WorkQueue

Key = TypeVar("Key", bound=Hashable)


async def idle(queue: WorkQueue[Key]) -> None:
    """Wait until no key is ready and none is with a worker (delayed keys do not count)."""
    while len(queue) or queue.processing:  # noqa: ASYNC110 - nothing else wants to know, so the queue tells nobody
        await asyncio.sleep(0.001)
