"""Stock ssh beside a flood of connections without a login."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import asyncssh

from signer.gateway.limits import Limits
from signer.gateway.websocket import WebSocketSession
from tests.support.openssh import find_openssh
from tests.unit.signer.access.containers.world import until
from tests.unit.signer.gateway.ssh.world import USER, World, gateway
from tests.unit.signer.kube.support import Authority

FLOODING: Final = [f"127.0.0.{number}" for number in range(2, 9)]
TRIES: Final = 60


async def connect(world: World, address: str, sent: bytes) -> asyncio.StreamWriter:
    """A connection from that address, which says so much and waits."""
    _, writer = await asyncio.open_connection("127.0.0.1", world.port, local_addr=(address, 0))
    writer.write(sent)
    return writer


@contextlib.asynccontextmanager
async def flood(world: World) -> AsyncIterator[None]:
    """More connections than the gateway takes of these addresses. It drops some, and holds the others."""
    writers: list[asyncio.StreamWriter] = []
    for number in range(TRIES):
        for address in FLOODING:
            with contextlib.suppress(ConnectionError):
                writers.append(await connect(world, address, b"SSH-2.0-flood\r\n" if number % 2 else b""))
    try:
        yield
    finally:
        for writer in writers:
            writer.transport.abort()


async def stock_ssh(world: World, key: Path, address: str) -> tuple[int | None, bytes]:
    """Exit code, and what ssh says."""
    settings = {
        "IdentityFile": str(key),
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "StrictHostKeyChecking": "no",
        "UserKnownHostsFile": "/dev/null",
        "GlobalKnownHostsFile": "/dev/null",
        "BatchMode": "yes",
        "BindAddress": address,
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    words = [*options, "-F", "/dev/null", "-n", f"-p{world.port}", "-l", USER, "127.0.0.1", "true"]
    process = await asyncio.create_subprocess_exec(
        find_openssh("ssh"), *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    return process.returncode, said


def written(key: asyncssh.SSHKey, folder: Path) -> Path:
    path = folder / "key"
    path.touch(mode=0o600)
    path.write_bytes(key.export_private_key())
    return path


async def test_a_flood_from_few_addresses_locks_out_none_of_the_others(world: World, tmp_path: Path) -> None:
    key = written(world.grant(), tmp_path)
    limits = world.parts.limits
    async with flood(world):
        await until(lambda: world.parts.connections.count == limits.logins_per_address * len(FLOODING))
        assert world.parts.connections.count < limits.drop_from, "chance decides nothing yet"
        done = await asyncio.gather(*(stock_ssh(world, key, "127.0.0.1") for _ in range(8)))
        assert [code for code, _ in done] == [0] * 8, done
        code, _ = await stock_ssh(world, key, FLOODING[0])
        assert code == 255
    await until(lambda: world.parts.connections.count == 0)
    assert (await stock_ssh(world, key, FLOODING[0]))[0] == 0


async def test_who_is_logged_in_stays_while_the_waiting_room_is_full(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession, tmp_path: Path
) -> None:
    """And comes in as soon as there is room: a login that is slow ends."""
    limits = Limits(drop_from=20, logins=40, login_seconds=1.0)
    async with gateway(authority, tls, session, tmp_path, limits) as world:
        key = world.grant()
        async with world.connect(key) as client:
            async with flood(world):
                assert world.logins("TooMany") > 0
                assert (await client.run("true")).exit_status == 0
            path = written(key, tmp_path)
            await until(lambda: world.parts.connections.count == 1)
            assert (await stock_ssh(world, path, "127.0.0.1"))[0] == 0
