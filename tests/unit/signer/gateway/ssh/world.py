"""A gateway in this process, beside an API server that is a script, and an SSH client that may do anything."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import asyncssh
from aiohttp import web

from attestors.wire.ssh.key_line import key_line, parse_key_line
from signer.access.containers.credential import Credential, render_kubeconfig
from signer.gateway.clusters import Clusters
from signer.gateway.commands import GatewayIdentity
from signer.gateway.limits import Connections, Limits
from signer.gateway.metrics import GatewayMetrics
from signer.gateway.openings import Openings
from signer.gateway.resolver import KubernetesResolver
from signer.gateway.run import GatewayLog
from signer.gateway.ssh.host_keys import read_host_keys
from signer.gateway.ssh.listener import listening
from signer.gateway.ssh.server import Parts
from signer.gateway.websocket import WebSocketSession
from signer.model.tools_image import NamedToolsImage
from tests.support.access_grants import AUTHORITY
from tests.support.gateway_grants import CLUSTER, NO_TOOLS, connection_secret, container_grant
from tests.unit.signer.gateway.support import SUCCESS, V4_ONLY
from tests.unit.signer.kube.support import Authority, aiohttp_server

IDENTITY: Final = GatewayIdentity.of("gateway-0:2222")
USER: Final = "shop_web-0_app"
Script = Callable[[web.WebSocketResponse, tuple[str, ...]], Awaitable[None]]
Answer = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
_POD: Final = {
    "metadata": {"name": "web-0", "namespace": "shop", "uid": "p-1"},
    "spec": {},
    "status": {"containerStatuses": [{"name": "app", "state": {"running": {}}}]},
}


async def succeed(websocket: web.WebSocketResponse, command: tuple[str, ...]) -> None:
    """Each command ends at once."""
    del command
    await websocket.send_bytes(SUCCESS)


async def usual(request: web.Request) -> web.StreamResponse | None:
    """None: the server answers as an API server does."""
    del request
    return None


@dataclass
class World:
    """The gateway, and what the API server was asked to run."""

    parts: Parts
    port: int
    commands: list[tuple[str, ...]] = field(default_factory=list)
    grants: list[dict[str, Any]] = field(default_factory=list)
    script: Script = succeed
    answer: Answer = usual
    """Before anything else."""
    pod: dict[str, Any] = field(default_factory=lambda: copy.deepcopy(_POD))
    containers: list[str] = field(default_factory=list)
    """In which each command ran."""

    def grant(self, number: int = 11, **how: Any) -> asyncssh.SSHKey:
        """A grant for a fresh key."""
        key = asyncssh.generate_private_key("ssh-ed25519")
        line = key_line(parse_key_line(" ".join(key.export_public_key().decode().split()[:2])))
        now = datetime.now(UTC).replace(microsecond=0)
        how = {"sshPublicKey": line, "lifetime": timedelta(minutes=30), **how}
        self.grants.append(container_grant(name=f"grant-{number}", number=number, now=now, **how))
        self.show(self.grants)
        return key

    def show(self, grants: list[dict[str, Any]]) -> None:
        """What the watch reports."""
        self.parts.openings.grants.replaced(grants)
        self.parts.openings.grants.synced()

    def connect(self, *keys: Any, user: str = USER, **how: Any) -> Any:
        """The client's connection, as asyncssh's context manager."""
        return asyncssh.connect(
            "127.0.0.1",
            self.port,
            username=user,
            client_keys=list(keys),
            known_hosts=None,
            config=None,
            agent_path=None,
            **how,
        )

    def logins(self, result: str) -> float:
        """How many had this result."""
        found = self.parts.metrics.registry.get_sample_value("node_access_gateway_logins_total", {"result": result})
        return found or 0.0


@contextlib.asynccontextmanager
async def gateway(
    authority: Authority,
    tls: ssl.SSLContext,
    session: WebSocketSession,
    folder: Path,
    limits: Limits | None = None,
    *,
    tools: NamedToolsImage = NO_TOOLS,
) -> AsyncIterator[World]:
    """A gateway that listens, connected to one Cluster."""
    limits = limits if limits is not None else Limits()
    found: list[World] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        hostile = await found[0].answer(request)
        if hostile is not None:
            return hostile
        if not request.path.endswith("/exec"):
            if request.method == "PATCH":
                (container,) = (await request.json())["spec"]["ephemeralContainers"]
                found[0].pod["spec"].setdefault("ephemeralContainers", []).append(container)
                statuses = found[0].pod["status"].setdefault("ephemeralContainerStatuses", [])
                statuses.append({"name": container["name"], "state": {"running": {}}})
            return web.json_response(found[0].pod)
        command = tuple(request.query.getall("command"))
        found[0].commands.append(command)
        found[0].containers.append(request.query["container"])
        websocket = web.WebSocketResponse(protocols=V4_ONLY, compress=False, max_msg_size=0)
        await websocket.prepare(request)
        await found[0].script(websocket, command)
        await websocket.close()
        return websocket

    asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(folder / "host_key"))
    openings = Openings(now=lambda: datetime.now(UTC), monotonic=time.monotonic, log=GatewayLog())
    async with aiohttp_server(authority, handler, context=tls) as server:
        now = datetime.now(UTC)
        kubeconfig = render_kubeconfig(server.connection, Credential("token", "u-1", now, now))
        openings.connections.replaced([connection_secret(CLUSTER, AUTHORITY, kubeconfig=kubeconfig, tools=tools)])
        openings.connections.synced()
        parts = Parts(
            openings=openings,
            clusters=Clusters(openings, session),
            resolver=KubernetesResolver(),
            metrics=GatewayMetrics(),
            now=lambda: datetime.now(UTC),
            limits=limits,
            connections=Connections(limits),
            identity=IDENTITY,
        )
        async with listening(parts, ("127.0.0.1", 0), read_host_keys([folder / "host_key"])) as (_, port):
            found.append(World(parts, port))
            yield found[0]
        if parts.tasks:
            await asyncio.wait(parts.tasks, timeout=10)
