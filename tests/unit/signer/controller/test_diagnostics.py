"""``/metrics``, ``/healthz`` and ``/readyz``."""

from __future__ import annotations

import aiohttp

from signer.controller.diagnostics import Readiness, State, diagnostics_server
from signer.controller.metrics import Metrics
from signer.kube.errors import Forbidden
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.seal import KEY_BYTES, ControllerKeys
from signer.store.inventory import OUT_OF_TOUCH_SECONDS, ClusterAPIVersion, Inventory


async def test_endpoints() -> None:
    metrics, state = Metrics(), State.STARTING
    metrics.decided("ns/c", "tpm", "Deny", "IdentityConflict")
    async with (
        diagnostics_server("127.0.0.1", 0, metrics, lambda: state) as (host, port),
        aiohttp.ClientSession(f"http://{host}:{port}") as session,
    ):
        assert port > 0
        async with session.get("/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok")
        async with session.get("/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, "starting")
        state = State.READY
        async with session.get("/readyz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok")
        state = State.OUT_OF_TOUCH
        async with session.get("/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, "out of touch with the management cluster")
        async with session.get("/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=")
            assert "node_attestation_decisions_total" in await answer.text()
        async with session.get("/") as answer:
            assert answer.status == 404
        async with session.post("/metrics") as answer:
            assert answer.status == 405


def test_ready_from_the_start_on_and_while_in_touch() -> None:
    at = 0.0
    inventory = Inventory(
        ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2), own_namespace="own", monotonic=lambda: at
    )
    readiness = Readiness()
    assert readiness.state() is State.STARTING
    readiness.started(inventory)
    assert readiness.state() is State.OUT_OF_TOUCH, "without the controller key nothing is decided"
    inventory.authentic.use_keys(ControllerKeys(bytes(KEY_BYTES)))
    assert readiness.state() is State.READY
    inventory.machines.failed(Forbidden("may not watch", status=403), 1.0)
    assert readiness.state() is State.READY
    at = OUT_OF_TOUCH_SECONDS + 1
    assert readiness.state() is State.OUT_OF_TOUCH
    inventory.machines.replaced([])
    assert readiness.state() is State.READY
