"""Ends what a killed gateway has left in containers, when the next one starts in its place.

Kubernetes stops no process when its stream closes, and a gateway that is killed ends none. Other gateways serve the
same grants meanwhile, so only processes of this gateway's own place count. The place is host name and port: in
Kubernetes, the Pod's.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from signer.gateway.clusters import Clusters
from signer.gateway.commands import GatewayIdentity, leftovers_command
from signer.gateway.metrics import GatewayMetrics
from signer.gateway.opening import Closed, Opening
from signer.gateway.openings import Openings, Refused
from signer.gateway.person import PersonAPI
from signer.gateway.resolver import NotResolved, Resolver, RunningContainer
from signer.gateway.running import is_missing_program, run_to_its_end
from signer.gateway.streams import InvalidCommand
from signer.gateway.tools_starting import running_tools_container
from signer.kube.errors import ApiError
from signer.model.decision import printable

_LOG = logging.getLogger(__name__)
AT_ONCE: Final = 4
GRANT_SECONDS: Final = 60.0
"""For all containers of one grant."""
POLL_SECONDS: Final = 0.5
"""Until the gateway knows which grants are live."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Looks once, at the start."""

    openings: Openings
    clusters: Clusters
    resolver: Resolver
    metrics: GatewayMetrics
    identity: GatewayIdentity

    async def end(self) -> None:
        """Look in the containers of each live grant. What fails is logged and counted, and not tried again."""
        await self._wait_in_touch()
        places = asyncio.Semaphore(AT_ONCE)

        async def one(opening: Opening) -> None:
            async with places:
                await self._end_of_grant(opening)

        async with asyncio.TaskGroup() as tasks:
            for opening in self.openings.live():
                tasks.create_task(one(opening))

    async def _wait_in_touch(self) -> None:
        while True:
            try:
                self.openings.require_in_touch()
            except Refused:
                await asyncio.sleep(POLL_SECONDS)
            else:
                return

    async def _end_of_grant(self, opening: Opening) -> None:
        try:
            async with asyncio.timeout(GRANT_SECONDS), self.clusters.api(opening) as api:
                for container in await self.resolver.all_of(api, opening.container):
                    await self._end_in(api, opening, container)
        except NotResolved:
            return  # nothing runs there
        except (ApiError, Closed, InvalidCommand, TimeoutError, ValueError) as error:
            self.metrics.signals_failed.inc()
            _LOG.warning(
                "cannot look for processes that an earlier gateway has left",
                extra={
                    "cluster": str(opening.cluster),
                    "keyID": opening.key_id,
                    "error": printable(str(error)),
                },
            )

    async def _end_in(self, api: PersonAPI, opening: Opening, container: RunningContainer) -> None:
        """By the container's shell; without one, by that of the grant's tools container, which sees its processes."""
        words = leftovers_command(opening.uid, self.identity)
        if is_missing_program(await run_to_its_end(api, container, words)):
            tools = self.openings.connection_of(opening.cluster).tools
            await run_to_its_end(api, await running_tools_container(api, container, opening.uid, tools), words)


__all__ = ["Leftovers"]
