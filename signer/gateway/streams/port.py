"""A connection to a port of a Pod, in its network namespace (``pods/portforward``)."""

from __future__ import annotations

from typing import Final

from signer.gateway.person import PersonAPI
from signer.gateway.streams.messages import (
    V4,
    PortData,
    PortError,
    PortParser,
    ProtocolViolation,
    port_messages,
)
from signer.gateway.streams.stream import Ended, Messages, PodName, PortForwardFailed
from signer.gateway.websocket import CLOSE_SECONDS

MAXIMUM_PORT: Final = 65535


async def port_stream(api: PersonAPI, pod: PodName, port: int) -> PortStream:
    """Connect to a TCP port on the Pod's loopback interface. The caller must close the stream.

    The API server accepts before the kubelet connects: a port on which nothing listens fails at the first ``read``.

    Raises:
        ApiError: the API server or the kubelet refused.
        ValueError: no port has this number, or no Pod these names.
    """
    if not 1 <= port <= MAXIMUM_PORT:
        raise ValueError(f"a port is a number from 1 to {MAXIMUM_PORT}")
    websocket = await api.websocket(pod.path("portforward"), (("ports", str(port)),), (V4,))
    return PortStream(Messages(websocket), port)


class PortStream:
    """An open connection. One task may read, others write and close.

    The protocol has no half-close: there is no way to tell the Pod that no more data comes, without ending the other
    direction, too. A client that ends its side first must therefore keep the stream open until ``read`` returns empty.
    """

    def __init__(self, messages: Messages, port: int) -> None:
        self._messages = messages
        self._parser = PortParser(port)
        self._is_over = False

    async def read(self) -> bytes:
        """What the Pod sent next; empty at the end, and from then on.

        Raises:
            PortForwardFailed: the kubelet could not connect, the connection broke, or the server violated the protocol.
        """
        while not self._is_over:
            try:
                data = await self._next()
            except PortForwardFailed:
                self._is_over = True
                raise
            if data:
                return data
        return b""

    async def _next(self) -> bytes:
        try:
            received = await self._messages.receive()
            if isinstance(received, Ended):
                if not received.is_clean:
                    raise PortForwardFailed(received.message)
                self._is_over = True
                return b""
            message = self._parser.parse(received)
        except ProtocolViolation as violation:
            raise PortForwardFailed(f"{violation}") from None
        if isinstance(message, PortError):
            raise PortForwardFailed(message.message)
        return message.data if isinstance(message, PortData) else b""

    async def write(self, data: bytes) -> None:
        """Send to the Pod; waits until the API server takes it.

        Raises:
            StreamEnded: the connection ended; ``read`` says why.
        """
        await self._messages.send(port_messages(data))

    async def close(self, within_seconds: float = CLOSE_SECONDS) -> None:
        """End the connection in both directions, in any state. What was written before reaches the Pod if it reads that
        ``within_seconds``.
        """
        await self._messages.close(within_seconds)
