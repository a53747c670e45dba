"""The first question to the management cluster: asked again for seconds, so that one broken connection ends nothing.

A controller that ends instead is started again by the kubelet, but ever later (CrashLoopBackOff), and a replica that
has just been elected would give its Lease away for it.
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
BETWEEN: Final = Backoff(base_seconds=0.25, maximum_seconds=2.0, jitter=0.5)
"""1.9 to 3.8 seconds in all: an address that is wrong is said to be so soon."""
MOST_SECONDS: Final = 10.0
"""A server that asks for a longer pause (Retry-After) is left to the kubelet's patience."""

_LOG = logging.getLogger(__name__)


async def cluster_api(client: Get, stop: asyncio.Event, between: Backoff = BETWEEN) -> ClusterAPIVersion | None:
    """Which Cluster API the management cluster serves; None where ``stop`` was set before it said so.

    Raises:
        ApiError: it says no; or it still serves none (ResourceNotServed), or gives no answer, after :data:`ATTEMPTS`.
    """
    asking = asyncio.ensure_future(_asked(client, between))
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({asking, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return asking.result() if asking.done() else None
    finally:
        asking.cancel()
        stopped.cancel()
        await asyncio.gather(asking, stopped, return_exceptions=True)


async def _asked(client: Get, between: Backoff) -> ClusterAPIVersion:
    for attempt in range(ATTEMPTS - 1):
        try:
            return await discover_cluster_api(client)
        except (Unreachable, ServerError, TooManyRequests, ResourceNotServed) as error:
            asked = error.retry_after_seconds or 0.0 if isinstance(error, ServerError | TooManyRequests) else 0.0
            pause = max(between.delay(attempt, SystemRandom()), min(asked, MOST_SECONDS))
            _LOG.warning(
                "cannot ask the management cluster which Cluster API it serves",
                extra={"error": str(error), "retryInSeconds": round(pause, 1)},
            )
        await asyncio.sleep(pause)
    return await discover_cluster_api(client)
