"""What the program of a session asks of the agent, and what it is told: messages of a SOCK_SEQPACKET socket.

Who asks is not among it: the kernel says that (SO_PEERCRED). A request is one message of fields separated by NUL:

``VERSION`` ``run``     ``TERMINAL`` ``COMMAND``   a command, or a login shell if it is empty
``VERSION`` ``sftp``                               the SFTP server
``VERSION`` ``connect`` ``PORT``                   a connection to that port of the Pod's loopback

TERMINAL is empty, or ``TERM ROWS COLUMNS``. Requests without a terminal bring three descriptors: the standard streams.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

VERSION: Final = b"node-access-containers/1"
MAXIMUM_REQUEST_BYTES: Final = 64 * 1024
MAXIMUM_ANSWER_BYTES: Final = 1024
_TERM: Final = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_SIZE: Final = re.compile(rb"0|[1-9][0-9]{0,3}")
_PORT: Final = re.compile(rb"[1-9][0-9]{0,4}")
_HIGHEST_PORT: Final = 65535
_UNPRINTABLE: Final = re.compile(r"[^ -~]")


class RequestRefused(ValueError):
    """The message is no request."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """The client's terminal."""

    name: str
    """``TERM``"""
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class NoTerminal:
    """Streams only."""


@dataclass(frozen=True, slots=True)
class Run:
    """A command of the shell; an empty one stands for a login shell."""

    terminal: Terminal | NoTerminal
    command: str


@dataclass(frozen=True, slots=True)
class TransferFiles:
    """The SFTP server."""


@dataclass(frozen=True, slots=True)
class Connect:
    """A port of the Pod's loopback."""

    port: int


Request: TypeAlias = Run | TransferFiles | Connect


def parse_request(message: bytes) -> Request:
    """Parse a request.

    Raises:
        RequestRefused: it is none.
    """
    if len(message) > MAXIMUM_REQUEST_BYTES:
        raise RequestRefused(f"the request is larger than {MAXIMUM_REQUEST_BYTES} bytes: send a shorter command")
    version, *words = message.split(b"\0")
    if version != VERSION:
        raise RequestRefused(f"the request is not of version {VERSION.decode('ascii')}: install both programs together")
    match words:
        case [b"run", terminal, command]:
            return Run(_terminal(terminal), _command(command))
        case [b"sftp"]:
            return TransferFiles()
        case [b"connect", port]:
            return Connect(_port(port))
    raise RequestRefused("the request is neither a command, nor SFTP, nor a connection")


def encode_request(request: Request) -> bytes:
    """The message of a request."""
    return b"\0".join([VERSION, *_words(request)])


def started() -> bytes:
    """It runs; a terminal or a connected socket comes along if one was asked for."""
    return b"started"


def ended(status: int) -> bytes:
    """It has ended with that exit code."""
    return b"ended %d" % status


def refused(why: str) -> bytes:
    """Nothing runs. The reason is for the person: ASCII without control characters, for it goes to a terminal."""
    return b"refused " + _UNPRINTABLE.sub("?", why).encode("ascii")[: MAXIMUM_ANSWER_BYTES // 2]


def _words(request: Request) -> list[bytes]:
    match request:
        case Run(Terminal(name, rows, columns), command):
            return [b"run", f"{name} {rows} {columns}".encode("ascii"), command.encode("utf-8")]
        case Run(NoTerminal(), command):
            return [b"run", b"", command.encode("utf-8")]
        case TransferFiles():
            return [b"sftp"]
        case Connect(port):
            return [b"connect", str(port).encode("ascii")]
        case _:
            raise TypeError(request)


def _terminal(text: bytes) -> Terminal | NoTerminal:
    if not text:
        return NoTerminal()
    words = text.split(b" ")
    if len(words) != 3 or _TERM.fullmatch(words[0]) is None or not all(map(_SIZE.fullmatch, words[1:])):
        raise RequestRefused("the terminal is not a name with rows and columns")
    return Terminal(words[0].decode("ascii"), int(words[1]), int(words[2]))


def _command(text: bytes) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        raise RequestRefused("the command is not UTF-8") from None


def _port(text: bytes) -> int:
    if _PORT.fullmatch(text) is None or int(text) > _HIGHEST_PORT:
        raise RequestRefused("the port is not a number from 1 to 65535")
    return int(text)
