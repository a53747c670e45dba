"""Asking every API server for its key set: whose answer counts, and to whom the kubeconfig's credential goes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from signer.kube.connection import ClusterConnection
from signer.kube.resource_limits import ResourceLimits
from signer.rotation.servers.key_observing import observe_key
from signer.rotation.servers.observation import (
    ExpectedServer,
    Missing,
    NotKnown,
    NotServed,
    Publication,
    Published,
)
from signer.rotation.servers.observing import MAXIMUM_SERVERS, NoServersExpected, TwoAuthorities
from tests.support.balancer import Balancer
from tests.support.processes import free_port
from tests.unit.signer.kube.support import Pair, server_context, status_body
from tests.unit.signer.rotation.servers.keys import OTHER, RSA_KEY, hash_of, jwk
from tests.unit.signer.rotation.servers.support import AUTHORITIES, ENDPOINT_NAME, NEW, OLD, A, B, machine_at, serving

BOTH = json.dumps({"keys": [jwk(OTHER), jwk(RSA_KEY)]}).encode()
OLD_ALONE = json.dumps({"keys": [jwk(OTHER)]}).encode()
TOKEN = "token-of-the-kubeconfig"


@dataclass
class KeyServer:
    """Publishes a key set at its address, and remembers what it was asked."""

    server: ExpectedServer
    body: bytes = BOTH
    status: int = 200
    media_type: str = "application/jwk-set+json"
    certificate: tuple[bytes, bytes] | None = None
    asked: list[tuple[str, str, str, str]] = field(default_factory=list)

    async def respond(self, request: web.Request) -> web.Response:
        headers = request.headers
        self.asked.append((request.method, request.path, headers.get("Accept", ""), headers.get("Authorization", "")))
        kind = self.media_type if self.status == 200 else "application/json"
        return web.Response(status=self.status, body=self.body, content_type=kind)


@contextlib.asynccontextmanager
async def published_by(*servers: KeyServer) -> AsyncIterator[Balancer]:
    """All of them behind a load balancer."""
    port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        for one in servers:
            application = web.Application()
            application.router.add_route("*", "/{path:.*}", one.respond)
            runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            context = server_context(Pair(*(one.certificate or serving(OLD, one.server))))
            await web.TCPSite(runner, one.server.addresses[0], port, ssl_context=context).start()
        backends = [(one.server.addresses[0], port) for one in servers]
        yield stack.enter_context(Balancer(backends, port=port))


async def observe(
    balancer: Balancer, *expected: ExpectedServer, authorities: TwoAuthorities = AUTHORITIES
) -> Mapping[str, Publication]:
    connection = ClusterConnection(balancer.server, b"", tls_server_name=ENDPOINT_NAME, bearer_token=TOKEN)
    return await observe_key(connection, expected, authorities, hash_of(RSA_KEY), ResourceLimits.unlimited())


async def test_every_server_publishes_the_key() -> None:
    a, b = KeyServer(A), KeyServer(B, certificate=serving(NEW, B))
    async with published_by(a, b) as balancer:
        assert await observe(balancer, A, B) == {"a": Published(), "b": Published()}
    request = ("GET", "/openid/v1/jwks", "application/jwk-set+json", f"Bearer {TOKEN}")
    assert {*a.asked, *b.asked} == {request}


async def test_the_one_that_misses_it_is_named() -> None:
    async with published_by(KeyServer(A), KeyServer(B, OLD_ALONE)) as balancer:
        assert await observe(balancer, A, B) == {"a": Published(), "b": Missing()}


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        (OLD_ALONE, 200, Missing()),
        (status_body(404, "NotFound"), 404, NotServed()),
        (status_body(403, "Forbidden", "may not"), 403, "system:service-account-issuer-discovery"),
        (status_body(401, "Unauthorized"), 401, "cannot be read"),
        (b" " * 100_000, 200, "larger than"),
        (b"keys", 200, "JSON"),
        (b"[]", 200, "JSON"),
        (b"{}", 200, "no list"),
        (json.dumps({"keys": [jwk(RSA_KEY), jwk(RSA_KEY)]}).encode(), 200, "the same ID"),
        (b"", 500, "cannot be read"),
    ],
)
async def test_only_a_key_set_with_the_key_counts(body: bytes, status: int, expected: Publication | str) -> None:
    async with published_by(KeyServer(A, body, status)) as balancer:
        found = (await observe(balancer, A))["a"]
    if isinstance(expected, str):
        assert isinstance(found, NotKnown)
        assert expected in found.message
    else:
        assert found == expected


async def test_another_media_type_is_no_key_set() -> None:
    async with published_by(KeyServer(A, media_type="application/json")) as balancer:
        assert isinstance((await observe(balancer, A))["a"], NotKnown)


async def test_a_server_that_is_not_there_holds_by_name() -> None:
    async with published_by(KeyServer(A)) as balancer:
        found = await observe(balancer, A, B)
    assert found["a"] == Published()
    assert isinstance(found["b"], NotKnown)


@pytest.mark.parametrize(
    "certificate",
    [serving(OLD, machine_at("127.0.0.9", "z")), serving(OLD, A, B)],
    ids=["of no Machine of the control plane", "of two"],
)
async def test_the_credential_is_sent_to_api_servers_alone(certificate: tuple[bytes, bytes]) -> None:
    """A node may have a serving certificate of the cluster's CA, and an address that was an API server's."""
    foreign = KeyServer(A, certificate=certificate)
    async with published_by(foreign) as balancer:
        found = await observe(balancer, A, B)
    assert foreign.asked == []
    assert all(isinstance(one, NotKnown) and "certificate names" in one.message for one in found.values())


async def test_no_server_and_too_many() -> None:
    many = [machine_at("127.0.0.2", f"m{number}") for number in range(MAXIMUM_SERVERS + 1)]
    async with published_by(KeyServer(A)) as balancer:
        with pytest.raises(NoServersExpected):
            await observe(balancer)
        found = await observe(balancer, *many)
    assert len(found) == len(many)
    assert all(isinstance(one, NotKnown) for one in found.values())


async def test_a_credential_that_cannot_be_used() -> None:
    connection = ClusterConnection(
        "https://127.0.0.1:6443", b"", client_certificate=b"no certificate", client_key=b"no key"
    )
    found = await observe_key(connection, (A,), AUTHORITIES, hash_of(RSA_KEY), ResourceLimits.unlimited())
    assert isinstance(found["a"], NotKnown)
    assert "cannot be used" in found["a"].message
