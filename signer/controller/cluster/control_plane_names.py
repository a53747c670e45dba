"""Keeps the names that the objects of one cluster state for its API servers.

See :mod:`signer.model.kubeadm_names`. A fault of reading takes no name away. Until each object has been read once,
serving requests wait; after :data:`GIVE_UP_FAILURES` failed attempts they go on with what is known, so that an object
that cannot be read does not stop the cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import Final

from signer.controller.telemetry.metrics_collector import ServiceGauge
from signer.kube.backoff import Backoff
from signer.kube.calls import Get
from signer.kube.client import Client, JsonObject
from signer.kube.errors import ApiError, Forbidden, NotFound, ResourceNotServed
from signer.kube.resources import CONFIG_MAPS, KUBEADM_CONTROL_PLANES_V1BETA1, KUBEADM_CONTROL_PLANES_V1BETA2
from signer.model.cluster import ClusterKey
from signer.model.condition import CONTROL_PLANE_NAMES_READ, PolicyCondition
from signer.model.control_plane_names import ControlPlaneReport, NameSource
from signer.model.decision import printable
from signer.model.kubeadm_names import (
    MAXIMUM_STATED_NAMES,
    StatedNames,
    UnreadableConfiguration,
    names_in_config_map,
    names_in_control_plane,
)
from signer.rotation.control_plane.kind import KUBEADM_CONTROL_PLANE, ControlPlaneReference, control_plane_reference
from signer.store.caches import Caches

READ_SECONDS: Final = 1800.0
"""How often the objects are read again. A change of ``certSANs`` replaces the machines of the control plane, and the
certificates of the new ones show the names as well."""
RETRY: Final = Backoff(base_seconds=1.0, maximum_seconds=60.0, jitter=0.3)
GIVE_UP_FAILURES: Final = 10
"""With :data:`RETRY`, about six minutes."""
KUBEADM_CONFIG: Final = CONFIG_MAPS.object("kubeadm-config", "kube-system")


class _NotThere(Exception):
    """There is no such object."""


class ControlPlaneNames:
    """A :class:`~signer.controller.cluster.service.ClusterService` of one cluster."""

    name = "control plane names"

    def __init__(
        self,
        key: ClusterKey,
        management: Get,
        caches: Caches,
        *,
        status_changed: asyncio.Event,
        random: Random,
        monotonic: Callable[[], float],
    ) -> None:
        self._key = key
        self._management = management
        self._caches = caches
        self._status_changed = status_changed
        self._random = random
        self._monotonic = monotonic
        self._due = dict.fromkeys(NameSource, monotonic())
        self._failures = dict.fromkeys(NameSource, 0)
        self._lacking: dict[NameSource, str] = {}
        self._wakes: list[Callable[[], None]] = []
        self.report = ControlPlaneReport(awaited=frozenset(NameSource))

    def on_change(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` when serving requests wait for the objects no longer."""
        self._wakes.append(wake)

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """One condition, if an object cannot be read, or not all of it."""
        if not self._lacking:
            return ()
        lacking = "; ".join(f"{source.value}: {why}" for source, why in self._lacking.items())
        message = printable(
            "serving certificates are kept free of the names in the API servers' certificates, and of those that could "
            f"be read; not read: {lacking}"
        )
        return (PolicyCondition(CONTROL_PLANE_NAMES_READ, False, "NotRead", message),)

    def gauges(self) -> Sequence[ServiceGauge]:
        """None."""
        return ()

    def wake(self) -> None:
        """Nothing to do: the objects are read from time to time."""

    async def run(self, client: Client) -> None:
        """Read the objects at the first connection, and again from time to time."""
        reads: tuple[tuple[NameSource, Callable[[], Awaitable[StatedNames]]], ...] = (
            (NameSource.KUBEADM_CONTROL_PLANE, self._control_plane),
            (NameSource.KUBEADM_CONFIG, partial(_config_map, client)),
        )
        while True:
            awaited, lacking = self.report.awaited, dict(self._lacking)
            for source, read in reads:
                if self._due[source] <= self._monotonic():
                    await self._read(source, read)
            if lacking != self._lacking:
                self._status_changed.set()
            if awaited and not self.report.awaited:
                for wake in self._wakes:
                    wake()
            await asyncio.sleep(max(0.0, min(self._due.values()) - self._monotonic()))

    async def _read(self, source: NameSource, read: Callable[[], Awaitable[StatedNames]]) -> None:
        """Never raises ApiError."""
        failures = 0
        lacking = ""
        try:
            found = await read()
            self.report.stated(source, found.names)
            if found.left_out:
                lacking = f"{found.left_out} entries are no names, or beyond the first {MAXIMUM_STATED_NAMES}"
        except _NotThere:
            self.report.not_stated(source)
        except Forbidden as error:
            self.report.not_stated(source)
            lacking = f"a grant is missing: {error}"
        except UnreadableConfiguration as error:
            self.report.not_stated(source)
            lacking = str(error)
        except ApiError as error:
            failures = self._failures[source] + 1
            lacking = self._lacking.get(source, "")
            if failures >= GIVE_UP_FAILURES:
                self.report.not_stated(source)
                lacking = str(error)
        self._failures[source] = failures
        pause = RETRY.delay(failures - 1, self._random) if failures else READ_SECONDS
        self._due[source] = self._monotonic() + pause
        self._lacking.pop(source, None)
        if lacking:
            self._lacking[source] = lacking

    async def _control_plane(self) -> StatedNames:
        """Raises _NotThere or ApiError."""
        cached = self._caches.clusters.get(self._key.namespace, self._key.name)
        if cached is None or cached.control_plane_kind != KUBEADM_CONTROL_PLANE:
            raise _NotThere
        try:
            path = self._caches.version.clusters.object(self._key.name, self._key.namespace)
            reference = control_plane_reference(await self._management.get(path))
            if not isinstance(reference, ControlPlaneReference) or not reference.is_kubeadm:
                raise _NotThere
            return names_in_control_plane(await self._named(reference.name))
        except (NotFound, ResourceNotServed, ValueError) as error:  # the last: a name that no object has
            raise _NotThere from error

    async def _named(self, name: str) -> JsonObject:
        newest = KUBEADM_CONTROL_PLANES_V1BETA2.object(name, self._key.namespace)
        try:
            return await self._management.get(newest)
        except ResourceNotServed:
            return await self._management.get(KUBEADM_CONTROL_PLANES_V1BETA1.object(name, self._key.namespace))


async def _config_map(client: Get) -> StatedNames:
    """Raises _NotThere, UnreadableConfiguration or ApiError."""
    try:
        return names_in_config_map(await client.get(KUBEADM_CONFIG))
    except NotFound as error:
        raise _NotThere from error
