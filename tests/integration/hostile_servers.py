"""Hostile API servers of many kinds, on 127.0.0.1 over TLS.

``python -m tests.integration.hostile_servers BEHAVIOUR...`` serves until its standard input ends, and prints a
kubeconfig for each, as one line of base64.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import itertools
import json
import ssl
import sys
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import yaml

from attestors.wire.names import Purpose, SignerName
from signer.testing.api.authorities import Issuer, server_context
from signer.testing.api.thread import stop_accepting
from signer.testing.clients import LoopThread

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_EMPTY_LIST: Final = json.dumps({"metadata": {"resourceVersion": "1"}, "items": []}).encode()
_SIGNER: Final = str(SignerName(Purpose.CLIENT, "keyed-mac"))
_DRIP_SECONDS: Final = 0.2
_MANY_VALUES: Final = b'{"metadata":{"name":"x","uid":"x","resourceVersion":"2"},"spec":[%b{}]}' % (
    b'{"a":{}},' * 120_000
)
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


async def endless_requests(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An empty list, then small events without a pause, each of another request to one of our signers."""
    await _list_then(reader, writer, b"".join(_event_of_request(number) for number in range(2000)))


async def endless_pages(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A list that goes on for ever, one small page after the other."""
    for number in itertools.count():
        await _request(reader)
        metadata = {"resourceVersion": "1", "continue": f"page-{number}"}
        await _answer(writer, json.dumps({"metadata": metadata, "items": []}).encode())


async def dripping_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Slow loris: a header line now and then, and no end of them."""
    await _request(reader)
    writer.write(_HEAD)
    await _drip(writer, b"X-Drip: 1\r\n")


async def dripping_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Slow loris: a byte of the answer now and then."""
    await _request(reader)
    writer.write(_HEAD + b"Content-Length: 1000000\r\n\r\n")
    await _drip(writer, b" ")


async def dripping_handshake(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Slow loris: a byte of a TLS handshake record now and then. To be served without TLS."""
    writer.write(b"\x16\x03\x03\x40\x00")
    await _drip(writer, b"\x02")


async def huge_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A list of 100 MiB, of unknown length."""
    await _request(reader)
    writer.write(_HEAD + b"Connection: close\r\n\r\n")
    text = b" " * (1 << 20)
    for _ in range(100):
        writer.write(text)
        await writer.drain()


async def values_bomb(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A list of a million items, of three bytes each."""
    while True:
        await _request(reader)
        await _answer(writer, b'{"metadata":{"resourceVersion":"1"},"items":[%b{}]}' % (b"{}," * 1_000_000))


async def large_page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A page that takes tens of megabytes when it is read, and no next one."""
    await _request(reader)
    page = b'{"metadata":{"resourceVersion":"1","continue":"x"},"items":[%b]}' % _MANY_VALUES
    await _answer(writer, page)
    await reader.read(-1)


async def large_event(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An empty list, and a watch with an event that takes tens of megabytes when it is read; then silence."""
    while b"watch=" not in await _request(reader):
        await _answer(writer, _EMPTY_LIST)
    event = b'{"type":"ADDED","object":%b}\n' % _MANY_VALUES
    writer.write(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(event), event))
    await reader.read(-1)


async def long_numbers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A list of one page after the other, of numbers that take long to be read."""
    numbers = b",".join([b"8.999999999999e-300"] * 300_000)
    for number in itertools.count():
        await _request(reader)
        await _answer(writer, b'{"metadata":{"continue":"page-%d"},"items":[{"a":[%b]}]}' % (number, numbers))


async def breaking_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An empty list, and watches each of which is broken off behind a bookmark that is newer than the last."""
    while b"watch=" not in await _request(reader):
        await _answer(writer, _EMPTY_LIST)
    version = str(time.monotonic_ns())
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}
    event = json.dumps(bookmark).encode() + b"\n"
    writer.write(_HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(event), event))
    await writer.drain()
    await asyncio.sleep(0.01)


async def compressed_bomb(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """256 MiB of zeros, compressed to a quarter of a MiB without request."""
    await _request(reader)
    body = await asyncio.to_thread(_compressed_nothing)
    writer.write(_HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    await writer.drain()


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
        await _answer(writer, _EMPTY_LIST)


async def _answer(writer: asyncio.StreamWriter, body: bytes) -> None:
    writer.write(_HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    await writer.drain()


async def _drip(writer: asyncio.StreamWriter, data: bytes) -> None:
    while True:
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(_DRIP_SECONDS)


def _event_of_request(number: int) -> bytes:
    metadata = {"name": f"flood-{number}", "uid": f"{number}", "resourceVersion": f"{number + 2}"}
    spec = {"signerName": _SIGNER, "request": "cmVx", "username": "system:bootstrap:abcdef"}
    return json.dumps({"type": "ADDED", "object": {"metadata": metadata, "spec": spec, "status": {}}}).encode() + b"\n"


@functools.cache
def _compressed_nothing() -> bytes:
    compressor = zlib.compressobj(wbits=31)
    megabyte = bytes(1 << 20)
    return b"".join([*(compressor.compress(megabyte) for _ in range(256)), compressor.flush()])


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
            thread.run(stop_accepting(server.sockets[0].fileno()))
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


def _main() -> None:
    with contextlib.ExitStack() as servers:
        for name in sys.argv[1:]:
            behaviour: Behaviour = globals()[name]
            server = hostile_server(behaviour, tls=behaviour is not dripping_handshake)
            print(base64.b64encode(servers.enter_context(server)).decode("ascii"), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    _main()
