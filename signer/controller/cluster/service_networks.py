"""Keeps what one workload cluster reports about the networks of its Services."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from signer.controller.telemetry.metrics_collector import ServiceGauge
from signer.decision.reported_services import read_reported_services
from signer.kube.backoff import Backoff
from signer.kube.client import Client
from signer.kube.errors import ApiError
from signer.model.cluster import ClusterKey
from signer.model.condition import SERVICE_NETWORKS_KNOWN, PolicyCondition
from signer.model.service_networks import ServicesReport
from signer.store.caches import Caches

READ_SECONDS: Final = 600.0
"""How often they are read again: networks are added seldom, and by an administrator."""
UNKNOWN_SECONDS: Final = 60.0
"""The same while nothing is known, because a grant is missing."""
RETRY: Final = Backoff(base_seconds=1.0, maximum_seconds=60.0, jitter=0.3)
"""After failed reads. The workload cluster's reachability is reported elsewhere."""
HINT: Final = "state them in spec.clusterNetwork.services.cidrBlocks"


class ServiceNetworks:
    """A :class:`~signer.controller.cluster.service.ClusterService` of one cluster."""

    name = "service networks"

    def __init__(self, key: ClusterKey, caches: Caches, *, status_changed: asyncio.Event, random: Random) -> None:
        self._key = key
        self._random = random
        self._failures = 0
        self._caches = caches
        self._status_changed = status_changed
        self._wakes: list[Callable[[], None]] = []
        self._was_read = False
        self.report = ServicesReport()
        """A failed read does not change it."""

    def on_change(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` when the report has changed: requests may wait for it."""
        self._wakes.append(wake)

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """One condition, if the Cluster states no network of Services."""
        cluster = self._caches.clusters.get(self._key.namespace, self._key.name)
        if cluster is None or cluster.service_networks:
            return ()
        if self.report.reported.known_versions:
            networks = ", ".join(map(str, self.report.reported.networks))
            message = f"the Cluster states no networks of Services; the workload cluster reports {networks}"
            return (PolicyCondition(SERVICE_NETWORKS_KNOWN, True, "Reported", message),)
        message = (
            "neither the Cluster nor the workload cluster says which networks its Services have, so serving requests "
            f"with IP addresses wait: {HINT} of the Cluster"
        )
        return (PolicyCondition(SERVICE_NETWORKS_KNOWN, False if self._was_read else None, "Unknown", message),)

    def gauges(self) -> Sequence[ServiceGauge]:
        """None."""
        return ()

    def wake(self) -> None:
        """Nothing to do: the report does not depend on the Cluster or its policy."""

    async def run(self, client: Client) -> None:
        """Read the report at each connection, and again from time to time."""
        while True:
            try:
                reported = await read_reported_services(client)
            except ApiError:
                await asyncio.sleep(RETRY.delay(self._failures, self._random))
                self._failures += 1
                continue
            self._failures = 0
            changed = reported != self.report.reported
            if changed or not self._was_read:
                self.report.reported, self._was_read = reported, True
                self._status_changed.set()
            if changed:
                for wake in self._wakes:
                    wake()
            await asyncio.sleep(READ_SECONDS if self.report.reported.known_versions else UNKNOWN_SECONDS)
