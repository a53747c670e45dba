"""What the gateway offers to anybody who connects, before a login."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from signer.gateway.clusters import Clusters
from signer.gateway.commands import GatewayIdentity
from signer.gateway.limits import Connections, Limits
from signer.gateway.metrics import GatewayMetrics
from signer.gateway.openings import Openings
from signer.gateway.resolver import KubernetesResolver
from signer.gateway.run import GatewayLog
from signer.gateway.ssh.host_keys import read_host_keys
from signer.gateway.ssh.listener import VERSION, listening
from signer.gateway.ssh.server import Parts
from signer.gateway.websocket import WebSocketSession
from tests.support.openssh import ssh_keygen

_KEXINIT = 20


async def offered(folder: Path, session: WebSocketSession) -> list[list[str]]:
    """The name lists of the server's SSH_MSG_KEXINIT (RFC 4253 section 7.1), in the order of the RFC."""
    ssh_keygen("-q", "-t", "ed25519", "-N", "", "-f", folder / "host_key").check_returncode()
    openings = Openings(now=lambda: datetime.now(UTC), monotonic=time.monotonic, log=GatewayLog())
    limits = Limits()
    parts = Parts(
        openings=openings,
        clusters=Clusters(openings, session),
        resolver=KubernetesResolver(),
        metrics=GatewayMetrics(),
        now=lambda: datetime.now(UTC),
        limits=limits,
        connections=Connections(limits),
        identity=GatewayIdentity.of("test"),
    )
    async with listening(parts, ("127.0.0.1", 0), read_host_keys([folder / "host_key"])) as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"SSH-2.0-test\r\n")
        assert await reader.readline() == f"SSH-2.0-{VERSION}\r\n".encode()
        length = int.from_bytes(await reader.readexactly(4))
        packet = await reader.readexactly(length)
        writer.close()
    assert packet[1] == _KEXINIT
    rest, lists = packet[18:], list[list[str]]()
    for _ in range(8):
        size = int.from_bytes(rest[:4])
        lists.append(rest[4 : 4 + size].decode().split(","))
        rest = rest[4 + size :]
    return lists


@pytest.fixture
async def lists(tmp_path: Path, session: WebSocketSession) -> list[list[str]]:
    return await offered(tmp_path, session)


async def test_no_key_exchange_is_slow_or_weak(lists: list[list[str]]) -> None:
    """Groups of 8192 bits take half a second of the event loop, for anybody and without a login."""
    exchanges = {one for one in lists[0] if not one.startswith(("ext-info", "kex-strict"))}
    assert exchanges >= {"curve25519-sha256", "mlkem768x25519-sha256"}
    assert not [one for one in exchanges if not one.startswith(("curve25519", "mlkem768x25519", "ecdh-sha2-nistp"))]


async def test_every_client_gets_a_fast_cipher(lists: list[list[str]]) -> None:
    """The client's order decides, so that one other cipher would be the one of OpenSSH 9."""
    assert lists[2] == lists[3] == ["aes256-gcm@openssh.com", "aes128-gcm@openssh.com"]
    assert lists[6] == lists[7] == ["none"]
