"""No client can block the diagnostics server."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest
from aiohttp import web

from signer.controller.diagnostics.bounded_server import SMALL_BODY_BYTES, Posting, Refused, bounded_server, source_of
from signer.controller.diagnostics.connections import Bounds, Closed
from signer.controller.diagnostics.source_rates import TooMuch

FEW = Bounds(connections=2, request_seconds=60, connection_seconds=60)
SHORT = Bounds(connection_seconds=0.1)
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def answer(_: web.BaseRequest) -> web.Response:
    return web.Response(text="here")


async def fail(_: web.BaseRequest) -> web.Response:
    raise RuntimeError("a-secret-that-nobody-may-read")


async def request(address: tuple[str, int], sent: bytes = REQUEST) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(sent)
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_a_connection_serves_one_request() -> None:
    async with bounded_server("127.0.0.1", 0, {"/": answer}) as address:
        said = await request(address, REQUEST * 2)
    assert said.count(b"here") == 1
    assert b"Connection: close" in said


@pytest.mark.parametrize("host", ["", "::"])
async def test_all_addresses_include_both_families(host: str) -> None:
    """A kubelet probes a Pod at its first address, which in a dual-stack cluster is of either family."""
    async with bounded_server(host, 0, {"/": answer}) as (_, port):
        for address in ("127.0.0.1", "::1"):
            assert b"here" in await request((address, port))


async def test_a_single_address_has_one_family() -> None:
    async with bounded_server("::1", 0, {"/": answer}) as (host, port):
        assert host == "::1"
        assert b"here" in await request((host, port))
        with pytest.raises(ConnectionRefusedError):
            await request(("127.0.0.1", port))


async def test_a_host_without_ipv6_serves_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    serve = socket.create_server

    def without_ipv6(address: tuple[str, int], *, family: int = socket.AF_INET, **options: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "not known")
        return serve(address, **options)

    monkeypatch.setattr(socket, "create_server", without_ipv6)
    async with bounded_server("", 0, {"/": answer}) as (_, port):
        assert b"here" in await request(("127.0.0.1", port))
    with pytest.raises(OSError, match="not known"):
        async with bounded_server("::", 0, {"/": answer}):
            pass


async def test_a_silent_connection_is_closed() -> None:
    async with bounded_server("127.0.0.1", 0, {"/": answer}, bounds=SHORT) as address:
        assert await request(address, b"") == b""
        assert await request(address, b"GET / HTTP/1.1\r\nHost:") == b""


async def test_a_hanging_handler_is_cancelled() -> None:
    async def hang(_: web.BaseRequest) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with bounded_server("127.0.0.1", 0, {"/": hang}, bounds=SHORT) as address:
        assert await request(address) == b""


async def test_idle_connections_close_at_the_limit() -> None:
    """Otherwise a kubelet's probe would wait behind idle connections, and the controller be restarted."""
    async with bounded_server("127.0.0.1", 0, {"/": answer}, bounds=FEW) as address:
        held = [await asyncio.open_connection(*address) for _ in range(20)]
        for _, writer in held:
            writer.write(b"GET / HTTP/1.1\r\nHost:")
        for _ in range(5):
            assert b"here" in await request(address)
        for _, writer in held:
            writer.close()


async def test_answered_connections_close_at_the_limit() -> None:
    """For example, with a body that is announced and does not arrive."""
    async with bounded_server("127.0.0.1", 0, {"/": answer}, bounds=FEW) as address:
        for _ in range(10):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
            async with asyncio.timeout(10):
                assert b"200 OK" in await reader.readline()
            writer.close()


async def test_busy_connections_are_kept_at_the_limit() -> None:
    here, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def slow(_: web.BaseRequest) -> web.Response:
        here.release()
        await go_on.wait()
        return web.Response(text="here")

    async with bounded_server("127.0.0.1", 0, {"/": slow}, bounds=FEW) as address:
        asked = [asyncio.create_task(request(address)) for _ in range(2)]
        for _ in range(2):
            await here.acquire()
        late = asyncio.create_task(request(address))
        await asyncio.sleep(0.05)
        assert here.locked(), "the third waits its turn"
        go_on.set()
        assert all(b"here" in said for said in await asyncio.gather(*asked, late))


async def test_clients_cause_no_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    async with bounded_server("127.0.0.1", 0, {"/": answer, "/fails": fail}) as address:
        for sent in (
            b"\x16\x03\x01\r\n\r\n",
            b"GET http://a:99999/ HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nA b: c\r\n\r\n",
        ):
            assert b" 400 " in await request(address, sent)
        assert not caplog.records
        await request(address, REQUEST.replace(b"/ ", b"/fails "))
    (record,) = caplog.records
    assert record.getMessage() == "a request could not be answered", "faults of ours are logged"


async def test_a_defect_is_not_disclosed() -> None:
    async with bounded_server("127.0.0.1", 0, {"/": fail}) as address:
        said = await request(address)
    assert b" 500 " in said
    assert b"secret" not in said
    assert b"Traceback" not in said


async def test_malformed_and_oversized_requests() -> None:
    async with bounded_server("127.0.0.1", 0, {"/": answer}) as address:
        assert b" 400 " in await request(address, b"\x16\x03\x01 nonsense\r\n\r\n")
        assert b"here" not in await request(address, b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n")
        assert b"here" in await request(address), "the next one is served"


async def test_an_empty_host_means_all_addresses() -> None:
    async with bounded_server("", 0, {"/": answer}) as (_, port):
        assert b"here" in await request(("127.0.0.1", port))


def accepts(_: web.BaseRequest) -> None:
    """Any request."""


async def echo(body: bytes, source: str) -> web.Response:
    return web.Response(body=source.encode() + b" sent " + body)


ECHO = Posting(echo, 2 * SMALL_BODY_BYTES, accepts)
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"


async def test_a_body_is_answered() -> None:
    async with bounded_server("127.0.0.1", 0, {"/": ECHO}) as address:
        assert (await request(address, POST % 4 + b"body")).endswith(b"127.0.0.1 sent body")
        chunked = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
        assert (await request(address, chunked)).endswith(b" sent body")
        said = await request(address)
        assert b" 405 " in said
        assert b"Allow: POST" in said
    async with bounded_server("127.0.0.1", 0, {"/": answer}) as address:
        assert b" 405 " in await request(address, POST % 4 + b"body")


async def test_a_body_that_is_too_large_is_not_read() -> None:
    async with bounded_server("127.0.0.1", 0, {"/": ECHO}) as address:
        assert b" 413 " in await request(address, POST % (2 * SMALL_BODY_BYTES + 1))
        chunk = b"%x\r\n" % SMALL_BODY_BYTES + b" " * SMALL_BODY_BYTES + b"\r\n"
        chunked = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + 3 * chunk
        assert b" 413 " in await request(address, chunked)


async def test_a_refused_request_is_answered_before_its_body_is_there() -> None:
    def refuses(_: web.BaseRequest) -> None:
        raise Refused(403, "not you")

    async with bounded_server("127.0.0.1", 0, {"/": Posting(echo, 10, refuses)}) as address:
        said = await request(address, POST % 10)
    assert b" 403 " in said
    assert said.endswith(b"not you\n")


async def test_connections_whose_bodies_do_not_arrive_close_at_the_limit() -> None:
    """They are no busier than silent ones: otherwise a few clients could keep every other from being answered."""
    closed: list[Closed] = []
    async with bounded_server("127.0.0.1", 0, {"/": ECHO}, bounds=FEW, report=closed.append) as address:
        held = [await asyncio.open_connection(*address) for _ in range(20)]
        for _, writer in held:
            writer.write(POST % 1000)
        for _ in range(5):
            assert b"body" in await request(address, POST % 4 + b"body")
        for _, writer in held:
            writer.close()
    assert set(closed) == {Closed.EVICTED}


async def test_a_body_that_does_not_arrive_ends_the_connection() -> None:
    """However long an answer may take."""
    closed: list[Closed] = []
    bounds = Bounds(request_seconds=0.1, connection_seconds=60)
    async with bounded_server("127.0.0.1", 0, {"/": ECHO}, bounds=bounds, report=closed.append) as address:
        assert await request(address, POST % 4 + b"bo") == b""
    assert closed == [Closed.TIMEOUT]


async def test_an_answer_may_take_longer_than_a_request() -> None:
    async def slow(body: bytes, _: str) -> web.Response:
        await asyncio.sleep(0.3)
        return web.Response(body=body)

    bounds = Bounds(request_seconds=0.1, connection_seconds=60)
    async with bounded_server("127.0.0.1", 0, {"/": Posting(slow, 10, accepts)}, bounds=bounds) as address:
        assert (await request(address, POST % 4 + b"body")).endswith(b"body")


async def test_large_bodies_are_answered_one_at_a_time() -> None:
    here, go_on, most, now = asyncio.Event(), asyncio.Event(), 0, 0

    async def counts(body: bytes, _: str) -> web.Response:
        nonlocal most, now
        now += 1
        most = max(most, now)
        here.set()
        await go_on.wait()
        now -= 1
        return web.Response(text=f"{len(body)} bytes")

    size = SMALL_BODY_BYTES + 1
    async with bounded_server("127.0.0.1", 0, {"/": Posting(counts, size, accepts)}) as address:
        large = [asyncio.create_task(request(address, POST % size + b" " * size)) for _ in range(4)]
        await here.wait()
        go_on.set()
        assert all(b"%d bytes" % size in said for said in await asyncio.gather(*large))
        assert most == 1


async def test_one_address_holds_no_more_than_its_share() -> None:
    here, go_on, closed = asyncio.Semaphore(0), asyncio.Event(), list[Closed]()

    async def slow(_: bytes, __: str) -> web.Response:
        here.release()
        await go_on.wait()
        return web.Response(text="here")

    bounds = Bounds(connections=4, connections_of_source=2, request_seconds=60, connection_seconds=60)
    routes = {"/": Posting(slow, 10, accepts)}
    async with bounded_server("", 0, routes, bounds=bounds, report=closed.append) as (_, port):
        busy = [asyncio.create_task(request(("127.0.0.1", port), POST % 0)) for _ in range(2)]
        for _ in range(2):
            await here.acquire()
        assert await request(("127.0.0.1", port), POST % 0) == b""
        assert closed == [Closed.TOO_MANY]
        other = asyncio.create_task(request(("::1", port), POST % 0))
        await here.acquire()
        go_on.set()
        assert all(b"here" in said for said in await asyncio.gather(*busy, other))


async def test_the_address_with_most_connections_makes_room() -> None:
    """One with few is not evicted by one with many, however old its connections are."""
    bounds = Bounds(connections=4, connections_of_source=4, request_seconds=60, connection_seconds=60)
    async with bounded_server("", 0, {"/": ECHO}, bounds=bounds) as (_, port):
        reader, writer = await asyncio.open_connection("::1", port)
        writer.write(POST % 4)
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for _, other in held:
            other.write(POST % 4)
        assert b"body" in await request(("127.0.0.1", port), POST % 4 + b"body")
        writer.write(b"slow")
        assert (await reader.read()).endswith(b"::1 sent slow")
        for _, one in [*held, (reader, writer)]:
            one.close()


async def test_an_address_that_connects_too_often_is_not_served() -> None:
    closed: list[Closed] = []

    def charge(source: str) -> None:
        if source == "127.0.0.1":
            raise TooMuch

    async with bounded_server("", 0, {"/": ECHO}, accepts=charge, report=closed.append) as (_, port):
        assert await request(("127.0.0.1", port), POST % 4 + b"body") == b""
        assert b"body" in await request(("::1", port), POST % 4 + b"body")
    assert closed == [Closed.TOO_MANY]


@pytest.mark.parametrize(
    ("peer", "source"),
    [
        (("192.0.2.7", 4711), "192.0.2.7"),
        (("::ffff:192.0.2.7", 4711, 0, 0), "192.0.2.7"),
        (("fe80::1%eth0", 4711, 0, 2), "fe80::1"),
        (None, ""),
    ],
)
def test_the_address_of_a_client(peer: object, source: str) -> None:
    assert source_of(peer) == source
