"""``/metrics``, ``/healthz`` and ``/readyz`` over plain HTTP, for a port that only the pod network can reach."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from signer.controller.metrics import Metrics
from signer.model.decision import Deferred
from signer.store.inventory import Inventory


class State(enum.Enum):
    """What ``/readyz`` answers."""

    STARTING = "starting"
    OUT_OF_TOUCH = "out of touch with the management cluster"
    READY = "ok"


class Readiness:
    """Whether decisions can be made: not before the start, and not while the management cluster cannot be watched."""

    def __init__(self) -> None:
        self._inventory: Inventory | None = None

    def started(self, inventory: Inventory) -> None:
        """Decisions rest upon this inventory from now on."""
        self._inventory = inventory

    def state(self) -> State:
        """How it is at this moment."""
        if self._inventory is None:
            return State.STARTING
        try:
            self._inventory.require_in_touch()
        except Deferred:
            return State.OUT_OF_TOUCH
        return State.READY


@asynccontextmanager
async def diagnostics_server(
    host: str, port: int, metrics: Metrics, state: Callable[[], State]
) -> AsyncIterator[tuple[str, int]]:
    """Serve while the context is open; yields the address, with the port that was taken when ``port`` is 0."""

    async def serve_metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def serve_health(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def serve_readiness(_: web.Request) -> web.Response:
        now = state()
        return web.Response(status=200 if now is State.READY else 503, text=now.value)

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
