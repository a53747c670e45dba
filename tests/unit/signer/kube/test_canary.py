"""The canary: which answers prove that an API server accepts it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest
from aiohttp import web

from signer.authority import IssuingSet, load_certificate_authority
from signer.authority.canary_certificate import CanaryCertificate, issue_canary
from signer.kube import canary as canary_module
from signer.kube.canary import Finding, NotProven, NotTrusted, Trusted, try_canary
from signer.kube.resource_limits import ResourceLimits
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from tests.unit.signer.kube.support import Authority, aiohttp_server, server_context, status_body

MADE = new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256)
LOADED = load_certificate_authority(MADE.secret_data, now=datetime.now(UTC))
AUTHORITY = IssuingSet.of(LOADED)
USER = f"node-attestation:ca-canary:{LOADED.certificate.public_key_hash[7:23]}"
SERVER = Authority("the API server's")


@pytest.fixture(scope="module")
def canary() -> CanaryCertificate:
    return issue_canary(AUTHORITY, datetime.now(UTC))


def forbidden(user: str) -> bytes:
    resource = "selfsubjectreviews"
    return status_body(
        403,
        "Forbidden",
        f'{resource}.authentication.k8s.io is forbidden: User "{user}" cannot create resource "{resource}" in API '
        'group "authentication.k8s.io" at the cluster scope',
    )


def review(user: object) -> bytes:
    return json.dumps({"kind": "SelfSubjectReview", "status": {"userInfo": {"username": user}}}).encode()


async def found(canary: CanaryCertificate, status: int, body: bytes, media: str = "application/json") -> Finding:
    async def answer(request: web.Request) -> web.Response:
        assert request.raw_path == "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        assert "Authorization" not in request.headers
        return web.Response(status=status, body=body, content_type=media)

    return await asked(canary, answer)


async def asked(
    canary: CanaryCertificate, answer: Callable[[web.Request], Awaitable[web.Response]], server: Authority = SERVER
) -> Finding:
    context = server_context(server.issue("server", "127.0.0.1"), MADE.certificate)
    async with aiohttp_server(SERVER, answer, context=context) as running:
        return await try_canary(canary, running.connection, AUTHORITY, ResourceLimits.unlimited())


@pytest.mark.parametrize(
    ("status", "body"),
    [(201, review(USER)), (403, forbidden(USER))],
    ids=["reviewed", "not served or not allowed"],
)
async def test_an_answer_that_names_the_user_proves_it(canary: CanaryCertificate, status: int, body: bytes) -> None:
    assert await found(canary, status, body) == Trusted(serving_chains=False)


async def test_401_is_a_refusal(canary: CanaryCertificate) -> None:
    finding = await found(canary, 401, status_body(401, "Unauthorized", "Unauthorized"))
    assert finding == NotTrusted("401 Unauthorized: Unauthorized")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (201, review("system:anonymous")),
        (201, review("")),
        (201, review([USER])),
        (201, b"{}"),
        (201, b"[]"),
        pytest.param(201, review(USER) + b" " * 64 * 1024, id="larger than any"),
        (200, b"no JSON"),
        (403, forbidden("system:anonymous")),
        (403, forbidden(USER + "x")),
        (403, forbidden("x" + USER)),
        (403, b""),
        (404, status_body(404, "NotFound")),
        (404, b"404 page not found"),
        (429, status_body(429, "TooManyRequests")),
        (500, b""),
        (503, status_body(503, "ServiceUnavailable")),
        (302, b""),
    ],
)
async def test_any_other_answer_proves_nothing(canary: CanaryCertificate, status: int, body: bytes) -> None:
    """A proxy that ends TLS answers as for an anonymous user, for example."""
    finding = await found(canary, status, body)
    assert isinstance(finding, NotProven)
    assert finding.message


async def test_a_server_that_does_not_answer(canary: CanaryCertificate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary_module, "REQUEST_SECONDS", 0.2)
    never = asyncio.Event()

    async def hang(request: web.Request) -> web.Response:
        await never.wait()
        return web.Response()

    assert isinstance(await asked(canary, hang), NotProven)


async def test_a_server_of_another_authority_learns_nothing(canary: CanaryCertificate) -> None:
    async def answer(request: web.Request) -> web.Response:
        raise AssertionError("it must not be asked")

    assert isinstance(await asked(canary, answer, Authority("a stranger's")), NotProven)
