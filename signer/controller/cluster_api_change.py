"""Cluster API is upgraded under a running controller: it starts again, and reads what is served by then.

Another version is another form of every object, and a collection that was not there is not watched. What a controller
holds in memory is gone with its process, so that nothing of it can be stale later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from signer.kube.discovery import DiscoveryCalls
from signer.kube.errors import ApiError
from signer.store.cluster_api import ClusterAPIVersion, discover_cluster_api

LOOK_SECONDS: Final = 60.0
LOOK_AGAIN_SECONDS: Final = 5.0
"""A second answer must say the same: while definitions are installed one comes after the other."""

_LOG = logging.getLogger(__name__)


class ClusterAPIChanged(Exception):
    """The management cluster serves another Cluster API than this process reads."""


async def cluster_api_change(
    client: DiscoveryCalls, version: ClusterAPIVersion, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> ClusterAPIVersion:
    """Wait until the management cluster has said twice in a row that it serves another one than ``version``.

    No answer, and that nothing is served, says nothing: definitions may be replaced, an API server may be starting.
    """
    told = version
    while True:
        await sleep(LOOK_SECONDS if told == version else LOOK_AGAIN_SECONDS)
        try:
            found = await discover_cluster_api(client)
        except ApiError as error:
            _LOG.debug("cannot ask which Cluster API is served", extra={"error": str(error)})
            told = version
            continue
        if found == told != version:
            return found
        told = found
