from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
from collections.abc import Callable
from urllib.parse import parse_qsl, urlsplit

import pytest
from aiohttp import WSCloseCode, WSMsgType, web

from signer.gateway.streams import (
    CommandResult,
    EndOfInputUnsupported,
    ExecStream,
    Exited,
    Failed,
    InvalidCommand,
    Output,
    StandardStream,
    StreamEnded,
    exec_stream,
)
from signer.gateway.streams import exec as exec_module
from signer.gateway.streams import stream as stream_module
from signer.gateway.websocket import MAXIMUM_MESSAGE_BYTES, WebSocketSession
from signer.kube.errors import UnexpectedAnswer
from tests.unit.signer.gateway.support import (
    POD,
    SUCCESS,
    V4_ONLY,
    Script,
    api_server,
    bytes_of,
    exit_status,
    until_closed,
)
from tests.unit.signer.kube.support import Authority

MEGABYTES = 20
PIECE = bytes(range(256)) * 128  # 32 KiB


async def all_of(stream: ExecStream) -> tuple[bytes, bytes, CommandResult]:
    """Standard output, standard error and result; closes the stream."""
    outputs: dict[StandardStream, bytes] = {StandardStream.STDOUT: b"", StandardStream.STDERR: b""}
    results: list[CommandResult] = []
    async for item in stream:
        if isinstance(item, Output):
            assert not results
            outputs[item.stream] += item.data
        else:
            results.append(item)
    await stream.close()
    (result,) = results
    return outputs[StandardStream.STDOUT], outputs[StandardStream.STDERR], result


class Server:
    """A server for one stream."""

    def __init__(self, authority: Authority, tls: ssl.SSLContext, session: WebSocketSession) -> None:
        self._parts = (authority, tls, session)

    async def result_of(self, script: Script) -> tuple[bytes, bytes, CommandResult]:
        async with api_server(*self._parts, script) as opened:
            return await all_of(await exec_stream(opened.api, POD, "app", ["true"], tty=False))


@pytest.fixture
def server(authority: Authority, tls: ssl.SSLContext, session: WebSocketSession) -> Server:
    return Server(authority, tls, session)


# The course of a command


async def test_output_and_exit_code(authority: Authority, tls: ssl.SSLContext, session: WebSocketSession) -> None:
    async def script(websocket: web.WebSocketResponse) -> None:
        await websocket.send_bytes(b"\x01")  # as a kubelet does when the command starts
        await websocket.send_bytes(b"\x01out")
        await websocket.send_bytes(b"\x02err")
        await websocket.send_bytes(b"\x01put")
        await websocket.send_bytes(exit_status("3"))

    async with api_server(authority, tls, session, script) as opened:
        stream = await exec_stream(opened.api, POD, "app", ["sh", "-c", "a b&c=ä;%\n"], tty=False)
        assert await all_of(stream) == (b"output", b"err", Exited(3))
    (asked,) = opened.asked.targets
    assert urlsplit(asked).path == "/api/v1/namespaces/default/pods/web-0/exec"
    assert parse_qsl(urlsplit(asked).query, strict_parsing=True) == [
        ("container", "app"),
        ("command", "sh"),
        ("command", "-c"),
        ("command", "a b&c=ä;%\n"),
        ("stdin", "true"),
        ("stdout", "true"),
        ("stderr", "true"),
        ("tty", "false"),
    ]
    (fields,) = opened.asked.fields
    assert fields["Sec-WebSocket-Protocol"].split(",") == ["v5.channel.k8s.io", "v4.channel.k8s.io"]
    assert fields.getall("Impersonate-User") == ["node-access:alice"]
    assert fields.getall("Impersonate-Group") == ["node-access:containers"]


async def test_a_terminal_has_no_standard_error(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession
) -> None:
    async def script(websocket: web.WebSocketResponse) -> None:
        size = await bytes_of(websocket)
        assert (size[0], json.loads(size[1:])) == (4, {"Width": 132, "Height": 43})
        await websocket.send_bytes(SUCCESS)

    async with api_server(authority, tls, session, script) as opened:
        stream = await exec_stream(opened.api, POD, "app", ["sh"], tty=True, stdin=False)
        await stream.resize(132, 43)
        assert await all_of(stream) == (b"", b"", Exited(0))
    query = dict(parse_qsl(opened.asked.targets[0]))
    assert (query["tty"], query["stderr"], query["stdin"]) == ("true", "false", "false")


async def test_input_and_its_end(authority: Authority, tls: ssl.SSLContext, session: WebSocketSession) -> None:
    async def script(websocket: web.WebSocketResponse) -> None:
        while (message := await bytes_of(websocket)) != b"\xff\x00":
            assert message[0] == 0
            await websocket.send_bytes(b"\x01" + message[1:].upper())
        await websocket.send_bytes(SUCCESS)

    async with api_server(authority, tls, session, script) as opened:
        stream = await exec_stream(opened.api, POD, "app", ["tr"], tty=False)
        assert stream.can_end_input
        await stream.send(b"hello ")
        await stream.send(b"")
        await stream.send(b"world")
        await stream.end_input()
        assert await all_of(stream) == (b"HELLO WORLD", b"", Exited(0))


async def test_version_4_cannot_end_input(authority: Authority, tls: ssl.SSLContext, session: WebSocketSession) -> None:
    async def script(websocket: web.WebSocketResponse) -> None:
        assert await bytes_of(websocket) == b"\x00x"  # and nothing before it
        await websocket.send_bytes(SUCCESS)

    async with api_server(authority, tls, session, script, V4_ONLY) as opened:
        stream = await exec_stream(opened.api, POD, "app", ["cat"], tty=False)
        assert not stream.can_end_input
        with pytest.raises(EndOfInputUnsupported, match=r"older than Kubernetes 1\.30"):
            await stream.end_input()
        await stream.send(b"x")
        assert await all_of(stream) == (b"", b"", Exited(0))


async def test_output_behind_the_status_is_passed_on(server: Server) -> None:
    async def script(websocket: web.WebSocketResponse) -> None:
        await websocket.send_bytes(SUCCESS)
        await websocket.send_bytes(b"\x01late")

    assert await server.result_of(script) == (b"late", b"", Exited(0))


async def test_a_server_that_keeps_the_stream_open_keeps_no_session(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_module, "AFTER_STATUS_SECONDS", 0.05)

    async def script(websocket: web.WebSocketResponse) -> None:
        await websocket.send_bytes(exit_status("7"))
        await until_closed(websocket)

    assert await server.result_of(script) == (b"", b"", Exited(7))


# Ends that state no exit code


async def test_no_status_is_no_success(server: Server) -> None:
    async def script(websocket: web.WebSocketResponse) -> None:
        await websocket.send_bytes(b"\x01x")

    out, _, result = await server.result_of(script)
    assert (out, result) == (b"x", Failed("the server ended the stream before the command's exit code was known"))


async def test_a_broken_connection_is_no_success(server: Server) -> None:
    async def script(websocket: web.WebSocketResponse) -> None:
        await websocket.send_bytes(b"\x01x")
        assert websocket._req is not None
        assert websocket._req.transport is not None
        websocket._req.transport.close()

    out, _, result = await server.result_of(script)
    assert (out, result) == (
        b"x",
        Failed("the connection to the API server broke before the command's exit code was known"),
    )


async def test_a_close_message_for_an_error_is_no_success(server: Server) -> None:
    async def script(websocket: web.WebSocketResponse) -> None:
        await websocket.close(code=WSCloseCode.INTERNAL_ERROR, message=b"\x1b[2J")

    _, _, result = await server.result_of(script)
    assert isinstance(result, Failed)
    assert "broke" in result.message


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([b"\x03not JSON"], "no Kubernetes Status"),
        ([b"\x03" + b"x" * 100_000], "larger than"),
        ([SUCCESS, SUCCESS], "two statuses"),
        ([exit_status("3"), SUCCESS], "two statuses"),
        ([b""], "without a channel"),
        ([b"\x07x", SUCCESS], "unknown channel"),
        ([b"\x00x", SUCCESS], "unknown channel"),
        ([b"\x01" + bytes(MAXIMUM_MESSAGE_BYTES + 1), SUCCESS], "too large"),
    ],
    ids=["garbage", "large status", "two", "another", "empty", "channel", "input", "large message"],
)
async def test_a_hostile_server_is_a_failure(
    server: Server, messages: list[bytes], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_module, "AFTER_STATUS_SECONDS", 0.05)

    async def script(websocket: web.WebSocketResponse) -> None:
        for message in messages:
            await websocket.send_bytes(message)
        await until_closed(websocket)

    _, _, result = await asyncio.wait_for(server.result_of(script), 20)
    assert isinstance(result, Failed)
    assert reason in result.message


async def test_a_text_message_is_a_failure(server: Server) -> None:
    async def script(websocket: web.WebSocketResponse) -> None:
        await websocket.send_str("\x01hello")
        await websocket.send_bytes(SUCCESS)

    assert await server.result_of(script) == (b"", b"", Failed("the server sent a text message"))


async def test_a_message_in_many_fragments_has_the_same_bound(server: Server) -> None:
    async def script(websocket: web.WebSocketResponse) -> None:
        assert websocket._req is not None
        assert websocket._req.transport is not None
        write = websocket._req.transport.write
        write(b"\x02\x01\x01")  # binary, more follows
        for _ in range(MAXIMUM_MESSAGE_BYTES // 32768 + 2):
            write(b"\x00\x7e\x80\x00" + bytes(32768))
            await asyncio.sleep(0)
        await until_closed(websocket)

    _, _, result = await server.result_of(script)
    assert result == Failed("the server sent a message that is too large or malformed")


async def test_the_largest_message_passes(server: Server) -> None:
    data = bytes(MAXIMUM_MESSAGE_BYTES - 1)

    async def script(websocket: web.WebSocketResponse) -> None:
        await websocket.send_bytes(b"\x01" + data)
        await websocket.send_bytes(SUCCESS)

    assert await server.result_of(script) == (data, b"", Exited(0))


# Backpressure


async def test_megabytes_in_both_directions(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession
) -> None:
    total = MEGABYTES * 1024 * 1024

    async def script(websocket: web.WebSocketResponse) -> None:
        echoed = 0
        while echoed < total:
            message = await bytes_of(websocket)
            echoed += len(message) - 1
            await websocket.send_bytes(b"\x01" + message[1:])
        await websocket.send_bytes(SUCCESS)

    async with api_server(authority, tls, session, script) as opened:
        stream = await exec_stream(opened.api, POD, "app", ["cat"], tty=False)
        sent, received = hashlib.sha256(), hashlib.sha256()

        async def upload() -> None:
            for number in range(total // len(PIECE)):
                piece = number.to_bytes(4) + PIECE[4:]
                sent.update(piece)
                await stream.send(piece)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(upload())
            async for item in stream:
                if isinstance(item, Output):
                    received.update(item.data)
                else:
                    assert item == Exited(0)
        assert received.digest() == sent.digest()
        await stream.close()


async def test_a_caller_that_reads_slowly_stops_the_server(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession
) -> None:
    sent = 0

    async def script(websocket: web.WebSocketResponse) -> None:
        nonlocal sent
        while not websocket.closed:
            await websocket.send_bytes(b"\x01" + PIECE)
            sent += len(PIECE)
            await asyncio.sleep(0)  # otherwise, the end of the connection would never be told

    async with api_server(authority, tls, session, script) as opened:
        stream = await exec_stream(opened.api, POD, "app", ["yes"], tty=False)
        assert await anext(stream) == Output(StandardStream.STDOUT, PIECE)
        before = await settled(lambda: sent)
        for _ in range(before // len(PIECE)):
            await anext(stream)
        assert await settled(lambda: sent) > before
        await stream.close()


async def test_empty_messages_are_bounded(authority: Authority, tls: ssl.SSLContext, session: WebSocketSession) -> None:
    """They hold no byte, and each takes memory. A caller that does not read stops the server all the same."""
    sent = 0

    async def script(websocket: web.WebSocketResponse) -> None:
        nonlocal sent
        assert websocket._req is not None
        transport = websocket._req.transport
        assert transport is not None
        while not transport.is_closing():
            transport.write(b"\x82\x00" * 8192)
            sent += 16384
            await asyncio.sleep(0)
            while transport.get_write_buffer_size() and not transport.is_closing():  # noqa: ASYNC110 - aiohttp's own
                await asyncio.sleep(0.01)

    async with api_server(authority, tls, session, script) as opened:
        stream = await exec_stream(opened.api, POD, "app", ["sleep"], tty=False)
        await settled(lambda: sent)
        await stream.close()


async def settled(value: Callable[[], int]) -> int:
    """The value when it no longer changes; buffers of the kernel take a few megabytes."""
    seen = -1
    while seen <= 0 or seen != value():
        seen = value()
        await asyncio.sleep(0.2)
    assert seen < 64 * 1024 * 1024
    return seen


async def test_a_command_that_reads_no_input_stops_the_caller(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its output passes, pings or not; closing ends the call that waits."""
    monkeypatch.setattr(stream_module, "PING_SECONDS", 0.01)
    more = asyncio.Event()
    accepted = 0

    async def script(websocket: web.WebSocketResponse) -> None:
        await more.wait()
        for _ in range(100):
            await websocket.ping(b"are you there?")
        await websocket.send_bytes(b"\x01output")
        await asyncio.Event().wait()

    async with api_server(authority, tls, session, script) as opened:
        stream = await exec_stream(opened.api, POD, "app", ["sleep"], tty=False)

        async def upload() -> None:
            nonlocal accepted
            while True:
                await stream.send(PIECE)
                accepted += len(PIECE)

        upload_task = asyncio.create_task(upload())
        await settled(lambda: accepted)
        more.set()
        assert await anext(stream) == Output(StandardStream.STDOUT, b"output")
        reading = asyncio.create_task(anext(stream))
        await asyncio.sleep(0)
        await asyncio.wait_for(stream.close(), 10)
        assert await reading == Failed("the stream was closed here before the command's exit code was known")
        with pytest.raises(StreamEnded):
            await upload_task


# Ends from this side


async def test_a_caller_that_sends_without_a_pause_sees_the_end(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession
) -> None:
    """A connection that broke takes data at once, and drops it."""

    async def script(websocket: web.WebSocketResponse) -> None:
        assert websocket._req is not None
        assert websocket._req.transport is not None
        websocket._req.transport.abort()

    async with api_server(authority, tls, session, script) as opened:
        stream = await exec_stream(opened.api, POD, "app", ["true"], tty=False)
        with pytest.raises(StreamEnded):  # noqa: PT012 - the statement is repeated
            for _ in range(2000):
                await stream.send(PIECE)
        await stream.close()


async def test_pings_keep_the_connection_open(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "PING_SECONDS", 0.01)

    async def script(websocket: web.WebSocketResponse) -> None:
        websocket._autoping = False
        assert (await websocket.receive()).type is WSMsgType.PING
        await websocket.ping(b"and you?")
        while (message := await websocket.receive()).type is not WSMsgType.PONG:
            assert message.type is WSMsgType.PING
        await websocket.send_bytes(b"\x01" + message.data)
        await websocket.send_bytes(SUCCESS)

    async with api_server(authority, tls, session, script) as opened:
        stream = await exec_stream(opened.api, POD, "app", ["sleep"], tty=False)
        assert await all_of(stream) == (b"and you?", b"", Exited(0))


async def test_after_the_end_nothing_is_sent(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession
) -> None:
    async def script(websocket: web.WebSocketResponse) -> None:
        await websocket.send_bytes(exit_status("2"))

    async with api_server(authority, tls, session, script) as opened:
        stream = await exec_stream(opened.api, POD, "app", ["false"], tty=False)
        assert await anext(stream) == Exited(2)
        with pytest.raises(StreamEnded):
            await stream.send(b"x")
        with pytest.raises(StreamEnded):
            await stream.end_input()
        with pytest.raises(StreamEnded):
            await stream.resize(1, 1)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        await stream.close()
        await stream.close()
        with pytest.raises(StreamEnded):
            await stream.send(b"x")


async def test_closing_before_reading(authority: Authority, tls: ssl.SSLContext, session: WebSocketSession) -> None:
    async def script(websocket: web.WebSocketResponse) -> None:
        await until_closed(websocket)

    async with api_server(authority, tls, session, script) as opened:
        stream = await exec_stream(opened.api, POD, "app", ["sleep"], tty=False)
        await stream.close()
        assert [item async for item in stream] == [
            Failed("the stream was closed here before the command's exit code was known")
        ]


# What is not asked


@pytest.mark.parametrize("command", [[], ["a\0b"], ["\udcff"]])
async def test_a_command_that_cannot_run_is_refused(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession, command: list[str]
) -> None:
    async def script(websocket: web.WebSocketResponse) -> None:
        raise AssertionError

    async with api_server(authority, tls, session, script) as opened:
        with pytest.raises(InvalidCommand):
            await exec_stream(opened.api, POD, "app", command, tty=False)
        with pytest.raises(InvalidCommand):
            await exec_stream(opened.api, POD, "", ["true"], tty=False)
        with pytest.raises(ValueError, match="longer than"):
            await exec_stream(opened.api, POD, "app", ["x" * 200_000], tty=False)
    assert opened.asked.targets == []


async def test_a_server_that_speaks_neither_version_is_refused(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession
) -> None:
    async def script(websocket: web.WebSocketResponse) -> None:
        await websocket.send_bytes(SUCCESS)

    async with api_server(authority, tls, session, script, ("base64.channel.k8s.io",)) as opened:
        with pytest.raises(UnexpectedAnswer, match=r"speaks none of v5\.channel\.k8s\.io, v4"):
            await exec_stream(opened.api, POD, "app", ["true"], tty=False)
