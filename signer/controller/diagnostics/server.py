"""``/metrics``, ``/healthz`` and ``/readyz``, under Cluster API's flags.

``--diagnostics-address`` serves metrics over HTTPS to clients that the management cluster authorizes to get
``/metrics``; with ``--insecure-diagnostics`` it serves everything over plain HTTP without authorization.
``--health-addr`` serves health without authorization: a probing kubelet has no token, and health is not secret.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Final, Protocol

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from signer.controller.diagnostics.bounded_server import Handler, Route, bounded_server
from signer.controller.diagnostics.connections import Bounds
from signer.controller.diagnostics.health import Report
from signer.controller.diagnostics.scrape_access import PATH, Allowed, NotPermitted, ScrapeAccess
from signer.controller.diagnostics.serving_certificate import self_signed_context
from signer.kube.calls import Create
from signer.kube.errors import ApiError

_LOG = logging.getLogger(__name__)
_HEALTH_BOUNDS: Final = Bounds(connections=64, connections_of_source=64, connection_seconds=5.0)
"""Only the Pod's kubelet probes; other clients that hold connections must not quickly make its probes fail."""


class HasRegistry(Protocol):
    """The metrics of a program."""

    @property
    def registry(self) -> CollectorRegistry:
        """Where they are registered."""
        ...


class Reports(Protocol):
    """The health of a program."""

    def alive(self) -> Report:
        """``/healthz``."""
        ...

    def ready(self) -> Report:
        """``/readyz``."""
        ...


def health_server(host: str, port: int, health: Reports) -> AbstractAsyncContextManager[tuple[str, int]]:
    """Serve ``/healthz`` and ``/readyz`` over plain HTTP; see
    :func:`~signer.controller.diagnostics.bounded_server.bounded_server`.

    ``?verbose`` lists every check, as Kubernetes' own endpoints do.
    """
    return bounded_server(host, port, _health_handlers(health), bounds=_HEALTH_BOUNDS)


def diagnostics_server(
    host: str, port: int, metrics: HasRegistry, client: Create
) -> AbstractAsyncContextManager[tuple[str, int]]:
    """Serve ``/metrics`` over HTTPS to clients that the API server behind ``client`` authorizes."""
    access = ScrapeAccess(client, time.monotonic)
    tls = self_signed_context(socket.gethostname(), datetime.now(UTC))
    return bounded_server(host, port, {PATH: _guarded(access, _serve_metrics(metrics))}, tls=tls)


def insecure_diagnostics_server(
    host: str, port: int, metrics: HasRegistry, health: Reports
) -> AbstractAsyncContextManager[tuple[str, int]]:
    """Serve all three over plain HTTP to every client that reaches the port."""
    return bounded_server(host, port, {PATH: _serve_metrics(metrics), **_health_handlers(health)})


def _health_handlers(health: Reports) -> dict[str, Route]:
    return {"/healthz": _serve_report(health.alive), "/readyz": _serve_report(health.ready)}


def _serve_report(check: Callable[[], Report]) -> Handler:
    async def serve(request: web.BaseRequest) -> web.Response:
        report = check()
        text = report.verbose() if "verbose" in request.query else report.brief()
        return web.Response(status=200 if report.passed else 503, text=text)

    return serve


def _serve_metrics(metrics: HasRegistry) -> Handler:
    underway: asyncio.Task[bytes] | None = None

    async def made() -> bytes:
        # Collect in the event loop, where nothing changes meanwhile; format, which takes longer, in a thread.
        return await asyncio.to_thread(generate_latest, _Collected(metrics))

    async def serve(_: web.BaseRequest) -> web.Response:
        nonlocal underway
        # Concurrent requests share one result: decisions need threads too, and a client that disconnects at once must
        # not leave a thread behind.
        if underway is None or underway.done():
            underway = asyncio.create_task(made(), name="metrics")
        text = await asyncio.shield(underway)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    return serve


class _Collected(Collector):
    """A snapshot of all metrics."""

    def __init__(self, metrics: HasRegistry) -> None:
        self._families = list(metrics.registry.collect())

    def collect(self) -> list[object]:  # type: ignore[override]
        """See :class:`prometheus_client.registry.Collector`."""
        return list(self._families)


def _guarded(access: ScrapeAccess, serve: Handler) -> Handler:
    async def guard(request: web.BaseRequest) -> web.Response:
        try:
            verdict = await access.authorize(request.headers.get("Authorization", ""))
        except ApiError as error:
            _LOG.warning("cannot authorize a client of /metrics", extra={"error": str(error)})
            return web.Response(status=503, text="the management cluster cannot authorize the request\n")
        if isinstance(verdict, Allowed):
            return await serve(request)
        if isinstance(verdict, NotPermitted):
            return web.Response(status=403, text=f"may not get {PATH}\n")
        return web.Response(status=401, text="unauthorized\n", headers={"WWW-Authenticate": "Bearer"})

    return guard
