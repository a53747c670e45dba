"""An API server in this process that speaks Kubernetes' channel protocols as a script tells it to."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web
from multidict import CIMultiDict

from signer.gateway.person import Person, PersonAPI
from signer.gateway.streams import PodName
from signer.gateway.websocket import WebSocketSession
from tests.unit.signer.kube.support import Authority, aiohttp_server

ALICE = Person.of_creator("alice")
POD = PodName("default", "web-0")
V4_ONLY = ("v4.channel.k8s.io",)
V5_AND_V4 = ("v5.channel.k8s.io", "v4.channel.k8s.io")
SUCCESS = b'\x03{"metadata":{},"status":"Success"}'

Script = Callable[[web.WebSocketResponse], Awaitable[None]]


def exit_status(code: str) -> bytes:
    """The message of a command that ended with this code, as a kubelet writes it."""
    text = f"command terminated with non-zero exit code: exit status {code}"
    causes = [{"reason": "ExitCode", "message": code}]
    status = {"metadata": {}, "status": "Failure", "message": text, "reason": "NonZeroExitCode"}
    return b"\x03" + json.dumps(status | {"details": {"causes": causes}}).encode()


@dataclass
class Asked:
    """What the server was asked."""

    targets: list[str] = field(default_factory=list)
    fields: list[CIMultiDict[str]] = field(default_factory=list)


@dataclass
class Opened:
    """A person's API at the server."""

    api: PersonAPI
    asked: Asked


@contextlib.asynccontextmanager
async def api_server(
    authority: Authority,
    tls: ssl.SSLContext,
    session: WebSocketSession,
    script: Script,
    protocols: Sequence[str] = V5_AND_V4,
) -> AsyncIterator[Opened]:
    """A server that opens each WebSocket and then runs ``script``, which closes it by returning."""
    asked = Asked()

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.targets.append(request.raw_path)
        asked.fields.append(CIMultiDict(request.headers))
        websocket = web.WebSocketResponse(protocols=protocols, compress=False, max_msg_size=0)
        await websocket.prepare(request)
        await script(websocket)
        await websocket.close()
        return websocket

    async with (
        aiohttp_server(authority, handler, context=tls) as server,
        PersonAPI(server.connection, ALICE, session) as api,
    ):
        yield Opened(api, asked)


async def bytes_of(websocket: web.WebSocketResponse) -> bytes:
    """The next message of the client, which must be binary."""
    message = await websocket.receive()
    assert message.type is WSMsgType.BINARY, message
    return bytes(message.data)


async def until_closed(websocket: web.WebSocketResponse) -> None:
    """Read until the client closes or drops the connection."""
    async for _ in websocket:
        pass
