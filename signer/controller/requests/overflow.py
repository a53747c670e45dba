"""Requests of one cluster that were left out because there was no room: when they are listed, beside the watch."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from random import Random
from typing import Final, NoReturn

from signer.controller.requests.informer import RequestInformer
from signer.controller.requests.reachability import Reachability
from signer.controller.requests.relist import ListOvertaken
from signer.kube.backoff import Backoff
from signer.kube.calls import List
from signer.kube.errors import ApiError
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS

_LOG = logging.getLogger(__name__)
LIST_AGAIN: Final = Backoff(base_seconds=0.5, maximum_seconds=30.0, jitter=0.5)
"""Pauses between lists: each is a whole flood's, and a hostile server has floods without end."""
PROVEN_SECONDS: Final = 30.0
"""After a list that went well the next need not be paused for, where it comes so much later."""
LOOK_SECONDS: Final = 60.0
"""How often it is listed because the Machine of one of them may have come: that need not be so."""
PAGE_REQUESTS: Final = 100
"""In one page of a list: ten milliseconds of work, before others have the event loop; of a hostile server's, 0.2 s."""


class OverflowRelist:
    """Wishes for a list, and the lists."""

    def __init__(
        self, requests: RequestInformer, reachability: Reachability, *, random: Random, monotonic: Callable[[], float]
    ) -> None:
        """``monotonic`` is a clock, in seconds."""
        self._requests = requests
        self._reachability = reachability
        self._random = random
        self._monotonic = monotonic
        self._looked_at = float("-inf")
        self._may_be_known = False
        self._listing = False

    def may_be_known(self) -> None:
        """A Machine has changed: perhaps that of one that had to make way because nothing had its provider ID."""
        if self._requests.pending.leaves_out:
            self._may_be_known = True

    def look(self) -> None:
        """To be called now and then: list them where one may be known, seldom. While a list is read, it may have been
        passed already.
        """
        now = self._monotonic()
        if self._listing:
            return
        if self._may_be_known and now - self._looked_at >= LOOK_SECONDS:
            self._looked_at, self._may_be_known = now, False
            self._requests.relist_wanted.set()

    async def keep(self, client: List) -> NoReturn:
        """List when that is wanted, while the watch goes on. What fails is tried again."""
        attempt, ended, well = 0, float("-inf"), True
        while True:
            await self._requests.relist_wanted.wait()
            if not self._requests.pending.overflow:  # the watch has begun anew meanwhile, with a list
                self._requests.relist_wanted.clear()
                continue
            if well and self._monotonic() - ended >= PROVEN_SECONDS:
                attempt = 0
            well = await self._list(client)
            ended = self._monotonic()
            await asyncio.sleep(LIST_AGAIN.delay(attempt, self._random))
            attempt += 1

    async def _list(self, client: List) -> bool:
        """Whether it was listed to the end."""
        self._listing = True
        try:
            collection = CERTIFICATE_SIGNING_REQUESTS.collection()
            async with contextlib.aclosing(client.list_pages(collection, limit=PAGE_REQUESTS)) as pages:
                await self._requests.keep_overflow(pages)
        except (ApiError, ListOvertaken) as error:
            _LOG.info("requests that were left out cannot be listed", extra={"detail": str(error)})
            return False
        finally:
            self._listing = False
        if not self._requests.pending.has_room_again:
            self._requests.relist_wanted.clear()
        self._reachability.overflow_changed()
        return True
