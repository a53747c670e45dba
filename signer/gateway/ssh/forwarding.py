"""Channels of type ``direct-tcpip``: a port of the pod, and of nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Callable, Coroutine
from typing import Any, Final

import asyncssh

from signer.gateway.opening import Closed
from signer.gateway.resolver import NotResolved
from signer.gateway.ssh.bounds import bound_channel
from signer.gateway.ssh.channel import Channel, ChannelGone, Data, EndOfInput, Gone
from signer.gateway.ssh.session import Entered
from signer.gateway.streams import PodName, PortForwardFailed, PortStream, StreamEnded, port_stream
from signer.kube.errors import ApiError
from signer.model.decision import printable

_NAME: Final = "localhost"
_MAXIMUM_PORT: Final = 65535


class PortChannel(asyncssh.SSHTCPSession[bytes]):
    """Implements asyncssh's callbacks."""

    def __init__(self, run: Callable[[Channel], None], gone: Callable[[], None], reads: asyncio.Event) -> None:
        """``gone`` is called when the channel is closed."""
        self._run = run
        self._stream = Channel(reads)
        self._stream.when_gone(gone)

    def connection_made(self, chan: asyncssh.SSHTCPChannel[bytes]) -> None:
        """See SSHTCPSession."""
        bound_channel(chan)
        self._stream.opened(chan)

    def connection_lost(self, exc: Exception | None) -> None:
        """See SSHTCPSession."""
        del exc
        self._stream.gone()

    def session_started(self) -> None:
        """See SSHTCPSession."""
        self._run(self._stream)

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """See SSHTCPSession."""
        del datatype
        self._stream.received(Data(data))

    def eof_received(self) -> bool:
        """See SSHTCPSession. The pod's own end is still to come."""
        self._stream.received(EndOfInput())
        return True

    def pause_writing(self) -> None:
        """See SSHTCPSession."""
        self._stream.pause_writing()

    def resume_writing(self) -> None:
        """See SSHTCPSession."""
        self._stream.resume_writing()


def require_pod_itself(host: str, port: int) -> None:
    """The destination is a port of the pod's own loopback interface.

    Raises:
        asyncssh.ChannelOpenError: it is another host, or no port.
    """
    if not 0 < port <= _MAXIMUM_PORT:
        raise _prohibited("the port is out of range")
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return
    if host != _NAME:
        raise _prohibited("the gateway forwards to the pod itself alone: name localhost as the destination")


async def open_port(
    connection: Entered,
    port: int,
    start: Callable[[Coroutine[Any, Any, None]], None],
    gone: Callable[[], None],
) -> asyncssh.SSHTCPSession[bytes]:
    """A connection to a port of the pod. ``start`` runs what copies, as one of the connection's channels. ``gone`` is
    called when the channel is closed, or was not opened.

    Raises:
        asyncssh.ChannelOpenError: there is none.
    """
    try:
        stream = await _port_stream(connection, port)
    except BaseException:  # the place is given back however opening fails, and when it is cancelled
        gone()
        raise
    return PortChannel(lambda channel: start(_copy(stream, channel)), gone, connection.reads)


async def _port_stream(connection: Entered, port: int) -> PortStream:
    try:
        if not connection.opening().has_port_forwarding:
            raise _prohibited("the access grant does not permit port forwarding")
        container = await connection.container()
        if container.shares_host_network:
            raise _prohibited(f"pod {container.pod} uses its node's network: its ports are the node's")
        return await port_stream(connection.api(), PodName(container.namespace, container.pod), port)
    except (Closed, NotResolved) as error:
        raise _failed(error.message) from None
    except (ApiError, ValueError) as error:
        raise _failed(str(error)) from None


async def _copy(stream: PortStream, channel: Channel) -> None:
    """Until the pod's end. The protocol cannot say that the client has ended its own direction."""
    upwards = asyncio.create_task(_upwards(stream, channel))
    try:
        while data := await stream.read():
            await channel.write(data)
    except (PortForwardFailed, ChannelGone):
        pass  # a broken connection is an end
    finally:
        upwards.cancel()
        await asyncio.gather(upwards, return_exceptions=True)
        await stream.close()
        channel.close()


async def _upwards(stream: PortStream, channel: Channel) -> None:
    with contextlib.suppress(StreamEnded):
        while True:
            match await channel.next():
                case Data(content):
                    await stream.write(content)
                case Gone():
                    break
    await stream.close()


def _prohibited(message: str) -> asyncssh.ChannelOpenError:
    return asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, message)


def _failed(message: str) -> asyncssh.ChannelOpenError:
    return asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, printable(message))


__all__ = ["PortChannel", "open_port", "require_pod_itself"]
