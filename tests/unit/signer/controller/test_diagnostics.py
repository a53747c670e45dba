"""``/metrics``, ``/healthz`` and ``/readyz``."""

from __future__ import annotations

import aiohttp

from signer.controller.diagnostics import diagnostics_server
from signer.controller.metrics import Metrics


async def test_endpoints() -> None:
    metrics, ready = Metrics(), False
    metrics.decided("ns/c", "tpm", "Deny", "IdentityConflict")
    async with (
        diagnostics_server("127.0.0.1", 0, metrics, lambda: ready) as (host, port),
        aiohttp.ClientSession(f"http://{host}:{port}") as session,
    ):
        assert port > 0
        async with session.get("/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok")
        async with session.get("/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, "starting")
        ready = True
        async with session.get("/readyz") as answer:
            assert answer.status == 200
        async with session.get("/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=")
            assert "node_attestation_decisions_total" in await answer.text()
        async with session.get("/") as answer:
            assert answer.status == 404
        async with session.post("/metrics") as answer:
            assert answer.status == 405
