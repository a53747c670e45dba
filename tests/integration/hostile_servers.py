"""API servers that do everything wrong, on 127.0.0.1 over TLS."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import yaml

from signer.testing.api.authorities import Issuer, server_context
from signer.testing.clients import LoopThread

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_EMPTY_LIST: Final = json.dumps({"metadata": {"resourceVersion": "1"}, "items": []}).encode()
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


async def _request(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Takes every request and answers none."""
    await reader.read(-1)


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers in no protocol at all."""
    await _request(reader)
    writer.write(b"\x00\x1b[31m\xff" * 100)
    await writer.drain()


async def no_json(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A captive portal."""
    await _request(reader)
    body = b"<html>\x1b[31mlog in first</html>"
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    await writer.drain()


async def endless_list(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A list without end."""
    await _request(reader)
    writer.write(_HEAD + b'Connection: close\r\n\r\n{"metadata":{},"items":[')
    await _pour(writer, b"{}," * 10_000)


async def endless_watch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An empty list, then a watch that is one event without end."""
    await _list_then(reader, writer, b"x" * 65536)


async def endless_bookmarks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An empty list, then events without a pause."""
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1"}}}
    await _list_then(reader, writer, (json.dumps(bookmark) + "\n").encode() * 100)


async def redirects(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends its client elsewhere."""
    await _request(reader)
    writer.write(b"HTTP/1.1 302 Found\r\nLocation: https://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()


async def _list_then(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stream: bytes) -> None:
    while True:
        if b"watch=" in await _request(reader):
            writer.write(_HEAD + b"Connection: close\r\n\r\n")
            await _pour(writer, stream)
            return
        writer.write(_HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(_EMPTY_LIST), _EMPTY_LIST))
        await writer.drain()


async def _pour(writer: asyncio.StreamWriter, data: bytes) -> None:
    while True:
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(0.001)


@contextlib.contextmanager
def hostile_server(behaviour: Behaviour, *, tls: bool = True, trusted: bool = True) -> Iterator[bytes]:
    """Serve like that; yields a kubeconfig. Without ``trusted`` its certificate is another CA's."""
    issuer = Issuer.new()
    context: ssl.SSLContext | None = None
    if tls:
        context = server_context(*issuer.serving(["localhost"], ["127.0.0.1"]), issuer.certificate_pem)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
                await behaviour(reader, writer)
        finally:
            writer.transport.abort()

    with LoopThread("hostile server") as thread:
        server = thread.run(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
        try:
            authority = issuer if trusted else Issuer.new()
            yield _kubeconfig(server.sockets[0].getsockname()[1], authority.certificate_pem)
        finally:
            thread.call(server.close)


def _kubeconfig(port: int, authority: bytes) -> bytes:
    cluster = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority-data": base64.b64encode(authority).decode("ascii"),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "abc"}}],
    }
    return yaml.safe_dump(document).encode()
