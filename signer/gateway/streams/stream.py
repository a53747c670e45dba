"""One open stream: WebSocket messages in both directions, bounded, until either side ends it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from aiohttp import ClientError, WSMsgType

from signer.gateway.streams.messages import ProtocolViolation
from signer.gateway.websocket import Upgraded
from signer.kube.resources import PODS

PING_SECONDS: Final = 5.0
"""As client-go (``tools/remotecommand/websocket.go``): load balancers drop connections that are silent for half a
minute. No answer is required: a kubelet whose command reads no input does not answer."""


class InvalidCommand(ValueError):
    """No container can be asked to run this."""


class StreamEnded(Exception):
    """The stream is over in both directions. Its result says why: keep reading until you have it."""


class EndOfInputUnsupported(Exception):
    """The API server is older than Kubernetes 1.30: it cannot tell a command that its input has ended."""


class PortForwardFailed(Exception):
    """The connection to the port failed or broke. The text is printable ASCII, at most 1024 characters."""


@dataclass(frozen=True, slots=True)
class PodName:
    """A Pod of the workload cluster."""

    namespace: str
    name: str

    def path(self, subresource: str) -> str:
        """The API path of a subresource. Raises ValueError for names that no object can have."""
        return PODS.object(self.name, self.namespace, subresource)


@dataclass(frozen=True, slots=True)
class Ended:
    """No more messages come."""

    is_clean: bool
    """The server said so (a close message with code 1000 or none). Otherwise the connection broke."""
    message: str


Received: TypeAlias = bytes | Ended


class Messages:
    """Binary messages over one WebSocket."""

    def __init__(self, websocket: Upgraded) -> None:
        self._websocket = websocket
        self._is_closed = False
        self._has_ended = False
        self._pinged = asyncio.Event()
        self._ping = b""
        self._pings = asyncio.get_running_loop().create_task(self._keep_open())

    async def send(self, messages: Iterable[bytes]) -> None:
        """Send them; waits while the server reads more slowly.

        Raises:
            StreamEnded: the stream is over; some messages are lost.
        """
        try:
            for message in messages:
                if self._has_ended:
                    raise StreamEnded("the stream has ended")
                await self._websocket.send_bytes(message)
                # While the server reads, or the connection has just broken, the call above never waits: without this,
                # the event loop would do nothing else, and would not notice either.
                await asyncio.sleep(0)
        except (ClientError, OSError):
            raise StreamEnded("the server ended the stream") from None

    async def receive(self) -> Received:
        """The next message. One task at a time may receive.

        Raises:
            ProtocolViolation: a text message, or a message that is too large or malformed.
        """
        while (message := await self._websocket.receive()).type in (WSMsgType.PING, WSMsgType.PONG):
            if message.type is WSMsgType.PING:
                self._ping = bytes(message.data)
                self._pinged.set()
        if message.type is WSMsgType.BINARY:
            return bytes(message.data)
        self._has_ended = True
        if message.type is WSMsgType.TEXT:
            raise ProtocolViolation("the server sent a text message")
        if message.type is WSMsgType.ERROR:
            raise ProtocolViolation("the server sent a message that is too large or malformed")
        if self._is_closed:
            return Ended(is_clean=False, message="the stream was closed here")
        if message.type is WSMsgType.CLOSE and self._websocket.close_code in (0, 1000):
            return Ended(is_clean=True, message="the server ended the stream")
        return Ended(is_clean=False, message="the connection to the API server broke")

    async def close(self, within_seconds: float) -> None:
        """End it, in any state. What was sent before reaches a server that reads it ``within_seconds``."""
        self._is_closed = self._has_ended = True
        self._pings.cancel()
        await self._websocket.end(within_seconds)

    async def _keep_open(self) -> None:
        """Ping, and answer pings. A task of its own: it waits while the server does not read, and reading must not. Of
        several pings it answers the last (RFC 6455 section 5.5.3).
        """
        with contextlib.suppress(ClientError, OSError):
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PING_SECONDS):
                        await self._pinged.wait()
                if self._pinged.is_set():
                    self._pinged.clear()
                    await self._websocket.pong(self._ping)
                else:
                    await self._websocket.ping()
