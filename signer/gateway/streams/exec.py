"""A command in a running container (``pods/exec``): its input, its output, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Self

from signer.gateway.person import PersonAPI
from signer.gateway.streams.messages import (
    END_OF_INPUT,
    V4,
    V5,
    Empty,
    Output,
    ProtocolViolation,
    input_messages,
    parse_exec_message,
    resize_message,
)
from signer.gateway.streams.status import CommandResult, Failed, parse_status
from signer.gateway.streams.stream import (
    Ended,
    EndOfInputUnsupported,
    InvalidCommand,
    Messages,
    PodName,
)
from signer.gateway.websocket import CLOSE_SECONDS

AFTER_STATUS_SECONDS: Final = 5.0
"""Servers close the stream at once after the Status; output that they send after it is still passed on. Messages
without output prolong nothing.
"""


async def exec_stream(
    api: PersonAPI, pod: PodName, container: str, command: Sequence[str], *, tty: bool, stdin: bool = True
) -> ExecStream:
    """Start a command (Kubernetes API, ``PodExecOptions``). It has standard input if ``stdin`` is set, and a terminal
    instead of a standard error of its own if ``tty`` is. The caller must close the stream.

    Raises:
        ApiError: the API server or the kubelet refused, for example because there is no such container.
        InvalidCommand: no API call can carry this command.
        ValueError: no object can have these names, or the command is too long.
    """
    fields = [("container", container), *(("command", _argument(word)) for word in command)]
    if not command or not container:
        raise InvalidCommand("a command needs a container and at least one word")
    for name, is_wanted in (("stdin", stdin), ("stdout", True), ("stderr", not tty), ("tty", tty)):
        fields.append((name, "true" if is_wanted else "false"))
    websocket = await api.websocket(pod.path("exec"), fields, (V5, V4))
    return ExecStream(Messages(websocket), can_end_input=websocket.protocol == V5)


def _argument(word: str) -> str:
    """Raises InvalidCommand for a word that is no argument of a program (execve(2)) or no UTF-8."""
    if "\0" in word:
        raise InvalidCommand("a command cannot contain a NUL character")
    try:
        word.encode()
    except UnicodeEncodeError:
        raise InvalidCommand("a command must be valid UTF-8") from None
    return word


class ExecStream:
    """A running command.

    Iterate over it in one task: it yields any number of :class:`Output`, then exactly one :class:`Exited` or
    :class:`Failed`. It reads from the API server only as fast as that. Other tasks may send, resize and close.
    """

    def __init__(self, messages: Messages, *, can_end_input: bool) -> None:
        self._messages = messages
        self._is_over = False
        self._status: CommandResult | None = None
        self.can_end_input = can_end_input
        """Whether ``end_input`` works: the API server is Kubernetes 1.30 or newer."""

    async def send(self, data: bytes) -> None:
        """Send standard input; waits until the API server takes it.

        Raises:
            StreamEnded: the command or the connection ended. This is no error: iteration yields the result.
        """
        await self._messages.send(input_messages(data))

    async def end_input(self) -> None:
        """End standard input, after what was sent before.

        Raises:
            EndOfInputUnsupported: the server speaks version 4, so that the command would wait for ever.
            StreamEnded: see ``send``.
        """
        if not self.can_end_input:
            raise EndOfInputUnsupported(
                "the end of input cannot be passed on: the API server of the cluster is older than Kubernetes 1.30"
            )
        await self._messages.send((END_OF_INPUT,))

    async def resize(self, width: int, height: int) -> None:
        """Set the terminal's size in characters. Raises StreamEnded."""
        await self._messages.send((resize_message(width, height),))

    async def close(self, within_seconds: float = CLOSE_SECONDS) -> None:
        """End the stream, in any state and ``within_seconds``; iteration then ends with Failed, unless the result was
        there. Kubernetes stops no process: the command loses its input, output and terminal.
        """
        await self._messages.close(within_seconds)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Output | CommandResult:
        if self._is_over:
            raise StopAsyncIteration
        try:
            following = await self._following()
        except ProtocolViolation as violation:
            following = Failed(f"{violation}")
        if not isinstance(following, Output):
            self._is_over = True
        return following

    async def _following(self) -> Output | CommandResult:
        ends = None
        while True:
            if self._status is not None and ends is None:
                ends = asyncio.get_running_loop().time() + AFTER_STATUS_SECONDS
            following = await self._next(ends)
            if following is not None:
                return following

    async def _next(self, ends: float | None) -> Output | CommandResult | None:
        """None for a message that holds nothing for the caller. ``ends``: by the event loop's clock."""
        try:
            async with asyncio.timeout_at(ends):
                received = await self._messages.receive()
        except TimeoutError:
            received = Ended(is_clean=False, message="the server did not end the stream")
        if isinstance(received, Ended):
            return self._status or Failed(f"{received.message} before the command's exit code was known")
        message = parse_exec_message(received)
        if isinstance(message, Output):
            return message
        if isinstance(message, Empty):
            return None
        if self._status is not None:
            raise ProtocolViolation("the server sent two statuses of one command")
        self._status = parse_status(message.document)
        return None
