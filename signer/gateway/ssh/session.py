"""One channel of type ``session``: a shell, a command or SFTP in the container."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

import asyncssh

from signer.gateway.commands import (
    CONTROL_CHARACTERS,
    SFTP,
    SFTP_SERVERS,
    SIGNALS,
    SessionMark,
    session_command,
    sftp_command,
    terminal_type,
)
from signer.gateway.opening import Closed, Opening
from signer.gateway.person import PersonAPI
from signer.gateway.resolver import NotResolved, RunningContainer
from signer.gateway.streams import (
    EndOfInputUnsupported,
    ExecStream,
    Exited,
    Failed,
    InvalidCommand,
    Output,
    PodName,
    StandardStream,
    StreamEnded,
    exec_stream,
)
from signer.kube.errors import ApiError
from signer.model.decision import printable

_LOG = logging.getLogger(__name__)
CHUNK_BYTES: Final = 32 * 1024
EXIT_FAILED: Final = 255
"""As ssh's own, where the command did not run or its end is not known."""
EXIT_NOT_FOUND: Final = 127
_NO_SHELL: Final = "the image has no shell (sh), which the gateway needs"
_NO_SFTP: Final = "the image has no SFTP server; try scp -O, or tar over ssh"
Process = asyncssh.SSHServerProcess[bytes]


class Entered(Protocol):
    """The connection, as its sessions see it."""

    mark: SessionMark

    def opening(self) -> Opening:
        """What is open now. Raises Closed."""
        ...

    def api(self) -> PersonAPI:
        """The workload cluster in the person's name. Raises Closed."""
        ...

    async def container(self) -> RunningContainer:
        """The container that the login means now. Raises NotResolved, ApiError or Closed."""
        ...

    async def signal(self, name: str) -> None:
        """Send a signal to the connection's processes in its containers."""
        ...


class SessionProcess(asyncssh.SSHServerProcess[bytes]):
    """A session, with a terminal only if the grant has one."""

    def __init__(self, handler: Callable[[Process], Awaitable[None]], *, has_terminal: bool) -> None:
        super().__init__(handler, None, 3, allow_scp=False)
        self._has_terminal = has_terminal

    def pty_requested(self, term_type: str, term_size: object, term_modes: object) -> bool:
        """Without one, ssh says so and goes on."""
        del term_type, term_size, term_modes
        return self._has_terminal


@dataclass(slots=True)
class Session:
    """Runs one session."""

    connection: Entered
    names_pod: bool
    """The login named a workload: say which pod it is."""

    async def run(self, process: Process) -> None:
        """From the request to the exit code. What goes wrong is said on standard error."""
        try:
            code = await self._run(process)
        except (Closed, NotResolved) as error:
            code = _say(process, error.message)
        except (ApiError, InvalidCommand, ValueError) as error:
            code = _say(process, printable(str(error)))
        with contextlib.suppress(OSError):  # the client has gone
            process.exit(code)

    async def _run(self, process: Process) -> int:
        opening = self.connection.opening()
        container = await self.connection.container()
        terminal = terminal_type(process.term_type) if process.term_type is not None else ""
        if self.names_pod and terminal:
            _say(process, f"connected to pod {container.pod}")
        if process.subsystem == SFTP and not opening.command:
            return await self._sftp(process, container)
        if process.subsystem is not None and not opening.command:
            return _say(process, f"there is no subsystem {printable(process.subsystem)}")
        asked = process.command or process.subsystem or ""
        words = session_command(self.connection.mark, terminal, asked, opening.command)
        stream = await self._exec(container, words, is_terminal=bool(terminal))
        result = await _Pump(self.connection, process, stream, is_terminal=bool(terminal)).run()
        if isinstance(result, Exited):
            return result.code
        return _say(process, _NO_SHELL if _is_missing_program(result.message) else result.message)

    async def _sftp(self, process: Process, container: RunningContainer) -> int:
        """By the image's shell; without one, each server that images have is tried."""
        first = await _first_input(process)
        if not first:
            return EXIT_FAILED
        candidates = (sftp_command(self.connection.mark), *((path,) for path in SFTP_SERVERS))
        for words in candidates:
            stream = await self._exec(container, words, is_terminal=False)
            result = await _Pump(self.connection, process, stream, is_terminal=False, first=first).run()
            if isinstance(result, Exited) and result.code != EXIT_NOT_FOUND:
                return result.code
            if not isinstance(result, Exited) and not _is_missing_program(result.message):
                return _say(process, result.message)
            if isinstance(result, Exited) and words is candidates[0]:
                break  # the shell has looked everywhere
        return _say(process, _NO_SFTP, EXIT_NOT_FOUND)

    async def _exec(self, container: RunningContainer, words: tuple[str, ...], *, is_terminal: bool) -> ExecStream:
        pod = PodName(container.namespace, container.pod)
        return await exec_stream(self.connection.api(), pod, container.container, words, tty=is_terminal)


class _Pump:
    """Passes data between a session and a command until the command ends, or the client goes."""

    def __init__(
        self, connection: Entered, process: Process, stream: ExecStream, *, is_terminal: bool, first: bytes = b""
    ) -> None:
        self._connection = connection
        self._process = process
        self._stream = stream
        self._is_terminal = is_terminal
        self._first = first

    async def run(self) -> Exited | Failed:
        """How the command ended."""
        stdin = asyncio.create_task(self._input())
        gone = asyncio.create_task(self._gone())
        try:
            return await self._output()
        finally:
            for task in (stdin, gone):
                task.cancel()
            await asyncio.gather(stdin, gone, return_exceptions=True)
            await self._stream.close()

    async def _gone(self) -> None:
        """The client has closed the channel: nothing is read from the command any more."""
        await self._process.channel.wait_closed()
        await self._stream.close()

    async def _output(self) -> Exited | Failed:
        writers = {StandardStream.STDOUT: self._process.stdout, StandardStream.STDERR: self._process.stderr}
        try:
            async for one in self._stream:
                if not isinstance(one, Output):
                    return one
                writer = writers[one.stream]
                writer.write(one.data)
                await writer.drain()
        except (OSError, asyncssh.Error):
            return Failed("the client has gone")
        return Failed("the command's stream has no end")

    async def _input(self) -> None:
        with contextlib.suppress(StreamEnded, OSError, asyncssh.Error):
            if self._is_terminal:
                width, height = self._process.term_size[:2]
                await self._resize(width, height)
            if self._first:
                await self._stream.send(self._first)
            while await self._one_input():
                pass

    async def _one_input(self) -> bool:
        try:
            data = await self._process.stdin.read(CHUNK_BYTES)
        except asyncssh.TerminalSizeChanged as change:
            await self._resize(change.width, change.height)
            return True
        except asyncssh.SignalReceived as received:
            await self._signal(received.signal)
            return True
        except asyncssh.BreakReceived:
            return True
        if data:
            await self._stream.send(data)
            return True
        try:
            await self._stream.end_input()
        except EndOfInputUnsupported as unsupported:
            _say(self._process, str(unsupported))
        return False

    async def _resize(self, width: int, height: int) -> None:
        if self._is_terminal and 0 < width < 65536 and 0 < height < 65536:
            await self._stream.resize(width, height)

    async def _signal(self, name: str) -> None:
        if self._is_terminal and name in CONTROL_CHARACTERS:
            await self._stream.send(CONTROL_CHARACTERS[name])
        elif name in SIGNALS:
            await self._connection.signal(name)


async def _first_input(process: Process) -> bytes:
    """The first data; empty at the end of input."""
    while True:
        try:
            return await process.stdin.read(CHUNK_BYTES)
        except (asyncssh.TerminalSizeChanged, asyncssh.SignalReceived, asyncssh.BreakReceived):
            continue


def _is_missing_program(message: str) -> bool:
    """As runc and crun say it (execve(2), ENOENT)."""
    return "executable file not found" in message or "no such file or directory" in message


def _say(process: Process, message: str, code: int = EXIT_FAILED) -> int:
    with contextlib.suppress(OSError, asyncssh.Error):
        process.stderr.write(f"node-access-gateway: {printable(message)}\r\n".encode())
    return code


__all__ = ["EXIT_FAILED", "EXIT_NOT_FOUND", "Entered", "Process", "Session", "SessionProcess"]
