"""No client can block the diagnostics server."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest
from aiohttp import web

from signer.controller.diagnostics.bounded_server import bounded_server

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
    async with bounded_server("127.0.0.1", 0, {"/": answer}, connection_seconds=0.1) as address:
        assert await request(address, b"") == b""
        assert await request(address, b"GET / HTTP/1.1\r\nHost:") == b""


async def test_a_hanging_handler_is_cancelled() -> None:
    async def hang(_: web.BaseRequest) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with bounded_server("127.0.0.1", 0, {"/": hang}, connection_seconds=0.1) as address:
        assert await request(address) == b""


async def test_idle_connections_close_at_the_limit() -> None:
    """Otherwise a kubelet's probe would wait behind idle connections, and the controller be restarted."""
    async with bounded_server("127.0.0.1", 0, {"/": answer}, connections=2, connection_seconds=60) as address:
        held = [await asyncio.open_connection(*address) for _ in range(20)]
        for _, writer in held:
            writer.write(b"GET / HTTP/1.1\r\nHost:")
        for _ in range(5):
            assert b"here" in await request(address)
        for _, writer in held:
            writer.close()


async def test_answered_connections_close_at_the_limit() -> None:
    """For example, with a body that is announced and does not arrive."""
    async with bounded_server("127.0.0.1", 0, {"/": answer}, connections=2, connection_seconds=60) as address:
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

    async with bounded_server("127.0.0.1", 0, {"/": slow}, connections=2, connection_seconds=60) as address:
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
