"""Messages of Kubernetes' channel protocols, read and written. Pure.

Each WebSocket message is binary and begins with the number of its channel (streaming
``pkg/httpstream/wsstream/conn.go``). A command has the channels of ``cri-streaming`` ``pkg/streaming/remotecommand/
websocket.go``: 0 standard input, 1 standard output, 2 standard error, 3 the Status, 4 terminal sizes; version 5 adds
``255 CHANNEL``, which ends a channel. A port has those of ``pkg/streaming/portforward/websocket.go``: 0 data, 1 the
error; the server's first message on each is the port, two bytes, little-endian.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from signer.model.decision import printable

V5: Final = "v5.channel.k8s.io"
"""From Kubernetes 1.30 on (feature gate ``TranslateStreamCloseWebsocketRequests``); the API server speaks it itself."""
V4: Final = "v4.channel.k8s.io"
"""Spoken by the kubelet. It cannot end standard input."""
MAXIMUM_DATA_BYTES: Final = 32 * 1024
"""Of one message that is sent; what Go's ``io.Copy`` reads at once."""
MAXIMUM_ERROR_CHARACTERS: Final = 1024
MAXIMUM_TERMINAL_SIZE: Final = 65535
"""``TerminalSize`` (client-go ``tools/remotecommand/resize.go``) has fields of 16 bits."""

_STDIN: Final = 0
_STATUS: Final = 3
_RESIZE: Final = 4
_END: Final = 255
_PORT_DATA: Final = 0
_PORT_ERROR: Final = 1
_PORT_BYTES: Final = 2

END_OF_INPUT: Final = bytes((_END, _STDIN))
"""Ends standard input, in version 5."""


class ProtocolViolation(ValueError):
    """The server sent what the protocol does not allow. The text quotes nothing of it."""


class StandardStream(enum.Enum):
    """Where a command wrote; with a terminal, everything is standard output."""

    STDOUT = 1
    STDERR = 2


@dataclass(frozen=True, slots=True)
class Output:
    """What a command wrote; at least one byte."""

    stream: StandardStream
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class StatusMessage:
    """How the command ended, not yet parsed."""

    document: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Empty:
    """No data: a kubelet sends one such message when the command starts."""


ExecMessage: TypeAlias = Output | StatusMessage | Empty
_OUTPUTS: Final = {stream.value: stream for stream in StandardStream}


def parse_exec_message(message: bytes) -> ExecMessage:
    """One message of a command's stream.

    Raises:
        ProtocolViolation: it has no channel, or one on which servers do not send.
    """
    if not message:
        raise ProtocolViolation("the server sent a message without a channel")
    channel, data = message[0], message[1:]
    if channel in _OUTPUTS:
        return Output(_OUTPUTS[channel], data) if data else Empty()
    if channel == _STATUS:
        return StatusMessage(data) if data else Empty()
    raise ProtocolViolation("the server sent a message on an unknown channel")


def input_messages(data: bytes) -> Iterator[bytes]:
    """``data`` for standard input."""
    return _split(_STDIN, data)


def resize_message(width: int, height: int) -> bytes:
    """The terminal's size in characters, bounded to what a message can say."""
    sizes = {"Width": _size(width), "Height": _size(height)}
    return bytes((_RESIZE,)) + json.dumps(sizes, separators=(",", ":")).encode()


def _size(value: int) -> int:
    return min(max(value, 0), MAXIMUM_TERMINAL_SIZE)


@dataclass(frozen=True, slots=True)
class PortData:
    """What the pod sent."""

    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class PortError:
    """Why forwarding ended, in printable characters."""

    message: str


PortMessage: TypeAlias = PortData | PortError | Empty


class PortParser:
    """Parses the messages of one port's stream, in order."""

    __slots__ = ("_begun", "_port")

    def __init__(self, port: int) -> None:
        """``port``: the one that was asked for."""
        self._port = port.to_bytes(_PORT_BYTES, "little")
        self._begun: set[int] = set()

    def parse(self, message: bytes) -> PortMessage:
        """One message.

        Raises:
            ProtocolViolation: it has no channel or an unknown one, or the first one of a channel is not the port.
        """
        if not message:
            raise ProtocolViolation("the server sent a message without a channel")
        channel, data = message[0], message[1:]
        if channel not in (_PORT_DATA, _PORT_ERROR):
            raise ProtocolViolation("the server sent a message on an unknown channel")
        if channel not in self._begun:
            if data != self._port:
                raise ProtocolViolation("the server forwards another port than the one that was asked for")
            self._begun.add(channel)
            return Empty()
        if not data:
            return Empty()
        return PortData(data) if channel == _PORT_DATA else PortError(error_text(data))


def port_messages(data: bytes) -> Iterator[bytes]:
    """``data`` for the pod."""
    return _split(_PORT_DATA, data)


def error_text(data: bytes) -> str:
    """A server's text for people: bounded, and printable ASCII."""
    return printable(data[:MAXIMUM_ERROR_CHARACTERS].decode(errors="replace"))


def _split(channel: int, data: bytes) -> Iterator[bytes]:
    prefix = bytes((channel,))
    for start in range(0, len(data), MAXIMUM_DATA_BYTES):
        yield prefix + data[start : start + MAXIMUM_DATA_BYTES]
