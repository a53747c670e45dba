"""The server of the webhook: TLS by its own certificate, sizes, methods and errors."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from signer.access.admission import review as reviews
from signer.access.admission.webhook import WebhookPlace
from signer.controller.access_webhook import access_webhook_server
from signer.kube.client import JsonObject
from signer.kube.errors import ServerError
from tests.support.access_requests import CONTROLLERS
from tests.unit.signer.access.admission.test_webhook import ManagementCluster, review_of

PLACE = WebhookPlace("here", ("localhost",))


@pytest.fixture
async def cluster() -> ManagementCluster:
    return ManagementCluster()


@pytest.fixture
async def url(cluster: ManagementCluster) -> AsyncIterator[str]:
    async with access_webhook_server("127.0.0.1", 0, cluster, CONTROLLERS, PLACE) as (_, port):
        yield f"https://localhost:{port}"


async def trusting(cluster: ManagementCluster) -> ssl.SSLContext:
    """As an API server trusts what caBundle says."""
    async with asyncio.timeout(10):
        while True:
            try:
                (bundle,) = cluster.bundles()
            except KeyError:
                await asyncio.sleep(0)
            else:
                return ssl.create_default_context(cadata=bundle.decode())


async def post(cluster: ManagementCluster, url: str, body: bytes) -> tuple[int, str]:
    context = await trusting(cluster)
    async with aiohttp.ClientSession() as session, session.post(url, data=body, ssl=context) as answer:
        return answer.status, await answer.text()


async def test_reviews_are_answered(cluster: ManagementCluster, url: str) -> None:
    status, text = await post(cluster, f"{url}/validate", review_of("ingress-by-other"))
    assert (status, json.loads(text)["response"]["status"]["code"]) == (200, 403)
    status, text = await post(cluster, f"{url}/mutate", review_of("create"))
    assert (status, json.loads(text)["response"]["allowed"]) == (200, True)


async def test_what_is_no_review(cluster: ManagementCluster, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await post(cluster, f"{url}/validate", b"{}") == (
        400,
        "the body is no AdmissionReview of admission.k8s.io/v1\n",
    )
    monkeypatch.setattr("signer.controller.access_webhook.MAXIMUM_REVIEW_BYTES", 100_000)
    assert await post(cluster, f"{url}/validate", b" " * 200_000) == (400, "the review is too large\n")
    assert reviews.MAXIMUM_REVIEW_BYTES > 2 * 1024 * 1024


async def test_other_methods_and_paths(cluster: ManagementCluster, url: str) -> None:
    context = await trusting(cluster)
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}/validate", ssl=context) as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "POST")
        async with session.post(f"{url}/metrics", ssl=context) as answer:
            assert answer.status == 404


async def test_without_rights_nothing_is_answered(cluster: ManagementCluster, url: str) -> None:
    await trusting(cluster)

    async def fails(path: str, body: JsonObject) -> Any:
        raise ServerError("away", status=503)

    cluster.create = fails  # type: ignore[method-assign]
    status, text = await post(cluster, f"{url}/validate", review_of("create"))
    assert (status, text) == (503, "the API server does not say what the user may do\n")
