"""``/metrics``, ``/healthz`` and ``/readyz`` over plain HTTP, for a port that only the pod network can reach."""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from signer.controller.leadership import Leadership
from signer.controller.metrics import Metrics
from signer.model.decision import Deferred
from signer.rules.leadership import StandingBy
from signer.store.inventory import Inventory


class State(enum.Enum):
    """What ``/readyz`` answers."""

    STARTING = "starting"
    OUT_OF_TOUCH = "out of touch with the management cluster"
    STANDING_BY = "standing by: another replica leads"
    READY = "ok"

    @property
    def status(self) -> int:
        """HTTP status. A standby is ready: a rollout must go on while the old leader still leads."""
        return 200 if self in (State.READY, State.STANDING_BY) else 503


class Readiness:
    """Whether decisions can be made: not before the start, and not while the management cluster cannot be watched."""

    def __init__(self) -> None:
        self._inventory: Inventory | None = None
        self._leadership: Leadership | None = None

    def standing_by(self, leadership: Leadership) -> None:
        """Until the start, this replica waits for the Lease."""
        self._leadership = leadership

    def started(self, inventory: Inventory) -> None:
        """Decisions rest upon this inventory from now on."""
        self._inventory = inventory

    def state(self) -> State:
        """How it is at this moment."""
        if self._inventory is None:
            return State.STARTING if self._leadership is None else _standby_state(self._leadership)
        try:
            self._inventory.require_in_touch()
        except Deferred:
            return State.OUT_OF_TOUCH
        return State.READY


def _standby_state(leadership: Leadership) -> State:
    match leadership.standing():
        case StandingBy(holder) if holder and leadership.is_in_touch():
            return State.STANDING_BY
        case StandingBy(holder) if holder:
            return State.OUT_OF_TOUCH
        case _:  # nobody leads yet, or this replica does and fills its mirrors
            return State.STARTING


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
        return web.Response(status=now.status, text=now.value)

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
