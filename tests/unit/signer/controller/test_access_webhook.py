"""The server of the webhook: TLS by its own certificate, sizes, methods and errors."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from signer.access.admission.review import MAXIMUM_REVIEW_BYTES
from signer.access.admission.webhook import WebhookPlace
from signer.controller import access_webhook
from signer.controller.access_webhook import access_webhook_server
from signer.controller.access_webhook_clients import (
    ANY_CLIENT,
    CertifiedClients,
    InvalidClientAuthorities,
    NotTheApiServer,
    WebhookClients,
    parse_client_authorities,
    require_name,
)
from signer.controller.diagnostics.source_rates import Rate
from signer.controller.telemetry.metrics import Metrics
from signer.kube.client import JsonObject
from signer.kube.errors import ServerError
from signer.kube.tls import load_certificate
from tests.support.access_requests import CONTROLLERS
from tests.support.certificates import CertificateAuthority
from tests.unit.signer.access.admission.test_webhook import ManagementCluster, review_of

TWICE = ((("commonName", "api-server"),), (("commonName", "other"),))
PLACE = WebhookPlace("here", ("localhost",))


@pytest.fixture
async def cluster() -> ManagementCluster:
    return ManagementCluster()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@asynccontextmanager
async def serving(
    cluster: ManagementCluster, metrics: Metrics, clients: WebhookClients = ANY_CLIENT
) -> AsyncIterator[str]:
    async with access_webhook_server("127.0.0.1", 0, cluster, CONTROLLERS, PLACE, metrics, clients) as (_, port):
        yield f"https://localhost:{port}"


@pytest.fixture
async def url(cluster: ManagementCluster, metrics: Metrics) -> AsyncIterator[str]:
    async with serving(cluster, metrics) as url:
        yield url


def counted(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """The requests and closed connections, by their labels."""
    return {
        tuple(sample.labels.values()): sample.value
        for counter in (metrics.access_webhook_requests, metrics.access_webhook_connections_closed)
        for family in counter.collect()
        for sample in family.samples
        if sample.name.endswith("_total") and sample.value
    }


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


async def post(
    cluster: ManagementCluster, url: str, body: bytes, certificate: tuple[bytes, bytes] | None = None
) -> tuple[int, str]:
    context = await trusting(cluster)
    if certificate is not None:
        load_certificate(context, *certificate)
    async with aiohttp.ClientSession() as session, session.post(url, data=body, ssl=context) as answer:
        return answer.status, await answer.text()


async def test_reviews_are_answered(cluster: ManagementCluster, url: str, metrics: Metrics) -> None:
    status, text = await post(cluster, f"{url}/validate", review_of("ingress-by-other"))
    assert (status, json.loads(text)["response"]["status"]["code"]) == (200, 403)
    status, text = await post(cluster, f"{url}/mutate", review_of("create"))
    assert (status, json.loads(text)["response"]["allowed"]) == (200, True)
    assert counted(metrics) == {("/validate", "refused"): 1, ("/mutate", "allowed"): 1}


async def test_what_is_no_review(cluster: ManagementCluster, url: str, metrics: Metrics) -> None:
    assert await post(cluster, f"{url}/validate", b"{}") == (
        400,
        "the body is no AdmissionReview of admission.k8s.io/v1\n",
    )
    assert counted(metrics) == {("/validate", "invalid"): 1}
    assert MAXIMUM_REVIEW_BYTES > 2 * 1024 * 1024


async def test_other_methods_and_paths(cluster: ManagementCluster, url: str) -> None:
    context = await trusting(cluster)
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}/validate", ssl=context) as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "POST")
        async with session.post(f"{url}/metrics", ssl=context) as answer:
            assert answer.status == 404


async def test_without_rights_nothing_is_answered(cluster: ManagementCluster, url: str, metrics: Metrics) -> None:
    await trusting(cluster)

    async def fails(path: str, body: JsonObject) -> Any:
        raise ServerError("away", status=503)

    cluster.create = fails  # type: ignore[method-assign]
    status, text = await post(cluster, f"{url}/validate", review_of("create"))
    assert (status, text) == (503, "the API server does not say what the user may do\n")
    assert counted(metrics) == {("/validate", "rights_unknown"): 1}


async def test_a_review_that_is_too_large(
    cluster: ManagementCluster, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_webhook, "MAXIMUM_REVIEW_BYTES", 100_000)
    async with serving(cluster, metrics) as url:
        assert await post(cluster, f"{url}/validate", b" " * 200_000) == (413, "the body is too large\n")


async def test_a_client_learns_no_more_rights_in_a_time_than_an_api_server_needs(
    cluster: ManagementCluster, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_webhook, "RIGHTS_RATE", Rate(per_second=0.0, burst=3.0))
    async with serving(cluster, metrics) as url:
        answers = [(await post(cluster, f"{url}/validate", review_of("create")))[0] for _ in range(5)]
        assert answers == [200, 200, 200, 429, 429]
        assert len(cluster.reviewed) == 3
        status, _ = await post(cluster, f"{url}/validate", review_of("ingress-by-other"))
        assert status == 200, "what asks for no rights is answered"
    assert counted(metrics)[("/validate", "too_much")] == 2


async def test_large_reviews_use_up_what_an_address_may_cost(
    cluster: ManagementCluster, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_webhook, "KIBIBYTE_RATE", Rate(per_second=0.0, burst=100.0))
    async with serving(cluster, metrics) as url:
        assert (await post(cluster, f"{url}/validate", review_of("ingress-by-other")))[0] == 200
        assert (await post(cluster, f"{url}/validate", b" " * 200_000))[0] == 429
        assert (await post(cluster, f"{url}/validate", b" " * 90_000))[0] == 400
        assert (await post(cluster, f"{url}/mutate", review_of("create") + b" " * 10_000))[0] == 429


async def test_an_address_that_connects_too_often_is_not_served(
    cluster: ManagementCluster, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_webhook, "CONNECTION_RATE", Rate(per_second=0.0, burst=2.0))
    async with serving(cluster, metrics) as url:
        for _ in range(2):
            assert (await post(cluster, f"{url}/mutate", review_of("create")))[0] == 200
        with pytest.raises((aiohttp.ClientError, OSError)):
            await post(cluster, f"{url}/mutate", review_of("create"))
    assert counted(metrics)[("too_many_of_source",)] == 1


async def test_a_silent_client_is_not_waited_for(
    cluster: ManagementCluster, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_webhook, "BOUNDS", replace(access_webhook.BOUNDS, request_seconds=0.1))
    async with serving(cluster, metrics) as url:
        reader, writer = await asyncio.open_connection("localhost", int(url.rpartition(":")[2]))
        async with asyncio.timeout(access_webhook.BOUNDS.connection_seconds / 2):
            assert await reader.read() == b""
        writer.close()
    assert counted(metrics) == {("timeout",): 1}


async def test_the_bounds_let_an_api_server_work_and_no_client_hold_the_webhook() -> None:
    bounds = access_webhook.BOUNDS
    assert bounds.connections_of_source < bounds.connections
    assert bounds.request_seconds < bounds.connection_seconds <= 10, "an API server waits no longer"


API_SERVERS = CertificateAuthority.like_cluster_api()


def clients(*names: str) -> CertifiedClients:
    return parse_client_authorities(API_SERVERS.certificate_pem, frozenset(names))


async def test_only_the_api_server_is_answered_where_it_has_a_certificate(
    cluster: ManagementCluster, metrics: Metrics
) -> None:
    path, body = "/validate", review_of("ingress-by-other")
    async with serving(cluster, metrics, clients("api-server")) as url:
        status, _ = await post(cluster, url + path, body, API_SERVERS.issue_client("api-server", ()))
        assert status == 200
        foreign = CertificateAuthority.like_cluster_api().issue_client("api-server", ())
        for_servers = API_SERVERS.issue_serving("api-server", ("localhost",))
        for stranger in (None, foreign, for_servers):
            with pytest.raises((aiohttp.ClientError, OSError)):
                await post(cluster, url + path, body, stranger)
        said = await post(cluster, url + path, body, API_SERVERS.issue_client("system:node:worker-1", ()))
        assert said == (403, "the client certificate is not of an admitted name\n")
    found = counted(metrics)
    assert found.pop(("tls_handshake",)) == 3
    assert found == {(path, "refused"): 1, (path, "foreign_client"): 1}


async def test_any_name_of_the_authorities_counts_where_none_is_stated(
    cluster: ManagementCluster, metrics: Metrics
) -> None:
    async with serving(cluster, metrics, clients()) as url:
        status, _ = await post(cluster, f"{url}/mutate", review_of("create"), API_SERVERS.issue_client("any", ()))
        assert status == 200
        with pytest.raises((aiohttp.ClientError, OSError)):
            await post(cluster, f"{url}/mutate", review_of("create"))


@pytest.mark.parametrize(
    "certificate", [{}, {"subject": ()}, {"subject": ((("organizationName", "api-server"),),)}, {"subject": TWICE}]
)
def test_a_certificate_without_the_one_name(certificate: dict[str, Any]) -> None:
    with pytest.raises(NotTheApiServer):
        require_name(certificate, clients("api-server"))
    require_name(certificate, ANY_CLIENT)


LEAF = API_SERVERS.issue_client("api-server", ())[0]


@pytest.mark.parametrize("content", [b"", b"none", b"\xff", b"-----BEGIN CERTIFICATE-----\nAA==\n", LEAF])
def test_a_file_without_authorities(content: bytes) -> None:
    with pytest.raises(InvalidClientAuthorities, match="name the CA of the API server's client certificate"):
        parse_client_authorities(content, frozenset())


def test_a_file_that_is_too_large_is_not_read() -> None:
    with pytest.raises(InvalidClientAuthorities, match="too large"):
        parse_client_authorities(API_SERVERS.certificate_pem * 1000, frozenset())
