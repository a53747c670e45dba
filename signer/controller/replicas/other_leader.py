"""Has a controller that runs without leader election wait while another one leads.

Both would decide correctly (``tests/integration/test_races.py``), but do all work twice. So such a controller is most
likely a mistake, which this module makes visible.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from signer.configuration import NoLeaderElection
from signer.controller.replicas.leadership import new_identity
from signer.kube.calls import Get
from signer.kube.errors import ApiError, NotFound
from signer.kube.resources import LEASES
from signer.model.decision import printable
from signer.model.lease import ElectionTimes, InvalidLease, parse_lease
from signer.rules.leadership import Election, Wait

_LOG = logging.getLogger(__name__)
_NEVER_WRITTEN: Final = datetime(1970, 1, 1, tzinfo=UTC)


class OtherLeader:
    """Another controller's Lease, as this one reads it. It writes nothing."""

    def __init__(
        self,
        calls: Get,
        namespace: str,
        settings: NoLeaderElection,
        *,
        monotonic: Callable[[], float],
        noticed: Callable[[], None],
    ) -> None:
        """``noticed`` is called for each leader that is seen."""
        self._calls = calls
        self._lease = f"{namespace}/{settings.lease_name}"
        self._path = LEASES.object(settings.lease_name, namespace)
        self._retry_seconds = settings.retry_period.total_seconds()
        self._monotonic = monotonic
        self._noticed = noticed
        self._holder = ""

    @property
    def leads(self) -> bool:
        """Whether another controller held the Lease at the last read."""
        return bool(self._holder)

    async def until_gone(self) -> None:
        """Return when no other controller leads: the Lease is free, missing, or unchanged for its duration.

        If the first read fails, it returns: no decision depends on the Lease.
        """
        election = Election(new_identity(), ElectionTimes())
        while True:
            try:
                lease = parse_lease(await self._calls.get(self._path))
            except NotFound:
                break
            except (ApiError, InvalidLease) as error:
                if not self._holder:
                    _LOG.warning(
                        "cannot read whether another controller leads",
                        extra={"lease": self._lease, "error": str(error)},
                    )
                    return
                await asyncio.sleep(self._retry_seconds)
                continue
            now = self._monotonic()
            election = election.read(lease, now)
            if not lease.holding.holder or not isinstance(election.turn(now, _NEVER_WRITTEN), Wait):
                break
            self._note(lease.holding.holder)
            await asyncio.sleep(self._retry_seconds)
        if self._holder:
            _LOG.info("the other controller leads no more", extra={"lease": self._lease})
            self._holder = ""

    def _note(self, holder: str) -> None:
        if holder != self._holder:
            self._holder = holder
            self._noticed()
            _LOG.warning(
                "standing by: another controller leads, and this one runs without --leader-elect",
                extra={
                    "lease": self._lease,
                    "flag": "--leader-elect",
                    "detail": f"led by {printable(holder)}; give --leader-elect, or --leader-elect-resource-name if "
                    "this controller serves other Clusters; it goes on when that Lease is released or expires",
                },
            )
