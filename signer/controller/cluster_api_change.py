"""Cluster API is upgraded under a running controller: it starts again, and reads what is served by then.

Another version is another form of every object, and a collection that was not there is not watched. What a controller
holds in memory is gone with its process, so that nothing of it can be stale later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from signer.kube.calls import Get
from signer.kube.errors import ApiError
from signer.store.cluster_api import ClusterAPIVersion, discover_cluster_api

LOOK_SECONDS: Final = 60.0
LOOK_AGAIN_SECONDS: Final = 5.0
"""A second answer must say the same: while definitions are installed one comes after the other."""

_LOG = logging.getLogger(__name__)


class ClusterAPIChanged(Exception):
    """The management cluster serves another Cluster API than this process reads."""


class ClusterAPIWatch:
    """Follows which Cluster API the management cluster serves, and ends the controller where that changes."""

    def __init__(
        self,
        client: Get,
        version: ClusterAPIVersion,
        stop: asyncio.Event,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``version`` is what the controller reads; ``stop`` makes all of the replica finish what is under way."""
        self._client = client
        self._version = version
        self._stop = stop
        self._sleep = sleep
        self._served = version

    async def run(self) -> None:
        """Ask until the management cluster has said twice in a row that it serves another one; then set ``stop``.

        No answer, and that nothing is served, says nothing: definitions may be replaced, an API server may be starting.
        """
        told = self._version
        while True:
            await self._sleep(LOOK_SECONDS if told == self._version else LOOK_AGAIN_SECONDS)
            found = await self._found()
            if found == told != self._version and not self._stop.is_set():
                self._served = found
                self._stop.set()
                return
            told = found

    async def _found(self) -> ClusterAPIVersion:
        try:
            return await discover_cluster_api(self._client)
        except ApiError as error:
            _LOG.debug("cannot ask which Cluster API is served", extra={"error": str(error)})
            return self._version

    def require_unchanged(self) -> None:
        """Say why the controller was ended, if it was for this.

        Raises:
            ClusterAPIChanged: another one is served by now.
        """
        if self._served != self._version:
            raise ClusterAPIChanged(f"the management cluster serves {self._served} by now, and not {self._version}")
