"""Waits for the management cluster at startup: retries for seconds, so that a broken connection ends nothing.

If the process ended instead, the kubelet would restart it with growing delays (CrashLoopBackOff), and a newly elected
replica would lose its Lease.
"""

from __future__ import annotations

import asyncio
import logging
from random import SystemRandom
from typing import Final

from signer.kube.backoff import Backoff
from signer.kube.calls import Get
from signer.kube.errors import ResourceNotServed, ServerError, TooManyRequests, Unreachable
from signer.store.cluster_api import ClusterAPIVersion, discover_cluster_api

ATTEMPTS: Final = 5
RETRY_BACKOFF: Final = Backoff(base_seconds=0.25, maximum_seconds=2.0, jitter=0.5)
"""1.9 to 3.8 seconds in total, so that a wrong address is reported soon."""
MAXIMUM_RETRY_AFTER_SECONDS: Final = 10.0
"""Upper bound for ``Retry-After``. If the server needs longer, the kubelet restarts the process."""

_LOG = logging.getLogger(__name__)


async def cluster_api(client: Get, stop: asyncio.Event, backoff: Backoff = RETRY_BACKOFF) -> ClusterAPIVersion | None:
    """The Cluster API version that the management cluster serves; None if ``stop`` was set first.

    Raises:
        ApiError: the API server refuses; or after :data:`ATTEMPTS` it still serves no Cluster API (ResourceNotServed)
            or does not respond.
    """
    discovery = asyncio.ensure_future(_discover(client, backoff))
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({discovery, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return discovery.result() if discovery.done() else None
    finally:
        discovery.cancel()
        stopped.cancel()
        await asyncio.gather(discovery, stopped, return_exceptions=True)


async def _discover(client: Get, backoff: Backoff) -> ClusterAPIVersion:
    for attempt in range(ATTEMPTS - 1):
        try:
            return await discover_cluster_api(client)
        except (Unreachable, ServerError, TooManyRequests, ResourceNotServed) as error:
            retry_after = error.retry_after_seconds or 0.0 if isinstance(error, ServerError | TooManyRequests) else 0.0
            pause = max(backoff.delay(attempt, SystemRandom()), min(retry_after, MAXIMUM_RETRY_AFTER_SECONDS))
            _LOG.warning(
                "cannot ask the management cluster which Cluster API it serves",
                extra={"error": str(error), "retryInSeconds": round(pause, 1)},
            )
        await asyncio.sleep(pause)
    return await discover_cluster_api(client)
