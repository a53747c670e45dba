"""Workload API servers that do what no honest one does, at a real gateway: a session there ends, others go on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tracemalloc
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import asyncssh
import pytest
from aiohttp import web

from signer.gateway.streams import exec as exec_module
from tests.unit.signer.gateway.ssh.world import World

MEBIBYTE: Final = 1024 * 1024
MEMORY: Final = 24 * MEBIBYTE
"""Of this process, the API server and the clients among it. Each attack sends more, or for ever."""
ESCAPES: Final = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
ATTACK: Final = "attack"


def status(**fields: Any) -> bytes:
    return b"\x03" + json.dumps({"status": "Failure", **fields}).encode()


async def large_status(websocket: web.WebSocketResponse) -> None:
    await websocket.send_bytes(status(message="x" * (900 * 1024)))


async def status_of_megabytes(websocket: web.WebSocketResponse) -> None:
    await websocket.send_bytes(status(message="x" * (40 * MEBIBYTE)))


async def nested_status(websocket: web.WebSocketResponse) -> None:
    await websocket.send_bytes(b"\x03" + b'{"details":' * 5000)


async def wrong_channel(websocket: web.WebSocketResponse) -> None:
    await websocket.send_bytes(b"\x00input")


async def unknown_channel(websocket: web.WebSocketResponse) -> None:
    await websocket.send_bytes(b"\x07more")


async def no_channel(websocket: web.WebSocketResponse) -> None:
    await websocket.send_bytes(b"")


async def text(websocket: web.WebSocketResponse) -> None:
    await websocket.send_str("\x01output")


async def two_statuses(websocket: web.WebSocketResponse) -> None:
    await websocket.send_bytes(status(reason="a"))
    await websocket.send_bytes(status(reason="b"))


async def escapes_in_the_status(websocket: web.WebSocketResponse) -> None:
    await websocket.send_bytes(status(message=f"failed {ESCAPES}" * 200))


async def cut_in_the_middle(websocket: web.WebSocketResponse) -> None:
    await websocket.send_bytes(b"\x01half of")
    transport_of(websocket).abort()


async def half_a_frame(websocket: web.WebSocketResponse) -> None:
    """Its head says one megabyte, and then nothing comes."""
    transport_of(websocket).write(b"\x82\x7f" + (MEBIBYTE).to_bytes(8) + b"\x01" * 100)
    await asyncio.sleep(0.05)
    transport_of(websocket).abort()


async def a_frame_of_exabytes(websocket: web.WebSocketResponse) -> None:
    transport_of(websocket).write(b"\x82\x7f" + (2**62).to_bytes(8) + b"\x01" * 100)
    await until_closed(websocket)


async def endless_fragments(websocket: web.WebSocketResponse) -> None:
    """One message without an end."""
    await endless(websocket, b"\x02\x7e\x40\x00" + bytes(0x4000), b"\x00\x7e\x40\x00" + bytes(0x4000))


async def a_status_and_endless_empty_messages(websocket: web.WebSocketResponse) -> None:
    await websocket.send_bytes(status(reason="over"))
    await endless(websocket, b"\x82\x01\x01")


async def a_status_and_endless_pings(websocket: web.WebSocketResponse) -> None:
    await websocket.send_bytes(status(reason="over"))
    await endless(websocket, b"\x89\x00")


def transport_of(websocket: web.WebSocketResponse) -> asyncio.Transport:
    assert websocket._req is not None
    transport = websocket._req.transport
    assert isinstance(transport, asyncio.Transport)
    return transport


async def until_closed(websocket: web.WebSocketResponse) -> None:
    with contextlib.suppress(ConnectionError):
        async for _ in websocket:
            pass


async def endless(websocket: web.WebSocketResponse, first: bytes, then: bytes = b"") -> None:
    """For ever, as fast as the gateway reads."""
    transport = transport_of(websocket)
    transport.write(first)
    piece = (then or first) * max(1, 16384 // len(then or first))
    while not transport.is_closing():
        if transport.get_write_buffer_size() < MEBIBYTE:
            transport.write(piece)
        await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def beside(world: World) -> AsyncIterator[Callable[[], Any]]:
    """Another session, which repeats its input. Yields what proves that it goes on."""
    async with world.connect(world.grant(20, creator="bob")) as client:
        process = await client.create_process("echo beside")
        assert await process.stdout.readline() == "begun\n"

        async def goes_on() -> None:
            process.stdin.write("still here\n")
            async with asyncio.timeout(10):
                assert await process.stdout.readline() == "still here\n"

        yield goes_on
        await goes_on()


def attacked(world: World, attack: Any) -> None:
    """The server attacks one command alone."""

    async def script(websocket: web.WebSocketResponse, command: tuple[str, ...]) -> None:
        if ATTACK in command:
            with contextlib.suppress(ConnectionError):
                await attack(websocket)
        elif "echo beside" in command:
            await websocket.send_bytes(b"\x01begun\n")
            async for message in websocket:
                await websocket.send_bytes(b"\x01" + message.data[1:])
        else:
            await websocket.send_bytes(b'\x03{"status":"Success"}')

    world.script = script


async def said(world: World, key: asyncssh.SSHKey) -> tuple[int | None, str]:
    """Exit code and standard error of a session that is attacked."""
    async with asyncio.timeout(20), world.connect(key) as client:
        done = await client.run(ATTACK, encoding=None)
        return done.exit_status, bytes(done.stderr or b"").decode()


def require_harmless(code: int | None, message: str) -> None:
    """It ends with a text for people, which controls no terminal."""
    assert code == 255
    assert message.startswith("node-access-gateway: ")
    assert len(message) < 4096
    assert all(one in "\r\n" or " " <= one <= "~" for one in message), message


@pytest.fixture
def bounded_memory() -> Any:
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MEMORY, peak


@pytest.mark.parametrize(
    ("attack", "expected"),
    [
        (large_status, "the server's status of the command is larger"),
        (nested_status, "is no Kubernetes Status"),
        (wrong_channel, "on an unknown channel"),
        (unknown_channel, "on an unknown channel"),
        (no_channel, "a message without a channel"),
        (text, "a text message"),
        (two_statuses, "two statuses"),
        (escapes_in_the_status, "failed \\x1b]0;owned"),
        (cut_in_the_middle, "before the command's exit code was known"),
        (half_a_frame, "before the command's exit code was known"),
        (a_frame_of_exabytes, "too large or malformed"),
        (endless_fragments, "too large or malformed"),
        (a_status_and_endless_empty_messages, "over"),
        (a_status_and_endless_pings, "over"),
    ],
)
async def test_a_session_ends_with_a_text_and_others_go_on(
    world: World, attack: Any, expected: str, bounded_memory: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_module, "AFTER_STATUS_SECONDS", 0.5)
    attacked(world, attack)
    key = world.grant(11)
    async with beside(world) as goes_on:
        code, message = await said(world, key)
        require_harmless(code, message)
        assert expected in message
        await goes_on()


async def test_a_status_of_megabytes_is_not_read_to_its_end(world: World) -> None:
    """Without the bound on memory: this server, in the same process, makes the message."""
    attacked(world, status_of_megabytes)
    code, message = await said(world, world.grant(11))
    require_harmless(code, message)
    assert "too large or malformed" in message


async def endless_output(websocket: web.WebSocketResponse) -> None:
    await endless(websocket, b"\x82\x7e\x40\x00\x01" + bytes(0x3FFF))


async def endless_empty_messages(websocket: web.WebSocketResponse) -> None:
    await endless(websocket, b"\x82\x01\x01")


async def endless_pings(websocket: web.WebSocketResponse) -> None:
    await endless(websocket, b"\x89\x00")


@pytest.mark.parametrize("attack", [endless_output, endless_empty_messages, endless_pings])
async def test_messages_without_end_hold_no_other_session_and_end_with_the_grant(
    world: World, attack: Any, bounded_memory: None
) -> None:
    """As ``yes`` does; the client reads all of it."""
    attacked(world, attack)
    key = world.grant(11)
    async with beside(world) as goes_on, world.connect(key) as client:
        process = await client.create_process(ATTACK, encoding=None, stdout=asyncssh.DEVNULL, stderr=asyncssh.PIPE)
        for _ in range(10):
            await goes_on()
        world.show([one for one in world.grants if one["metadata"]["name"] != "grant-11"])
        message = bytes(await process.stderr.read()).decode()
        assert "the access grant has ended" in message
        await client.wait_closed()


# Answers to the other calls


async def redirect(request: web.Request) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": f"https://127.0.0.1:1{request.path}"})


async def escapes(request: web.Request) -> web.StreamResponse:
    del request
    return web.json_response({"kind": "Status", "reason": "Forbidden", "message": f"no {ESCAPES}" * 500}, status=403)


async def endless_body(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        while True:
            await response.write(b" " * 65536)
    return response


async def closed_socket(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def no_object(request: web.Request) -> web.StreamResponse:
    del request
    return web.Response(body=b"[" * 100_000, content_type="application/json")


def is_exec(request: web.Request) -> bool:
    return request.path.endswith("/exec")


def is_get(request: web.Request) -> bool:
    return not is_exec(request)


@pytest.mark.parametrize("of", [is_get, is_exec])
@pytest.mark.parametrize("answer", [redirect, escapes, endless_body, closed_socket, no_object])
async def test_a_hostile_answer_ends_the_session_with_a_text(
    world: World, of: Callable[[web.Request], bool], answer: Any, bounded_memory: None
) -> None:
    attacked(world, text)
    key = world.grant(11)

    async with beside(world) as goes_on:

        async def hostile(request: web.Request) -> web.StreamResponse | None:
            return await answer(request) if of(request) else None

        world.answer = hostile
        code, message = await said(world, key)
        require_harmless(code, message)
        await goes_on()


@pytest.mark.parametrize(
    "pod",
    [
        {"metadata": {"name": f"web-0{ESCAPES}", "namespace": "shop", "uid": "p-1"}},
        {"metadata": {"name": "web-0", "namespace": "other", "uid": "p-1"}},
        {"status": {"containerStatuses": [{"name": "app", "state": {"waiting": {"reason": ESCAPES * 1000}}}]}},
        {"status": {"containerStatuses": [ESCAPES] * 10_000}},
        {"metadata": ESCAPES, "spec": [], "status": 7},
    ],
)
async def test_a_hostile_pod_ends_the_session_with_a_text(world: World, pod: dict[str, Any]) -> None:
    attacked(world, text)
    world.pod = {**world.pod, **pod}
    require_harmless(*await said(world, world.grant(11)))
