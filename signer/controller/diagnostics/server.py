"""``/metrics``, ``/healthz`` and ``/readyz``, under Cluster API's flags.

``--diagnostics-address`` serves metrics over HTTPS to those whom the management cluster lets get ``/metrics``, or with
``--insecure-diagnostics`` everything over plain HTTP to anybody. ``--health-addr`` serves health to anybody: a kubelet
that probes has no token, and what it hears is no secret.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from signer.controller.diagnostics.bounded_server import Handler, bounded_server
from signer.controller.diagnostics.health import Health, Report
from signer.controller.diagnostics.scrape_access import PATH, Allowed, NotPermitted, ScrapeAccess
from signer.controller.diagnostics.serving_certificate import self_signed_context
from signer.controller.telemetry.metrics import Metrics
from signer.kube.calls import Create
from signer.kube.errors import ApiError

_LOG = logging.getLogger(__name__)
_HEALTH_CONNECTIONS: Final = 64
"""Probes come from each kubelet of one Pod only; strangers who hold connections must not make them fail soon."""
_HEALTH_SECONDS: Final = 5.0


def health_server(host: str, port: int, health: Health) -> AbstractAsyncContextManager[tuple[str, int]]:
    """Serve ``/healthz`` and ``/readyz`` over plain HTTP; see
    :func:`~signer.controller.diagnostics.bounded_server.bounded_server`.

    With ``?verbose`` every check is listed, as Kubernetes' own endpoints do.
    """
    return bounded_server(
        host, port, _health_handlers(health), connections=_HEALTH_CONNECTIONS, connection_seconds=_HEALTH_SECONDS
    )


def diagnostics_server(
    host: str, port: int, metrics: Metrics, client: Create
) -> AbstractAsyncContextManager[tuple[str, int]]:
    """Serve ``/metrics`` over HTTPS to whom the API server behind ``client`` lets get it."""
    access = ScrapeAccess(client, time.monotonic)
    tls = self_signed_context(socket.gethostname(), datetime.now(UTC))
    return bounded_server(host, port, {PATH: _guarded(access, _serve_metrics(metrics))}, tls=tls)


def insecure_diagnostics_server(
    host: str, port: int, metrics: Metrics, health: Health
) -> AbstractAsyncContextManager[tuple[str, int]]:
    """Serve all three over plain HTTP to anybody who reaches the port."""
    return bounded_server(host, port, {PATH: _serve_metrics(metrics), **_health_handlers(health)})


def _health_handlers(health: Health) -> dict[str, Handler]:
    return {"/healthz": _serve_report(health.alive), "/readyz": _serve_report(health.ready)}


def _serve_report(look: Callable[[], Report]) -> Handler:
    async def serve(request: web.BaseRequest) -> web.Response:
        report = look()
        text = report.verbose() if "verbose" in request.query else report.brief()
        return web.Response(status=200 if report.passed else 503, text=text)

    return serve


def _serve_metrics(metrics: Metrics) -> Handler:
    underway: asyncio.Task[bytes] | None = None

    async def made() -> bytes:
        # Collected here, where nothing changes meanwhile; made into text, which takes longer, in a thread.
        return await asyncio.to_thread(generate_latest, _Collected(metrics))

    async def serve(_: web.BaseRequest) -> web.Response:
        nonlocal underway
        # Whoever asks meanwhile gets the same: threads are for decisions, too, and those who ask and go away at once
        # must not leave one behind each.
        if underway is None or underway.done():
            underway = asyncio.create_task(made(), name="metrics")
        text = await asyncio.shield(underway)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    return serve


class _Collected(Collector):
    """All metrics at one moment."""

    def __init__(self, metrics: Metrics) -> None:
        self._families = list(metrics.registry.collect())

    def collect(self) -> list[object]:  # type: ignore[override]
        """See :class:`prometheus_client.registry.Collector`."""
        return list(self._families)


def _guarded(access: ScrapeAccess, serve: Handler) -> Handler:
    async def guard(request: web.BaseRequest) -> web.Response:
        try:
            verdict = await access.judge(request.headers.get("Authorization", ""))
        except ApiError as error:
            _LOG.warning("who reads metrics cannot be asked of the management cluster", extra={"error": str(error)})
            return web.Response(status=503, text="the management cluster cannot be asked who you are\n")
        if isinstance(verdict, Allowed):
            return await serve(request)
        if isinstance(verdict, NotPermitted):
            return web.Response(status=403, text=f"may not get {PATH}\n")
        return web.Response(status=401, text="unauthorized\n", headers={"WWW-Authenticate": "Bearer"})

    return guard
