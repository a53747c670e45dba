"""The sweep: resources of bastions whose objects are gone.

A finalizer keeps each object until its resources are gone, so there is nothing to sweep, unless somebody removed a
finalizer, restored an old copy of the API server, or took a provider out of the configuration meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from node_access.bastions.contract import (
    BastionResources,
    Deadline,
    Deleted,
    InvalidSettings,
    OwnedResources,
    ProviderUnavailable,
    Scope,
)
from signer.bastions.configuration import BastionConfiguration
from signer.bastions.metrics import BastionMetrics
from signer.bastions.providers import NotAllowed, ProviderFailed, Providers
from signer.bastions.reconciler import EventSink
from signer.kube.calls import List
from signer.kube.errors import ApiError
from signer.kube.resources import BASTIONS
from signer.model.fields import mapping_of, text_of

_LOG = logging.getLogger(__name__)
MINIMUM_AGE: Final = timedelta(minutes=15)
"""A younger resource may be of a Bastion that another replica, or a slow API server, is about to show."""
_MAXIMUM_AT_ONCE: Final = 200
"""Of one sweep: should every object be gone by mistake, somebody has time to notice."""


class Sweep:
    """Looks through every provider's resources from time to time."""

    def __init__(
        self,
        client: List,
        configuration: BastionConfiguration,
        providers: Providers,
        metrics: BastionMetrics,
        events: EventSink,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._configuration = configuration
        self._providers = providers
        self._metrics = metrics
        self._events = events
        self._sleep = sleep

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await self.once()
            await self._sleep(self._configuration.sweep_every.total_seconds())

    async def once(self) -> None:
        """One sweep of every provider. A fault of one is in no way of the others."""
        for name in sorted(self._configuration.providers):
            try:
                await self._provider(name)
            except (ApiError, NotAllowed, InvalidSettings, ProviderUnavailable, ProviderFailed) as error:
                self._metrics.sweeps.labels(name, "failed").inc()
                _LOG.warning("a sweep failed", extra={"bastionProvider": name, "detail": str(error)})
            else:
                self._metrics.sweeps.labels(name, "succeeded").inc()

    async def _provider(self, name: str) -> None:
        for resources in self._providers.all_of(name):
            owned = await self._list(name, resources)
            # The resources first, the objects afterwards: an object is there before its first resource.
            live = await self._live() if owned else frozenset()
            leaked = [one for one in owned if one.reference.uid not in live and one.age >= MINIMUM_AGE]
            for one in leaked[:_MAXIMUM_AT_ONCE]:
                await self._remove(name, resources, one)

    async def _list(self, name: str, resources: BastionResources) -> tuple[OwnedResources, ...]:
        scope: Scope = self._configuration.scope

        def listed(deadline: Deadline) -> tuple[OwnedResources, ...]:
            return resources.list(scope, deadline)

        return await self._providers.call(name, "list", listed)

    async def _live(self) -> frozenset[str]:
        found: set[str] = set()
        async for page in self._client.list_pages(BASTIONS.collection()):
            found |= {text_of(mapping_of(item, "metadata"), "uid") for item in page["items"] if isinstance(item, dict)}
        return frozenset(found)

    async def _remove(self, name: str, resources: BastionResources, leaked: OwnedResources) -> None:
        def delete(deadline: Deadline) -> Deleted:
            return resources.delete(leaked.reference, deadline)

        await self._providers.call(name, "delete", delete)
        self._metrics.leaked.labels(name).inc()
        reference = leaked.reference
        what = ", ".join(leaked.resources)
        _LOG.warning(
            "resources of a bastion without an object are deleted",
            extra={"bastionProvider": name, "namespace": reference.namespace, "object": reference.name, "detail": what},
        )
        manifest = {
            "apiVersion": BASTIONS.api_version,
            "kind": "Bastion",
            "metadata": {"namespace": reference.namespace, "name": reference.name, "uid": reference.uid},
        }
        self._events.record(manifest, "BastionLeaked", f"Deleted without an object: {what}")
