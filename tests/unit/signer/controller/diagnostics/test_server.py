"""Access to ``/metrics``, ``/healthz`` and ``/readyz``."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from signer.controller.diagnostics import server as diagnostics
from signer.controller.diagnostics.bounded_server import Handler
from signer.controller.diagnostics.health import Health
from signer.controller.diagnostics.scrape_access import (
    ALLOWED_SECONDS,
    CONCURRENT_REVIEWS,
    DENIED_SECONDS,
    REMEMBERED,
    Allowed,
    ScrapeAccess,
)
from signer.controller.diagnostics.server import diagnostics_server, health_server, insecure_diagnostics_server
from signer.controller.telemetry.metrics import Metrics
from signer.kube.client import JsonObject
from signer.kube.errors import ServerError

GOOD, UNPERMITTED = "good-token", "unpermitted-token"


class ManagementCluster:
    """A management cluster that knows two tokens and counts reviews."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.reviewed: list[Mapping[str, Any]] = []
        self.down = False
        self.answers: dict[str, JsonObject] = {}
        """By the kind of a review, in place of what is right."""

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        self.asked.append(path)
        if self.down:
            raise ServerError("away", status=503)
        if body["kind"] in self.answers:
            return self.answers[body["kind"]]
        if body["kind"] == "TokenReview":
            assert path == "/apis/authentication.k8s.io/v1/tokenreviews"
            if body["spec"]["token"] not in (GOOD, UNPERMITTED):
                return {"status": {"user": {}}}
            user = {"username": body["spec"]["token"], "uid": "u", "groups": ["scrapers"], "extra": {"a": ["b"]}}
            return {"status": {"authenticated": True, "user": user}}
        assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        self.reviewed.append(body["spec"])
        return {"status": {"allowed": body["spec"]["user"] == GOOD}}


async def fetch(
    address: tuple[str, int], path: str, *, scheme: str = "http", token: str = "", method: str = "GET"
) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession(f"{scheme}://{address[0]}:{address[1]}") as session,
        session.request(method, path, headers=headers, ssl=False) as answer,
    ):
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        return answer.status, await answer.text()


async def test_insecure_diagnostics_serve_everything() -> None:
    metrics = Metrics()
    metrics.decided("ns/c", "tpm", "Deny", "IdentityConflict")
    async with insecure_diagnostics_server("127.0.0.1", 0, metrics, Health()) as address:
        assert address[1] > 0
        assert await fetch(address, "/healthz") == (200, "ok")
        assert await fetch(address, "/readyz") == (503, "starting")
        status, text = await fetch(address, "/metrics")
        assert status == 200
        assert "node_attestation_decisions_total" in text
        assert (await fetch(address, "/"))[0] == 404
        assert (await fetch(address, "/metrics", method="POST"))[0] == 405
        assert (await fetch(address, "/metrics", method="HEAD"))[0] == 200


async def test_the_health_port_serves_health_only() -> None:
    async with health_server("127.0.0.1", 0, Health()) as address:
        assert await fetch(address, "/healthz") == (200, "ok")
        assert (await fetch(address, "/metrics"))[0] == 404
        status, text = await fetch(address, "/readyz?verbose")
        assert (status, text.splitlines()[-1]) == (503, "readyz check failed")
        assert (await fetch(address, "/healthz?verbose"))[1].splitlines()[0] == "[+]ping ok"


async def test_metrics_require_authorization() -> None:
    cluster = ManagementCluster()
    async with diagnostics_server("127.0.0.1", 0, Metrics(), cluster) as address:
        assert (await fetch(address, "/metrics", scheme="https"))[0] == 401
        assert cluster.asked == [], "nobody needs to be asked about no token"
        assert (await fetch(address, "/metrics", scheme="https", token="stolen"))[0] == 401
        assert (await fetch(address, "/metrics", scheme="https", token=UNPERMITTED))[0] == 403
        status, text = await fetch(address, "/metrics", scheme="https", token=GOOD)
        assert status == 200
        assert "node_attestation_build_info" in text
        assert (await fetch(address, "/healthz", scheme="https", token=GOOD))[0] == 404
    wanted = {"path": "/metrics", "verb": "get"}
    assert cluster.reviewed[-1] == {
        "user": GOOD,
        "uid": "u",
        "groups": ["scrapers"],
        "extra": {"a": ["b"]},
        "nonResourceAttributes": wanted,
    }


async def test_metrics_are_not_served_over_plain_http() -> None:
    async with diagnostics_server("127.0.0.1", 0, Metrics(), ManagementCluster()) as address:
        with pytest.raises(aiohttp.ClientError):
            await fetch(address, "/metrics", token=GOOD)


async def test_metrics_are_refused_while_the_management_cluster_fails() -> None:
    cluster = ManagementCluster()
    async with diagnostics_server("127.0.0.1", 0, Metrics(), cluster) as address:
        cluster.down = True
        status, text = await fetch(address, "/metrics", scheme="https", token=GOOD)
        assert (status, "node_attestation" in text) == (503, False)


@pytest.mark.parametrize(
    "answers",
    [
        {"TokenReview": {}},
        {"TokenReview": {"status": {"authenticated": "true", "user": {"username": GOOD}}}},
        {"TokenReview": {"status": {"authenticated": True}}},
        {"TokenReview": {"status": {"authenticated": True, "user": {"groups": ["system:masters"]}}}},
        {"SubjectAccessReview": {}},
        {"SubjectAccessReview": {"status": {"allowed": 1}}},
        {"SubjectAccessReview": {"status": {"allowed": True, "denied": True}}},
    ],
    ids=str,
)
async def test_a_malformed_review_allows_nothing(answers: dict[str, JsonObject]) -> None:
    cluster = ManagementCluster()
    cluster.answers = answers
    assert not isinstance(await ScrapeAccess(cluster, lambda: 0.0).authorize(f"Bearer {GOOD}"), Allowed)


@pytest.mark.parametrize("header", ["", GOOD, f"Basic {GOOD}", f"Bearer {GOOD} x", "Bearer ", "Bearer \u00e9"])
async def test_only_bearer_tokens_are_reviewed(header: str) -> None:
    cluster = ManagementCluster()
    assert not isinstance(await ScrapeAccess(cluster, lambda: 0.0).authorize(header), Allowed)
    assert cluster.asked == []


async def test_verdicts_are_cached_briefly_and_bounded() -> None:
    cluster, now = ManagementCluster(), 0.0
    access = ScrapeAccess(cluster, lambda: now)

    async def asked_for(token: str) -> int:
        before = len(cluster.asked)
        await access.authorize(f"Bearer {token}")
        return len(cluster.asked) - before

    assert [await asked_for(GOOD), await asked_for(GOOD), await asked_for("bad"), await asked_for("bad")] == [
        2,
        0,
        1,
        0,
    ]
    now = DENIED_SECONDS + 1
    assert [await asked_for(GOOD), await asked_for("bad")] == [0, 1]
    now = ALLOWED_SECONDS + 1
    assert await asked_for(GOOD) == 2
    for number in range(REMEMBERED + 10):
        await asked_for(f"guess-{number}")
    assert len(access._remembered) == REMEMBERED
    assert GOOD.encode() not in b"".join(access._remembered)


async def test_a_cached_token_does_not_wait_behind_unknown_ones() -> None:
    cluster, go_on = ManagementCluster(), asyncio.Event()
    access = ScrapeAccess(cluster, lambda: 0.0)
    assert isinstance(await access.authorize(f"Bearer {GOOD}"), Allowed)

    async def slowly(path: str, body: JsonObject) -> JsonObject:
        await go_on.wait()
        return {}

    cluster.create = slowly  # type: ignore[method-assign]
    strangers = [
        asyncio.create_task(access.authorize(f"Bearer guess-{number}")) for number in range(CONCURRENT_REVIEWS)
    ]
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        assert isinstance(await access.authorize(f"Bearer {GOOD}"), Allowed)
    go_on.set()
    await asyncio.gather(*strangers)


async def test_disconnected_clients_leave_one_thread_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The audit log and slow CA keys use the same threads."""
    started, go_on, arrived = 0, threading.Event(), asyncio.Semaphore(0)
    serving = diagnostics._serve_metrics

    def slowly(_: object) -> bytes:
        nonlocal started
        started += 1
        go_on.wait(60)
        return b"made"

    def counted(metrics: Metrics) -> Handler:
        serve = serving(metrics)

        async def count_and_serve(request: web.BaseRequest) -> web.Response:
            arrived.release()
            return await serve(request)

        return count_and_serve

    monkeypatch.setattr(diagnostics, "generate_latest", slowly)
    monkeypatch.setattr(diagnostics, "_serve_metrics", counted)
    async with insecure_diagnostics_server("127.0.0.1", 0, Metrics(), Health()) as address:
        for _ in range(20):
            _, writer = await asyncio.open_connection(*address)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            await arrived.acquire()
            writer.close()
        asking = asyncio.create_task(fetch(address, "/metrics"))
        await arrived.acquire()
        go_on.set()
        assert await asking == (200, "made")
    assert started == 1


async def test_each_process_has_its_own_certificate() -> None:
    async with diagnostics_server("127.0.0.1", 0, Metrics(), ManagementCluster()) as (host, port):
        first = await asyncio.to_thread(ssl.get_server_certificate, (host, port), timeout=10)
    async with diagnostics_server("127.0.0.1", 0, Metrics(), ManagementCluster()) as (host, port):
        assert await asyncio.to_thread(ssl.get_server_certificate, (host, port), timeout=10) != first
