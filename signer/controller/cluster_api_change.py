"""Ends the controller when Cluster API is upgraded, so that it restarts with the version that is then served.

Another version changes the form of every object, and a collection that did not exist before is not watched. A restart
drops everything in memory, so nothing can be stale afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from signer.kube.calls import Get
from signer.kube.errors import ApiError
from signer.store.cluster_api import ClusterAPIVersion, discover_cluster_api

CHECK_SECONDS: Final = 60.0
CONFIRM_SECONDS: Final = 5.0
"""A second discovery must agree: during an installation, definitions appear one after the other."""

_LOG = logging.getLogger(__name__)


class ClusterAPIChanged(Exception):
    """The management cluster serves another Cluster API version than this process reads."""


class ClusterAPIWatch:
    """Checks which Cluster API version the management cluster serves, and stops the controller when that changes."""

    def __init__(
        self,
        client: Get,
        version: ClusterAPIVersion,
        stop: asyncio.Event,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``version`` is the version that the controller reads; ``stop`` makes the replica finish and end."""
        self._client = client
        self._version = version
        self._stop = stop
        self._sleep = sleep
        self._served = version

    async def run(self) -> None:
        """Check until the management cluster has served another version twice in a row; then set ``stop``.

        A failed discovery and a missing Cluster API do not count: definitions may be being replaced, or the API server
        may be starting.
        """
        previous = self._version
        while True:
            await self._sleep(CHECK_SECONDS if previous == self._version else CONFIRM_SECONDS)
            served = await self._discover()
            if served == previous != self._version and not self._stop.is_set():
                self._served = served
                self._stop.set()
                return
            previous = served

    async def _discover(self) -> ClusterAPIVersion:
        try:
            return await discover_cluster_api(self._client)
        except ApiError as error:
            _LOG.debug("cannot discover which Cluster API is served", extra={"error": str(error)})
            return self._version

    def require_unchanged(self) -> None:
        """Report whether a change of version ended the controller.

        Raises:
            ClusterAPIChanged: the management cluster serves another version now.
        """
        if self._served != self._version:
            raise ClusterAPIChanged(f"the management cluster now serves {self._served} instead of {self._version}")
