"""Relists the overflowed requests of one cluster while its watch continues."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from random import Random
from typing import Final, NoReturn

from signer.controller.requests.informer import ListOvertaken, RequestInformer
from signer.controller.requests.reachability import Reachability
from signer.kube.backoff import Backoff
from signer.kube.calls import List
from signer.kube.errors import ApiError
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS

_LOG = logging.getLogger(__name__)
RELIST_BACKOFF: Final = Backoff(base_seconds=0.5, maximum_seconds=30.0, jitter=0.5)
"""Pauses between relists: each reads a whole flood, and a hostile server can keep a flood going."""
STABLE_SECONDS: Final = 30.0
"""This long after a successful relist, the backoff starts again."""
MACHINE_RELIST_SECONDS: Final = 60.0
"""Minimum interval between relists on account of changed Machines, which may not concern overflowed requests."""
PAGE_REQUESTS: Final = 100
"""Requests per page: 10 ms of work without yielding the event loop; 0.2 s with a hostile server's page."""


class OverflowRelist:
    """Decides when to relist, and does it."""

    def __init__(
        self, requests: RequestInformer, reachability: Reachability, *, random: Random, monotonic: Callable[[], float]
    ) -> None:
        """``monotonic`` is a clock, in seconds."""
        self._requests = requests
        self._reachability = reachability
        self._random = random
        self._monotonic = monotonic
        self._requested_at = float("-inf")
        self._machine_changed = False
        self._listing = False

    def machine_changed(self) -> None:
        """A Machine has changed: it may belong to a request that was evicted because no Machine had its provider ID."""
        if self._requests.pending.has_overflow:
            self._machine_changed = True

    def check(self) -> None:
        """Request a relist if a Machine has changed and the interval has passed; called periodically.

        While a relist is running, the request may already have been passed, so the change stays noted.
        """
        now = self._monotonic()
        if self._listing:
            return
        if self._machine_changed and now - self._requested_at >= MACHINE_RELIST_SECONDS:
            self._requested_at, self._machine_changed = now, False
            self._requests.relist_needed.set()

    async def run(self, client: List) -> NoReturn:
        """Relist on demand while the watch continues, and retry failures with backoff."""
        attempt, ended, succeeded = 0, float("-inf"), True
        while True:
            await self._requests.relist_needed.wait()
            if not self._requests.pending.overflow:  # the watch restarted meanwhile, with its own list
                self._requests.relist_needed.clear()
                continue
            if succeeded and self._monotonic() - ended >= STABLE_SECONDS:
                attempt = 0
            succeeded = await self._list(client)
            ended = self._monotonic()
            await asyncio.sleep(RELIST_BACKOFF.delay(attempt, self._random))
            attempt += 1

    async def _list(self, client: List) -> bool:
        """Whether the list was read to its end."""
        self._listing = True
        try:
            collection = CERTIFICATE_SIGNING_REQUESTS.collection()
            async with contextlib.aclosing(client.list_pages(collection, limit=PAGE_REQUESTS)) as pages:
                await self._requests.add_overflow(pages)
        except (ApiError, ListOvertaken) as error:
            _LOG.info("cannot relist overflowed requests", extra={"detail": str(error)})
            return False
        finally:
            self._listing = False
        if not self._requests.pending.can_relist:
            self._requests.relist_needed.clear()
        self._reachability.overflow_changed()
        return True
