"""One GET to a chosen host: as that host, once, in bounds."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from types import MappingProxyType

import pytest

from attestors.clouds import https
from attestors.clouds.calls import CloudCalls, Deadline, too_slow
from attestors.clouds.errors import CloudUnavailable
from attestors.clouds.https import HTTPSAnswer, HTTPSClient, Route
from tests.integration.aws.fixtures import PluginHarness
from tests.support.fake_aws import Answer, FakeAWS
from tests.support.reset_connection import reset_connection
from tests.support.silent_address import resolve, silent
from tests.unit.authenticator.api.servers import ADDRESS, Connection, serving

HOST = "sts.eu-west-1.amazonaws.com"


async def get(aws: FakeAWS, calls: CloudCalls, host: str = HOST, maximum_bytes: int = 100) -> HTTPSAnswer:
    client = HTTPSClient(calls, routes=aws.elsewhere.routes)
    return await client.get(
        "AWS STS", "Get", host, "/?x=y", headers={"Accept": "text/plain"}, maximum_bytes=maximum_bytes
    )


async def test_an_answer_of_any_status_and_type_is_handed_on(aws: FakeAWS, calls: CloudCalls) -> None:
    aws.fail("sts", Answer(418, b"short and stout", "text/plain"))
    assert await get(aws, calls) == HTTPSAnswer(418, "text/plain", b"short and stout")
    [seen] = aws.sts_requests
    assert (seen.method, seen.path, seen.query) == ("GET", "/", "x=y")
    assert dict(seen.headers)["Accept"] == "text/plain"


async def test_a_redirect_is_not_followed(aws: FakeAWS, calls: CloudCalls) -> None:
    aws.fail("sts", Answer(307, b"", headers={"Location": f"https://{aws.issuer.host}/.well-known/jwks.json"}))
    assert (await get(aws, calls)).status == 307
    assert aws.issuer_paths == ()
    assert len(aws.sts_requests) == 1


async def test_a_body_is_bounded(aws: FakeAWS, calls: CloudCalls) -> None:
    aws.fail("sts", Answer(200, b"x" * 100, "text/plain"))
    assert len((await get(aws, calls)).body) == 100
    for size in (101, 2 * 1024 * 1024):
        aws.fail("sts", Answer(200, b"x" * size, "text/plain"))
        with pytest.raises(CloudUnavailable, match="more than 100 bytes"):
            await get(aws, calls)


@pytest.mark.parametrize("size", [b"-1", b"-5"])
async def test_a_chunk_of_a_size_that_is_none_is_not_read(calls: CloudCalls, size: bytes) -> None:
    import ssl

    def behave(connection: Connection) -> None:
        connection.read()
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + size + b"\r\n" + b"x" * 200)

    with serving(behave, names=[HOST]) as server:
        trusted = ssl.create_default_context(cadata=server.authority)
        client = HTTPSClient(calls, routes={HOST: Route(ADDRESS, server.port, trusted)})
        with pytest.raises(CloudUnavailable, match="aborted its answer"):
            await client.get("AWS STS", "Get", HOST, "/", maximum_bytes=100)


async def test_a_host_that_does_not_answer_keeps_no_other_hosts_answers(aws: FakeAWS) -> None:
    """Whoever has a bootstrap token and has seen a document may have any known Region's STS asked."""
    gone, routes = "sts.af-south-1.amazonaws.com", aws.elsewhere.routes
    threads = CloudCalls(threads=2, waiting=2, deadline_seconds=5)
    with socket.create_server((ADDRESS, 0)) as listening:  # and nobody accepts
        there = Route(ADDRESS, listening.getsockname()[1], routes[HOST].trusted)
        client = HTTPSClient(threads, routes={**routes, gone: there})
        asked = [asyncio.create_task(client.get("AWS STS", "Get", gone, "/", maximum_bytes=100)) for _ in range(4)]
        await asyncio.sleep(0)
        try:
            assert (await client.get("AWS STS", "Get", HOST, "/", maximum_bytes=1000)).status
            assert not any(one.done() for one in asked)
        finally:
            listening.close()
            await asyncio.gather(*asked, return_exceptions=True)
            threads.close()


@pytest.fixture
def impostor() -> Iterator[FakeAWS]:
    """It listens where STS is, with a certificate of a trusted authority for another name."""
    with FakeAWS(certificate_for="sts.evil.example") as cloud:
        yield cloud


async def test_another_hosts_certificate_is_refused(impostor: FakeAWS, calls: CloudCalls) -> None:
    with pytest.raises(CloudUnavailable, match="no certificate that is trusted"):
        await get(impostor, calls)
    assert impostor.sts_requests == ()


async def test_an_unknown_authoritys_certificate_is_refused(aws: FakeAWS, calls: CloudCalls) -> None:
    import ssl

    routes = {
        host: Route(route.address, route.port, ssl.create_default_context())
        for host, route in aws.elsewhere.routes.items()
    }
    client = HTTPSClient(calls, routes=MappingProxyType(routes))
    with pytest.raises(CloudUnavailable, match="no certificate that is trusted"):
        await client.get("AWS STS", "Get", HOST, "/", maximum_bytes=10)
    assert aws.sts_requests == ()


async def test_a_host_that_hangs_is_left(aws: FakeAWS) -> None:
    aws.fail("sts", Answer(hangs=True))
    calls = CloudCalls(deadline_seconds=0.3)
    with pytest.raises(CloudUnavailable, match="in time"):
        await get(aws, calls)
    await asyncio.to_thread(calls.close)


async def test_an_unreachable_host_is_an_outage(harness: PluginHarness, calls: CloudCalls) -> None:
    import socket
    import ssl

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        route = Route("127.0.0.1", taken.getsockname()[1], ssl.create_default_context())
        client = HTTPSClient(calls, routes=MappingProxyType({HOST: route}))
        with pytest.raises(CloudUnavailable, match=f"AWS STS: {HOST} is unreachable"):
            await client.get("AWS STS", "Get", HOST, "/", maximum_bytes=10)


async def test_a_silent_address_keeps_no_call_from_the_next(aws: FakeAWS, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where IPv6 is broken, and the host has both."""
    resolve(monkeypatch, HOST, "::1", ADDRESS)
    aws.fail("sts", Answer(200, b"x", "text/plain"))
    there = aws.elsewhere.routes[HOST]
    calls = CloudCalls(deadline_seconds=8)
    with silent("::1", there.port):
        client = HTTPSClient(calls, routes={HOST: Route(HOST, there.port, there.trusted)})
        assert (await client.get("AWS STS", "Get", HOST, "/", maximum_bytes=10)).body == b"x"
    await asyncio.to_thread(calls.close)


async def test_a_connection_that_is_reset_before_the_handshake_is_closed(
    aws: FakeAWS, calls: CloudCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = reset_connection()
    descriptor = plain.fileno()
    monkeypatch.setattr(https, "dial", lambda *_: plain)
    with pytest.raises(CloudUnavailable, match="is unreachable") as caught:
        await get(aws, calls)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)  # what is left open would live as long as the error behind this one
    assert isinstance(caught.value.__context__, ConnectionResetError)


async def test_a_connection_that_is_made_at_the_deadline_is_closed(
    aws: FakeAWS, calls: CloudCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = socket.socket()

    def dial(_host: str, _port: int, seconds: float) -> socket.socket:
        monkeypatch.setattr(Deadline, "remaining", passed)
        return plain

    def passed(deadline: Deadline) -> float:
        raise too_slow(deadline.service)

    monkeypatch.setattr(https, "dial", dial)
    with pytest.raises(CloudUnavailable, match="in time"):
        await get(aws, calls)
    assert plain.fileno() == -1


async def test_proxies_of_the_environment_are_not_used(
    aws: FakeAWS, calls: CloudCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    aws.fail("sts", Answer(200, b"x", "text/plain"))
    assert (await get(aws, calls)).status == 200
