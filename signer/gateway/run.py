"""Composes the gateway and runs it as one coroutine."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from signer.controller.diagnostics.health import Check, Report
from signer.gateway.clusters import Clusters
from signer.gateway.commands import GatewayIdentity
from signer.gateway.leftovers import Leftovers
from signer.gateway.limits import Connections, Limits
from signer.gateway.metrics import GatewayMetrics
from signer.gateway.openings import Openings, Refused
from signer.gateway.resolver import KubernetesResolver, Resolver
from signer.gateway.ssh.host_keys import HostKeys
from signer.gateway.ssh.listener import listening
from signer.gateway.ssh.server import Parts
from signer.gateway.websocket import WebSocketSession
from signer.kube.client import Client, JsonObject
from signer.kube.errors import ApiError
from signer.kube.resources import ACCESS_GRANTS, SECRETS
from signer.kube.supervision import supervised
from signer.kube.watch import list_and_watch
from signer.model.fields import mapping_of
from signer.model.gateway_connection import GATEWAY_CONNECTION_TYPE

_LOG = logging.getLogger(__name__)
DRAIN_SECONDS: Final = 10.0
"""For what ends the processes of connections, when the gateway stops."""


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """Dependencies that are not part of the command line."""

    limits: Limits = field(default_factory=Limits)
    metrics: GatewayMetrics = field(default_factory=GatewayMetrics)
    resolver: Resolver = field(default_factory=KubernetesResolver)
    now: Callable[[], datetime] = field(default=partial(datetime.now, UTC))
    monotonic: Callable[[], float] = time.monotonic


class GatewayLog:
    """Implements :class:`~signer.gateway.openings.Log`."""

    def connection_refused(self, name: str, error: str) -> None:
        """See Log."""
        _LOG.warning("a Secret is no connection to a Cluster", extra={"object": name, "error": error})

    def watch_failed(self, what: str, error: ApiError, retry_in_seconds: float) -> None:
        """See Log."""
        _LOG.warning(
            "cannot watch",
            extra={"resource": what, "error": str(error), "retryInSeconds": round(retry_in_seconds, 1)},
        )


class GatewayHealth:
    """The gateway is ready while it knows what is open."""

    def __init__(self) -> None:
        self._openings: Openings | None = None

    def watch(self, openings: Openings) -> None:
        """From now on, those."""
        self._openings = openings

    def alive(self) -> Report:
        """``/healthz``."""
        return Report("healthz", (Check("ping"),))

    def ready(self) -> Report:
        """``/readyz``."""
        fault = "starting"
        if self._openings is not None:
            try:
                self._openings.require_in_touch()
                fault = ""
            except Refused as refused:
                fault = refused.message
        return Report("readyz", (Check("ping"), Check("openings", fault)))


async def run_gateway(
    client: Client,
    namespace: str,
    listen: tuple[str, int],
    host_keys: HostKeys,
    *,
    stop: asyncio.Event,
    options: GatewayOptions | None = None,
    health: GatewayHealth | None = None,
    started: Callable[[tuple[str, int]], None] = lambda address: None,
) -> None:
    """Run until ``stop`` is set. ``namespace`` has the connections to Clusters. ``started`` gets the address.

    Raises:
        CannotListen: the address cannot be listened at.
    """
    options = options if options is not None else GatewayOptions()
    metrics = options.metrics
    openings = Openings(now=options.now, monotonic=options.monotonic, log=GatewayLog())
    metrics.in_touch.set_function(partial(_in_touch, openings))
    if health is not None:
        health.watch(openings)
    secrets = {"fieldSelector": f"type={GATEWAY_CONNECTION_TYPE}"}
    identity = GatewayIdentity.of(f"{socket.gethostname()}:{listen[1]}")
    async with WebSocketSession() as session:
        parts = Parts(
            openings=openings,
            clusters=Clusters(openings, session),
            resolver=options.resolver,
            metrics=metrics,
            now=options.now,
            limits=options.limits,
            connections=Connections(options.limits),
            identity=identity,
        )
        watches = (
            (
                "grants",
                partial(
                    list_and_watch, client, ACCESS_GRANTS.collection(), sink=openings.grants, keep=_is_of_container
                ),
            ),
            (
                "connections",
                partial(
                    list_and_watch, client, SECRETS.collection(namespace), sink=openings.connections, params=secrets
                ),
            ),
        )
        left = Leftovers(openings, parts.clusters, options.resolver, metrics, identity)
        works = (*watches, ("leftovers", left.end))
        tasks = [asyncio.create_task(supervised(name, run, metrics.task_failed), name=name) for name, run in works]
        try:
            async with listening(parts, listen, host_keys) as address:
                _LOG.info("started", extra={"address": f"{address[0]}:{address[1]}"})
                started(address)
                await stop.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if parts.tasks:
                await asyncio.wait(parts.tasks, timeout=DRAIN_SECONDS)
    _LOG.info("stopped")


def _in_touch(openings: Openings) -> float:
    try:
        openings.require_in_touch()
    except Refused:
        return 0.0
    return 1.0


def _is_of_container(item: JsonObject) -> bool:
    """Grants for nodes are not held."""
    target: Any = mapping_of(mapping_of(item, "spec"), "target")
    return "container" in target


__all__ = ["GatewayHealth", "GatewayLog", "GatewayOptions", "run_gateway"]
