"""Channels of type ``direct-tcpip``: a port of the pod, and of nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from typing import Final

import asyncssh
from asyncssh.stream import SSHTCPStreamSession

from signer.gateway.opening import Closed
from signer.gateway.resolver import NotResolved
from signer.gateway.ssh.session import CHUNK_BYTES, Entered
from signer.gateway.streams import PodName, PortForwardFailed, PortStream, StreamEnded, port_stream
from signer.kube.errors import ApiError
from signer.model.decision import printable

_NAMES: Final = frozenset({"localhost"})
Reader = asyncssh.SSHReader[bytes]
Writer = asyncssh.SSHWriter[bytes]


def require_pod_itself(host: str, port: int) -> None:
    """The destination is a port of the pod's own loopback interface.

    Raises:
        asyncssh.ChannelOpenError: it is another host, or no port.
    """
    if not 0 < port < 65536:
        raise _prohibited("the port is out of range")
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return
    if host not in _NAMES:
        raise _prohibited("the gateway forwards to the pod itself alone: name localhost as the destination")


async def open_port(connection: Entered, port: int) -> SSHTCPStreamSession[bytes]:
    """A connection to a port of the pod.

    Raises:
        asyncssh.ChannelOpenError: there is none.
    """
    try:
        if not connection.opening().has_port_forwarding:
            raise _prohibited("the access grant does not permit port forwarding")
        container = await connection.container()
        if container.shares_host_network:
            raise _prohibited(f"pod {container.pod} uses its node's network: its ports are the node's")
        stream = await port_stream(connection.api(), PodName(container.namespace, container.pod), port)
    except (Closed, NotResolved) as error:
        raise _failed(error.message) from None
    except (ApiError, ValueError) as error:
        raise _failed(str(error)) from None

    async def copy(reader: Reader, writer: Writer) -> None:
        await _copy(stream, reader, writer)

    return SSHTCPStreamSession(copy)


async def _copy(stream: PortStream, reader: Reader, writer: Writer) -> None:
    """Until the pod's end. The protocol cannot say that the client has ended its own direction."""
    upwards = asyncio.create_task(_upwards(stream, reader))
    gone = asyncio.create_task(_gone(stream, writer))
    try:
        while data := await stream.read():
            writer.write(data)
            await writer.drain()
    except (PortForwardFailed, OSError, asyncssh.Error):
        pass  # a broken connection is an end
    finally:
        for task in (upwards, gone):
            task.cancel()
        await asyncio.gather(upwards, gone, return_exceptions=True)
        await stream.close()
        writer.close()


async def _upwards(stream: PortStream, reader: Reader) -> None:
    with contextlib.suppress(StreamEnded, OSError, asyncssh.Error):
        while data := await reader.read(CHUNK_BYTES):
            await stream.write(data)


async def _gone(stream: PortStream, writer: Writer) -> None:
    await writer.channel.wait_closed()
    await stream.close()


def _prohibited(message: str) -> asyncssh.ChannelOpenError:
    return asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, message)


def _failed(message: str) -> asyncssh.ChannelOpenError:
    return asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, printable(message))


__all__ = ["open_port", "require_pod_itself"]
