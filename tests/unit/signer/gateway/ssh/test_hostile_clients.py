"""SSH clients that do what no honest one does, at a real gateway."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import ipaddress
import logging
import ssl
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from aiohttp import web
from asyncssh.public_key import SSHLocalKeyPair

from signer.gateway.commands import SESSION_VARIABLE
from signer.gateway.limits import Connections, Limits, TooMany, counted_address
from signer.gateway.ssh.channel import EVENT_BYTES, MAXIMUM_WAITING_BYTES, Channel, Data, Resized, Signalled
from signer.gateway.websocket import WebSocketSession
from tests.support.gateway_grants import container_grant
from tests.unit.signer.access.containers.world import until
from tests.unit.signer.gateway.ssh.world import USER, World, gateway
from tests.unit.signer.kube.support import Authority


async def hang(websocket: web.WebSocketResponse, command: tuple[str, ...]) -> None:
    """A command that says something, repeats its input and does not end; signals end at once."""
    if "echo hang" in command:
        await websocket.send_bytes(b"\x01begun\n")
        async for message in websocket:
            await websocket.send_bytes(b"\x01" + message.data[1:])
    else:
        await websocket.send_bytes(b'\x03{"status":"Success"}')


def signals(world: World) -> list[tuple[str, str]]:
    """Mark and name of those that containers were sent."""
    return [(one[-2], one[-1]) for one in world.commands if "kill -" in one[2]]


# Before the login


async def test_an_honest_client_comes_in(world: World) -> None:
    key = world.grant()
    async with world.connect(key) as client:
        assert (await client.run("echo hello")).exit_status == 0
    assert world.commands[0][-2:] == ("echo hello", "")


async def closed_by_gateway(port: int, sent: bytes) -> bytes:
    """What the gateway says until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_a_slow_login_ends(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession, tmp_path: Path
) -> None:
    async with gateway(authority, tls, session, tmp_path, Limits(login_seconds=0.3)) as world:
        await closed_by_gateway(world.port, b"SSH-2.0-slow\r\n")
        await until(lambda: not world.parts.live)
        assert world.parts.connections.count == 0


@pytest.mark.parametrize("sent", [b"SSH-2.0-x\r\n\xff\xff\xff\xff" + bytes(64), b"x" * 9000], ids=["packet", "line"])
async def test_what_is_too_large_ends_the_connection(world: World, sent: bytes) -> None:
    await closed_by_gateway(world.port, sent)
    await until(lambda: not world.parts.live)


async def test_connections_of_one_address_are_bounded(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession, tmp_path: Path
) -> None:
    async with gateway(authority, tls, session, tmp_path, Limits(connections_per_address=2)) as world:
        key = world.grant()
        async with world.connect(key), world.connect(key):
            async with asyncio.timeout(10), world.connect(key) as third:
                await third.wait_closed()
            assert world.logins("TooMany") == 1
        await until(lambda: not world.parts.live)
        async with world.connect(key) as client:
            assert (await client.run("true")).exit_status == 0


class Liar(SSHLocalKeyPair):
    """Offers the public key of somebody else and signs with its own."""

    def __init__(self, mine: asyncssh.SSHKey, theirs: asyncssh.SSHKey) -> None:
        super().__init__(mine, None, None, None)
        self.public_data = self.key_public_data = theirs.public_data


async def test_the_key_that_counts_is_the_one_that_signed(world: World) -> None:
    """A client names a key of another grant, cannot sign with it, and goes on with its own."""
    theirs, mine = world.grant(11, creator="alice"), world.grant(12, creator="eve")
    with contextlib.suppress(asyncssh.PermissionDenied):
        async with world.connect(Liar(mine, theirs), mine) as client:
            await client.run("true")
    assert not world.commands
    assert world.logins("Admitted") == 0


async def test_after_the_signature_another_key_or_user_changes_nothing(world: World) -> None:
    """Whatever asyncssh asks the gateway later."""
    mine = world.grant(11)
    other = world.grant(12, container={"namespace": "shop", "pod": "other", "container": "app"})
    async with world.connect(mine) as client:
        (connection,) = world.parts.live
        assert connection._user == USER
        assert connection.begin_auth("shop_other_app")
        assert not connection.validate_public_key("shop_other_app", other)
        assert connection.opening().grant == "grant-11"
        assert (await client.run("true")).exit_status == 0


async def test_keys_and_names_that_are_tried_are_bounded(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession, tmp_path: Path
) -> None:
    async with gateway(authority, tls, session, tmp_path, Limits(attempts_per_login=8)) as world:
        keys = [asyncssh.generate_private_key("ssh-ed25519") for _ in range(9)]
        with pytest.raises(asyncssh.DisconnectError, match="IdentitiesOnly"):
            await world.connect(*keys)
        with pytest.raises(asyncssh.PermissionDenied):
            await world.connect(*keys[:5])
        assert world.logins("TooManyAttempts") == 1


def test_an_ipv6_network_counts_as_one_address() -> None:
    connections = Connections(Limits(logins_per_address=2))
    for text in ("2001:db8::1", "2001:db8::2"):
        connections.opened(counted_address(ipaddress.ip_address(text)))
    with pytest.raises(TooMany):
        connections.opened(counted_address(ipaddress.ip_address("2001:db8::3")))
    connections.opened(counted_address(ipaddress.ip_address("2001:db8:0:1::1")))
    mapped, plain = ipaddress.ip_address("::ffff:192.0.2.1"), ipaddress.ip_address("192.0.2.1")
    assert counted_address(mapped) == counted_address(plain)


# After the login


async def test_channels_are_bounded_before_they_ask_for_anything(world: World) -> None:
    key = world.grant()
    limit = world.parts.limits.channels_per_connection
    async with world.connect(key) as client:
        opened: list[Any] = []

        async def open_one() -> None:
            channel = asyncssh.channel.SSHClientChannel(
                client, asyncio.get_running_loop(), "strict", None, "strict", 65536, 32768
            )
            await channel._open(b"session")
            channel._send_state = channel._recv_state = "open"
            opened.append(channel)

        for _ in range(limit):
            await open_one()
        with pytest.raises(asyncssh.ChannelOpenError, match="too many channels"):
            await open_one()


async def test_forwarded_ports_are_bounded_while_they_open(world: World) -> None:
    key = world.grant(permissions={"portForwarding": True})
    never = asyncio.Event()

    async def wait(*_: Any) -> Any:
        await never.wait()

    resolver: Any = world.parts.resolver
    resolver.resolve = wait
    async with world.connect(key) as client:
        tasks = [asyncio.create_task(client.open_connection("localhost", 80)) for _ in range(30)]
        limit = world.parts.limits.channels_per_connection
        await until(lambda: sum(task.done() for task in tasks) == 30 - limit)
        for task in tasks:
            if task.done():
                assert "too many channels" in str(task.exception())
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_channel_that_is_closed_gives_its_place_back(world: World) -> None:
    key = world.grant()
    async with world.connect(key) as client:
        for _ in range(world.parts.limits.channels_per_connection + 2):
            assert (await client.run("true")).exit_status == 0


async def test_signals_are_bounded(world: World) -> None:
    """Each one runs a command in the container."""
    key = world.grant()
    world.script = hang
    async with world.connect(key) as client:
        process = await client.create_process("echo hang")
        assert await process.stdout.readline() == "begun\n"
        limit = world.parts.limits.signals_per_minute
        for number in range(limit + 5):
            process.send_signal("USR1")
            await until(lambda number=number: len(signals(world)) == min(number + 1, limit))  # type: ignore[misc]
        process.stdin.write("all signals are through\n")
        assert await process.stdout.readline() == "all signals are through\n"
        assert len(signals(world)) == limit
    await until(lambda: signals(world)[-1][1] == "KILL")


def test_events_that_wait_are_bounded() -> None:
    channel = Channel(asyncio.Event())
    for number in range(1, 10_000):
        channel.received(Resized(number, 1))
        channel.received(Signalled("USR1"))
    assert len(channel._events) <= 5
    assert Resized(9_999, 1) in channel._events


class Paused:
    """Whether the channel was told to stop reading."""

    is_paused = False

    def pause_reading(self) -> None:
        self.is_paused = True


def test_single_bytes_count_with_what_they_take() -> None:
    channel, paused = Channel(asyncio.Event()), Paused()
    channel.opened(paused)  # type: ignore[arg-type]
    for _ in range(MAXIMUM_WAITING_BYTES // EVENT_BYTES):
        channel.received(Data(b"x"))
    assert paused.is_paused


async def test_what_waits_in_asyncssh_is_merged_and_no_environment_is_kept(world: World) -> None:
    """The window is a megabyte; in messages of one byte, it would take a hundred."""
    key = world.grant()
    world.script = hang
    async with world.connect(key) as client:
        process = await client.create_process("echo hang", env={"A": "b"})
        assert await process.stdout.readline() == "begun\n"
        (connection,) = world.parts.live
        (session,) = connection._sessions
        ours: Any = session._ssh
        assert not ours.get_environment()
        ours.pause_reading()
        before = sum(len(data) for data, _ in ours._recv_buf)
        for _ in range(2000):
            process.channel.write("x")
        await until(lambda: sum(len(data) for data, _ in ours._recv_buf) - before == 2000)
        assert len(ours._recv_buf) < 10
        assert b"".join(data for data, _ in ours._recv_buf) == b"x" * 2000


async def flood(websocket: web.WebSocketResponse, command: tuple[str, ...]) -> None:
    """``yes`` writes 64 MiB."""
    if "yes" not in command:
        await websocket.send_bytes(b'\x03{"status":"Success"}')
        return
    with contextlib.suppress(ConnectionError):
        for _ in range(2048):
            await websocket.send_bytes(b"\x01" + bytes(32 * 1024))


async def test_a_client_that_never_reads_takes_no_memory_and_ends_with_its_grant(world: World) -> None:
    """Whatever window it names. asyncssh itself heeds the window alone."""
    key = world.grant()
    world.script = flood
    client = await world.connect(key)
    raw: Any = client
    process = await client.create_process("yes", encoding=None, window=2**32 - 1)
    assert await process.stdout.read(1)
    raw._transport.pause_reading()
    (connection,) = world.parts.live
    await until(lambda: not connection.reads.is_set())
    transport: Any = connection._conn._transport
    for _ in range(200):
        await asyncio.sleep(0.001)
    assert transport.get_write_buffer_size() < 4 * 1024 * 1024
    assert not transport.is_reading(), "each request would be answered"
    world.show([])
    await until(lambda: not world.parts.live)
    await until(lambda: signals(world))
    client.abort()


async def test_with_its_grant_everything_ends_that_any_gateway_left(world: World) -> None:
    """One that was killed cannot end its own. The marks of all connections of a grant begin alike."""
    key = world.grant()
    async with world.connect(key) as client:
        await client.run("true")
        uid = world.grants[0]["metadata"]["uid"]
        mark = world.commands[0][4]
        assert mark.startswith(f"{uid}.")
        world.show([])
        await client.wait_closed()
    await until(lambda: signals(world))
    assert signals(world) == [(f"{uid}.", "KILL")]
    assert SESSION_VARIABLE in world.commands[0][2]


async def test_a_grant_that_is_held_keeps_its_session_and_starts_none(world: World) -> None:
    """Ready is False for a moment. What runs goes on; what the end of one connection stops is its own."""
    key = world.grant()
    world.script = hang
    async with world.connect(key) as client:
        process = await client.create_process("echo hang")
        assert await process.stdout.readline() == "begun\n"
        held = copy.deepcopy(world.grants)
        held[0]["status"]["conditions"][0]["status"] = "False"
        world.show(held)
        process.stdin.write("still here\n")
        assert await process.stdout.readline() == "still here\n"
        refused = await client.run("true")
        assert refused.exit_status == 255
        assert "is not ready now" in str(refused.stderr)
        async with world.connect(key) as second:
            await second.wait_closed()
        assert world.logins("NotReady") == 1
        assert len(world.commands) == 1
    await until(lambda: signals(world))
    assert signals(world) == [(world.commands[0][4], "KILL")], "not those of the whole grant"


async def test_ingress_that_no_longer_has_the_client_ends_its_connection(world: World) -> None:
    key = world.grant()
    client = await world.connect(key)
    spec = {**world.grants[0]["spec"], "ingress": [{"ipBlock": {"cidr": "198.51.100.0/24"}}]}
    now = datetime.now(UTC).replace(microsecond=0)
    moved = container_grant(name="grant-11", now=now, sshPublicKey=spec["sshPublicKey"], ingress=spec["ingress"])
    world.show([moved])
    await until(lambda: not world.parts.live)
    client.abort()


async def test_without_its_end_only_the_connections_own_processes_end(world: World) -> None:
    key = world.grant()
    async with world.connect(key) as client:
        await client.run("true")
    await until(lambda: signals(world))
    assert signals(world) == [(world.commands[0][4], "KILL")]


async def test_containers_to_be_signalled_are_bounded(world: World) -> None:
    """An API server may answer with another pod each time."""
    key = world.grant()
    resolver: Any = world.parts.resolver
    real, numbers = resolver.resolve, iter(range(1000))

    async def resolve(*how: Any) -> Any:
        return replace(await real(*how), uid=f"p-{next(numbers)}")

    resolver.resolve = resolve
    async with world.connect(key):
        (connection,) = world.parts.live
        for _ in range(100):
            await connection.container()
        assert list(connection._entered) == [f"p-{number}" for number in range(36, 100)]


async def test_no_command_user_or_environment_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    key = world.grant()
    with caplog.at_level(logging.DEBUG):
        async with world.connect(key) as client:
            await client.run("mysql --password=hunter2", env={"SECRET": "hunter3"})
    ours = "".join(one.getMessage() for one in caplog.records if one.name.startswith("asyncssh"))
    assert "hunter" not in ours
