"""What hostile API servers and load balancers can do to a pass: leave a server unseen, or its answer unknown."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from aiohttp import web

from signer.authority import CertificateAuthority, load_certificate_authority
from signer.authority.canary_certificate import CanaryCertificate
from signer.kube.connection import ClusterConnection
from signer.kube.resource_limits import ResourceLimits
from signer.rotation.servers import asking, observing
from signer.rotation.servers.observation import (
    Accepted,
    ExpectedServer,
    NotKnown,
    ServersObserved,
)
from signer.rotation.servers.observing import CanaryNotJournaled, Journal, TwoAuthorities, observe_servers
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from tests.unit.signer.kube.support import Pair, server_context, status_body
from tests.unit.signer.rotation.servers.support import (
    AUTHORITIES,
    ENDPOINT_NAME,
    NEW,
    OLD,
    STRANGER,
    A,
    B,
    Setting,
    by_machine,
    classify,
    link,
    machine_at,
    reasons,
    running,
    serving,
    setting,
)

USERS: Final = [
    f"node-attestation:ca-canary:{one.certificate.public_key_hash[7:23]}" for one in (AUTHORITIES.old, AUTHORITIES.new)
]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def no_journal(canary: CanaryCertificate, authority: CertificateAuthority) -> None:
    """Journal nowhere."""


async def observe(
    port: int,
    *expected: ExpectedServer,
    address: str = "127.0.0.2",
    authorities: TwoAuthorities = AUTHORITIES,
    journal: Journal = no_journal,
    name: str = ENDPOINT_NAME,
) -> ServersObserved:
    return await observe_servers(
        ClusterConnection(f"https://{address}:{port}", b"", tls_server_name=name),
        expected,
        authorities,
        classify=classify,
        journal=journal,
        now=lambda: datetime.now(UTC),
        limits=ResourceLimits.unlimited(),
    )


def context_of(certificate: tuple[bytes, bytes]) -> ssl.SSLContext:
    return server_context(Pair(*certificate))


@contextlib.asynccontextmanager
async def answering(handler: Handler, certificate: tuple[bytes, bytes] | None = None) -> AsyncIterator[int]:
    """A server at A's address that answers every request by ``handler``; yields its port."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        context = context_of(serving(OLD, A) if certificate is None else certificate)
        await web.TCPSite(runner, "127.0.0.2", 0, ssl_context=context).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def answer(status: int, body: bytes) -> Handler:
    async def respond(request: web.Request) -> web.Response:
        headers = {"Location": f"https://{A.addresses[0]}/"} if status == 302 else {}
        return web.Response(status=status, body=body, content_type="application/json", headers=headers)

    return respond


def review(user: str) -> bytes:
    return json.dumps({"kind": "SelfSubjectReview", "status": {"userInfo": {"username": user}}}).encode()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (201, review("system:anonymous")),
        (201, review("kubernetes-admin")),
        (200, b"{}"),
        (403, status_body(403, "Forbidden", 'selfsubjectreviews is forbidden: User "system:anonymous" cannot')),
        (404, status_body(404, "NotFound")),
        (302, b""),
        (500, b"{}"),
        (201, b" " * 100_000),
    ],
)
async def test_only_an_answer_that_names_the_canary_proves_anything(status: int, body: bytes) -> None:
    async with answering(answer(status, body)) as port:
        (found,) = (await observe(port, A)).observations
    assert isinstance(found.accepts_old, NotKnown)
    assert isinstance(found.accepts_new, NotKnown)


async def test_the_user_of_one_canary_proves_nothing_of_the_other() -> None:
    async with answering(answer(201, review(USERS[0]))) as port:
        (found,) = (await observe(port, A)).observations
    assert found.accepts_old == Accepted()
    assert isinstance(found.accepts_new, NotKnown)


async def test_a_server_that_accepts_and_refuses_is_not_known() -> None:
    """It may be two servers with one certificate."""
    turn = 0

    async def respond(request: web.Request) -> web.Response:
        nonlocal turn
        turn += 1
        odd = turn % 2
        body = review(USERS[0]) if odd else status_body(401, "Unauthorized")
        return web.Response(status=201 if odd else 401, body=body, content_type="application/json")

    async with answering(respond) as port:
        observed = await observe(port, A)
    (found,) = observed.observations
    assert isinstance(found.accepts_old, NotKnown)
    assert "one pass" in found.accepts_old.message


@pytest.mark.parametrize("first_fails", [True, False])
async def test_one_failed_request_of_several_hides_no_answer(first_fails: bool) -> None:
    turn = 0

    async def respond(request: web.Request) -> web.Response:
        nonlocal turn
        turn += 1
        fails = (turn % 2 == 1) == first_fails
        body = b"{}" if fails else review(USERS[0])
        return web.Response(status=500 if fails else 201, body=body, content_type="application/json")

    async with answering(respond) as port:
        (found,) = (await observe(port, A)).observations
    assert found.accepts_old == Accepted()


async def test_a_certificate_that_names_two_machines_is_of_neither() -> None:
    both = Setting(A, serving(OLD, A, B), (OLD, NEW))
    with running(both) as servers:
        observed = await servers.observe(A, B)
    assert observed.observations == ()
    assert "several control-plane Machines (a, b)" in reasons(observed)["a"]


async def test_a_server_with_the_name_of_another_machine_hides_behind_no_name() -> None:
    """B presents A's names: B is missing, and what comes under A's name is not of one server."""
    with running(setting(A), Setting(B, serving(OLD, A), (OLD,))) as servers:
        observed = await servers.observe(A, B)
    assert observed.observations == ()
    assert "several certificates" in reasons(observed)["a"]
    assert "its certificate names Machine a" in reasons(observed)["b"]


async def test_both_answers_come_under_one_certificate() -> None:
    """Each canary reaches another server with another certificate of the same names."""
    turns = iter([0, 0, 1, 1])
    imposter = Setting(machine_at("127.0.0.4", "a"), serving(OLD, A), (NEW,))
    with running(setting(A, accepts=(OLD,)), imposter, choose=lambda number, backends: next(turns, 0)) as servers:
        observed = await servers.observe(A)
    assert observed.observations == ()
    assert "several certificates" in reasons(observed)["a"]


async def test_a_server_that_closes_every_connection() -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    server = await asyncio.start_server(close, "127.0.0.2", 0)
    async with server:
        observed = await observe(server.sockets[0].getsockname()[1], A)
    assert observed.observations == ()
    assert "at https://127.0.0.2" in reasons(observed)["a"]


async def test_a_server_that_closes_after_its_handshake_has_answered_nothing() -> None:
    async def close(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with answering(close) as port:
        (found,) = (await observe(port, A)).observations
    assert isinstance(found.accepts_old, NotKnown)
    assert isinstance(found.accepts_new, NotKnown)


async def test_a_server_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "TRY_SECONDS", 0.2)
    monkeypatch.setattr(observing, "ENDPOINT_SECONDS", 0.5)
    never = asyncio.Event()

    async def hang(request: web.Request) -> web.Response:
        await never.wait()
        return web.Response()

    async with answering(hang) as port:
        (found,) = (await observe(port, A)).observations
    assert isinstance(found.accepts_old, NotKnown)
    assert "no answer within" in found.accepts_old.message


async def test_a_server_that_never_shakes_hands_ends_with_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "ENDPOINT_SECONDS", 0.2)
    monkeypatch.setattr(observing, "ADDRESSES_SECONDS", 0.2)
    opened: list[asyncio.StreamWriter] = []

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        with contextlib.suppress(OSError):
            while await reader.read(1024):
                pass
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.2", 0)
    async with server:
        observed = await observe(server.sockets[0].getsockname()[1], A, B)
    assert "no answer at its addresses" in reasons(observed)["a"]
    assert set(reasons(observed)) == {"a", "b"}
    assert len(opened) <= observing.TRIES_AT_ONCE + 1, "the first connections to the endpoint, and one by address"


@pytest.mark.parametrize(("count", "reason"), [(100, "too long"), (9, "10 certificates")])
async def test_a_chain_without_end(count: int, reason: str) -> None:
    async with answering(answer(201, review(USERS[0])), serving(OLD, A, links=link(NEW, OLD) * count)) as port:
        observed = await observe(port, A)
    assert observed.observations == ()
    assert reason in reasons(observed)["a"]


async def test_a_certificate_of_another_authority_of_the_same_name() -> None:
    async def respond(request: web.Request) -> web.Response:
        raise AssertionError("it must not be asked")

    async with answering(respond, serving(STRANGER, A)) as port:
        observed = await observe(port, A)
    assert observed.observations == ()
    assert "at https://127.0.0.2" in reasons(observed)["a"]


async def test_a_server_without_the_name_of_the_endpoint_is_seen_at_its_address_only() -> None:
    """Clients of the endpoint refuse it, too."""
    with running(Setting(A, OLD.serving([A.node_name], []), (OLD,))) as servers:
        (found,) = (await servers.observe(A)).observations
        assert found.asked_at == servers.apis["127.0.0.2"].server
    assert found.accepts_old == Accepted()


async def test_the_same_certificate_in_two_chains_is_not_of_one_server() -> None:
    """Or the server was reading its files, and each answer may be from before or after."""
    certificate, key = serving(OLD, A)
    linked = Setting(machine_at("127.0.0.4", "a"), (certificate + link(NEW, OLD), key), (OLD,))
    with running(Setting(A, (certificate, key), (OLD,)), linked) as servers:
        observed = await servers.observe(A)
    assert "several certificates or chains" in reasons(observed)["a"]


async def test_few_connections_are_open_at_once() -> None:
    at_once, most = 0, 0

    async def count(request: web.Request) -> web.Response:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1
        return web.Response()

    async with answering(count) as port:
        observed = await observe(port, *(machine_at("127.0.0.2", f"m{number}") for number in range(8)))
    assert len(observed.unseen) == 8
    assert most == observing.TRIES_AT_ONCE


async def test_a_client_certificate_is_no_serving_certificate() -> None:
    certificate = OLD.client(A.node_name, (), timedelta(days=1))
    async with answering(answer(201, review(USERS[0])), certificate) as port:
        observed = await observe(port, A)
    assert observed.observations == ()


async def test_without_a_journal_there_is_no_canary() -> None:
    async def full(canary: CanaryCertificate, authority: CertificateAuthority) -> None:
        raise CanaryNotJournaled("the disk is full")

    async def respond(request: web.Request) -> web.Response:
        raise AssertionError("it must not be asked")

    async with answering(respond) as port:
        observed = await observe(port, A, journal=full)
    assert reasons(observed) == {"a": "no canary can be used: the disk is full"}


async def test_an_authority_that_is_about_to_end_issues_no_canary() -> None:
    made = new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256, duration=timedelta(minutes=5))
    ending = load_certificate_authority(made.secret_data, now=datetime.now(UTC))
    for authorities in (TwoAuthorities(ending, AUTHORITIES.new), TwoAuthorities(AUTHORITIES.old, ending)):
        observed = await observe(1, A, authorities=authorities)
        assert "no canary can be used" in reasons(observed)["a"]


async def test_too_many_machines_are_not_asked() -> None:
    many = [machine_at("127.0.0.2", f"m{number}") for number in range(observing.MAXIMUM_SERVERS + 1)]
    with running(setting(A)) as servers:
        observed = await servers.observe(*many)
        assert servers.balancer.connections == 0
    assert observed.observations == ()
    assert len(observed.unseen) == len(many)


async def test_a_server_that_disappears_between_the_canaries_is_unseen() -> None:
    without_address = ExpectedServer(A.machine, A.node_name, A.internal_names, ())
    with running(setting(A), choose=lambda number, backends: 0 if number < 2 else 1) as servers:
        servers.balancer.backends = (*servers.balancer.backends, ("127.0.0.9", 9))
        observed = await servers.observe(without_address)
    assert "one canary only" in reasons(observed)["a"]


async def test_an_endpoint_that_is_no_address() -> None:
    observed = await observe(99_999_999, A)
    assert "the endpoint cannot be asked" in reasons(observed)["a"]


async def test_a_machine_without_address_and_node() -> None:
    """It is being created."""
    bare = ExpectedServer("c", "", (), ())
    with running(setting(A)) as servers:
        observed = await servers.observe(A, bare)
    assert set(by_machine(observed)) == {"a"}
    assert "its Machine has no IP address" in reasons(observed)["c"]


async def test_two_machines_of_one_node_are_not_told_apart() -> None:
    with running(setting(A)) as servers:
        observed = await servers.observe(A, ExpectedServer("twin", A.node_name, A.internal_names, A.addresses))
    assert set(reasons(observed)) == {"a", "twin"}
