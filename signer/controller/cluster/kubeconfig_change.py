"""Notices that the restricted kubeconfig of one workload cluster was made or renewed, and reconnects with it.

The controller does not watch Secrets. Without this, a new kubeconfig would be used from the next failure on. A deleted
one ends no connection: its credential is as good as before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from signer.controller.telemetry.metrics_collector import ServiceGauge
from signer.controller.workload_access import NoSecret, WorkloadAccessRefused, restricted_kubeconfig
from signer.kube.calls import Get
from signer.kube.client import Client
from signer.kube.connection import token_digest
from signer.model.cluster import ClusterKey
from signer.model.condition import PolicyCondition

_LOG = logging.getLogger(__name__)
READ_SECONDS: Final = 300.0
JITTER: Final = 0.2


class KubeconfigChange:
    """A :class:`~signer.controller.cluster.service.ClusterService` of one cluster."""

    name = "restricted kubeconfig"
    conditions: Sequence[PolicyCondition] = ()

    def __init__(self, key: ClusterKey, management: Get, *, reconnect: Callable[[], None], random: Random) -> None:
        self._key = key
        self._management = management
        self._reconnect = reconnect
        self._random = random

    def gauges(self) -> Sequence[ServiceGauge]:
        """None."""
        return ()

    def wake(self) -> None:
        """Nothing to do: the kubeconfig does not depend on the Cluster or its policy."""

    async def run(self, client: Client) -> None:
        """Compare from time to time."""
        while True:
            await asyncio.sleep(READ_SECONDS * self._random.uniform(1 - JITTER, 1 + JITTER))
            await self.look(client.token_digest)

    async def look(self, used: str) -> None:
        """Reconnect if the Secret has a token with another digest than ``used``. An unreadable one changes nothing."""
        try:
            found = await restricted_kubeconfig(self._management, self._key)
        except WorkloadAccessRefused:
            return
        if isinstance(found, NoSecret) or token_digest(found.connection.bearer_token) == used:
            return
        _LOG.info(
            "the restricted kubeconfig is new: the controller connects with it", extra={"cluster": str(self._key)}
        )
        self._reconnect()


__all__ = ["READ_SECONDS", "KubeconfigChange"]
