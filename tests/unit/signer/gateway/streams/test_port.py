from __future__ import annotations

import asyncio
import hashlib
import ssl
from urllib.parse import urlsplit

import pytest
from aiohttp import web

from signer.gateway.streams import PortForwardFailed, StreamEnded, port_stream
from signer.gateway.websocket import WebSocketSession
from tests.unit.signer.gateway.support import POD, V4_ONLY, api_server, bytes_of, until_closed
from tests.unit.signer.kube.support import Authority

PORT = (8080).to_bytes(2, "little")
PIECE = bytes(range(256)) * 128


async def begin(websocket: web.WebSocketResponse) -> None:
    """What a kubelet sends first."""
    await websocket.send_bytes(b"\x00" + PORT)
    await websocket.send_bytes(b"\x01" + PORT)


async def test_bytes_in_both_directions(authority: Authority, tls: ssl.SSLContext, session: WebSocketSession) -> None:
    async def script(websocket: web.WebSocketResponse) -> None:
        await begin(websocket)
        assert await bytes_of(websocket) == b"\x00GET / HTTP/1.0\r\n\r\n"
        await websocket.send_bytes(b"\x00")
        await websocket.send_bytes(b"\x00HTTP/1.0 200 OK\r\n")
        await websocket.send_bytes(b"\x00\r\n")

    async with api_server(authority, tls, session, script, V4_ONLY) as opened:
        stream = await port_stream(opened.api, POD, 8080)
        await stream.write(b"GET / HTTP/1.0\r\n\r\n")
        assert await stream.read() == b"HTTP/1.0 200 OK\r\n"
        assert await stream.read() == b"\r\n"
        assert [await stream.read(), await stream.read()] == [b"", b""]
        with pytest.raises(StreamEnded):
            await stream.write(b"x")
        await stream.close()
    (asked,) = opened.asked.targets
    assert urlsplit(asked).path == "/api/v1/namespaces/default/pods/web-0/portforward"
    assert urlsplit(asked).query == "ports=8080"
    (fields,) = opened.asked.fields
    assert fields["Sec-WebSocket-Protocol"] == "v4.channel.k8s.io"
    assert fields.getall("Impersonate-User") == ["node-access:alice"]


async def test_megabytes(authority: Authority, tls: ssl.SSLContext, session: WebSocketSession) -> None:
    total = 4 * 1024 * 1024

    async def script(websocket: web.WebSocketResponse) -> None:
        await begin(websocket)
        echoed = 0
        while echoed < total:
            message = await bytes_of(websocket)
            echoed += len(message) - 1
            await websocket.send_bytes(message)

    async with api_server(authority, tls, session, script) as opened:
        stream = await port_stream(opened.api, POD, 8080)
        sent, received = hashlib.sha256(), hashlib.sha256()

        async def upload() -> None:
            for number in range(total // len(PIECE)):
                piece = number.to_bytes(4) + PIECE[4:]
                sent.update(piece)
                await stream.write(piece)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(upload())
            while data := await stream.read():
                received.update(data)
        assert received.digest() == sent.digest()
        await stream.close()


async def test_what_was_written_before_closing_arrives(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession
) -> None:
    received = bytearray()
    done = asyncio.Event()

    async def script(websocket: web.WebSocketResponse) -> None:
        await begin(websocket)
        async for message in websocket:
            received.extend(message.data[1:])
        done.set()

    async with api_server(authority, tls, session, script) as opened:
        stream = await port_stream(opened.api, POD, 8080)
        await stream.write(PIECE * 16)
        await stream.close()
        await asyncio.wait_for(done.wait(), 10)
        assert received == PIECE * 16


async def test_an_error_is_shown_once(authority: Authority, tls: ssl.SSLContext, session: WebSocketSession) -> None:
    text = b'error forwarding port 8080 to pod abc, uid : failed to connect to "localhost:8080": refused\x1b[31m'

    async def script(websocket: web.WebSocketResponse) -> None:
        await begin(websocket)
        await websocket.send_bytes(b"\x01" + text)

    async with api_server(authority, tls, session, script) as opened:
        stream = await port_stream(opened.api, POD, 8080)
        with pytest.raises(PortForwardFailed, match=r'connect to "localhost:8080": refused\\x1b\[31m$'):
            await stream.read()
        assert await stream.read() == b""
        await stream.close()


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([b"\x00\x50\x00"], "another port"),
        ([b"\x00hello"], "another port"),
        ([b"\x02" + PORT], "unknown channel"),
        ([b""], "without a channel"),
    ],
)
async def test_a_hostile_server_forwards_nothing(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession, messages: list[bytes], reason: str
) -> None:
    async def script(websocket: web.WebSocketResponse) -> None:
        for message in messages:
            await websocket.send_bytes(message)
        await until_closed(websocket)

    async with api_server(authority, tls, session, script) as opened:
        stream = await port_stream(opened.api, POD, 8080)
        with pytest.raises(PortForwardFailed, match=reason):
            await stream.read()
        await stream.close()


async def test_text_is_no_data(authority: Authority, tls: ssl.SSLContext, session: WebSocketSession) -> None:
    async def script(websocket: web.WebSocketResponse) -> None:
        await begin(websocket)
        await websocket.send_str("\x00hello")

    async with api_server(authority, tls, session, script) as opened:
        stream = await port_stream(opened.api, POD, 8080)
        with pytest.raises(PortForwardFailed, match="text message"):
            await stream.read()
        await stream.close()


async def test_a_broken_connection_is_no_end_of_data(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession
) -> None:
    async def script(websocket: web.WebSocketResponse) -> None:
        await begin(websocket)
        await websocket.send_bytes(b"\x00half an ans")
        assert websocket._req is not None
        assert websocket._req.transport is not None
        websocket._req.transport.close()

    async with api_server(authority, tls, session, script) as opened:
        stream = await port_stream(opened.api, POD, 8080)
        assert await stream.read() == b"half an ans"
        with pytest.raises(PortForwardFailed, match="broke"):
            await stream.read()
        await stream.close()


async def test_closing_ends_a_waiting_read(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession
) -> None:
    async def script(websocket: web.WebSocketResponse) -> None:
        await begin(websocket)
        await until_closed(websocket)

    async with api_server(authority, tls, session, script) as opened:
        stream = await port_stream(opened.api, POD, 8080)
        reading = asyncio.create_task(stream.read())
        await asyncio.sleep(0)
        await stream.close()
        with pytest.raises(PortForwardFailed, match="closed here"):
            await reading


@pytest.mark.parametrize("port", [0, -1, 65536])
async def test_a_number_that_is_no_port_is_not_asked(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession, port: int
) -> None:
    async with api_server(authority, tls, session, begin) as opened:
        with pytest.raises(ValueError, match="from 1 to 65535"):
            await port_stream(opened.api, POD, port)
    assert opened.asked.targets == []
