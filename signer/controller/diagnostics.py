"""``/metrics``, ``/healthz`` and ``/readyz`` over plain HTTP, for a port that only the pod network can reach."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from signer.controller.metrics import Metrics


@asynccontextmanager
async def diagnostics_server(
    host: str, port: int, metrics: Metrics, ready: Callable[[], bool]
) -> AsyncIterator[tuple[str, int]]:
    """Serve while the context is open; yields the address, with the port that was taken when ``port`` is 0."""

    async def serve_metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def serve_health(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def serve_readiness(_: web.Request) -> web.Response:
        return web.Response(text="ok") if ready() else web.Response(status=503, text="starting")

    application = web.Application()
    application.router.add_get("/metrics", serve_metrics)
    application.router.add_get("/healthz", serve_health)
    application.router.add_get("/readyz", serve_readiness)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        address = runner.addresses[0]
        yield str(address[0]), int(address[1])
    finally:
        await runner.cleanup()
