"""One channel of type ``session``: a shell, a command or SFTP in the container."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import asyncssh

from signer.gateway.commands import (
    CONTROL_CHARACTERS,
    SFTP,
    SFTP_SERVERS,
    SIGNALS,
    SessionMark,
    probe_command,
    session_command,
    sftp_command,
    terminal_type,
    tools_sftp_command,
)
from signer.gateway.opening import Closed, Opening
from signer.gateway.person import PersonAPI
from signer.gateway.resolver import NotResolved, RunningContainer
from signer.gateway.running import is_missing_program, run_to_its_end
from signer.gateway.ssh.bounds import bound_channel
from signer.gateway.ssh.channel import Channel, ChannelGone, Data, EndOfInput, Gone, Resized, Signalled
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
from signer.gateway.tools_container import TARGET_ROOT
from signer.gateway.tools_starting import SWITCHED_OFF
from signer.kube.errors import ApiError
from signer.model.decision import printable

PATIENCE_SECONDS: Final = 2.0
"""A command that still runs so long after the end of its input may wait for it."""
EXIT_FAILED: Final = 255
"""As ssh's own, where the command did not run or its end is not known."""
EXIT_NOT_FOUND: Final = 127
MAXIMUM_COMMAND_CHARACTERS: Final = 32 * 1024
MAXIMUM_TERMINAL_SIZE: Final = 65535
_NO_SHELL: Final = "the image has no shell (sh), which the gateway needs"
_NO_SFTP: Final = "the image has no SFTP server; try scp -O, or tar over ssh"
_NO_SCP: Final = "the image has no scp; use sftp, scp of OpenSSH 9 without -O, or tar over ssh"
_LEGACY_COPY: Final = "scp -"
"""So begins what scp asks for without SFTP."""
_LEGACY_UPLOAD: Final = re.compile(r"scp(?: -[dprv])* -t ", re.ASCII)
"""And so to receive files."""
_TOOLS_NEEDED: Final = f"the tools image has no SFTP server at {', '.join(SFTP_SERVERS)}; tell the operator"
_DATATYPES: Final = {StandardStream.STDOUT: None, StandardStream.STDERR: asyncssh.EXTENDED_DATA_STDERR}


class Entered(Protocol):
    """The connection, as its channels see it."""

    mark: SessionMark
    reads: asyncio.Event
    """Set while the client reads from the connection."""
    with_shell: RunningContainer | None
    """The last container that was found to have a shell."""

    def opening(self) -> Opening:
        """What is open now. Raises Closed."""
        ...

    def api(self) -> PersonAPI:
        """The workload cluster in the person's name. Raises Closed."""
        ...

    async def container(self) -> RunningContainer:
        """The container that the login means now. Raises NotResolved, ApiError or Closed."""
        ...

    def has_tools(self) -> bool:
        """Whether the operator lets the gateway add containers with tools. Raises Closed."""
        ...

    async def tools(self, target: RunningContainer) -> RunningContainer:
        """The grant's tools container beside ``target``. Raises NotResolved, ApiError or Closed."""
        ...

    async def signal(self, name: str) -> None:
        """Send a signal of the client to the connection's processes in its containers. Too many are dropped."""
        ...


@dataclass(slots=True)
class Asked:
    """What the client has asked for, before the session starts."""

    command: str = ""
    """Empty for a shell."""
    subsystem: str = ""
    terminal: str = ""
    """Empty without a terminal."""


class SessionChannel(asyncssh.SSHServerSession[bytes]):
    """Implements asyncssh's callbacks."""

    def __init__(self, run: Callable[[SessionChannel], None], *, reads: asyncio.Event, has_terminal: bool) -> None:
        self._run = run
        self._has_terminal = has_terminal
        self.stream = Channel(reads)
        self.asked = Asked()
        self.has_ended_input = False
        self._ssh: asyncssh.SSHServerChannel[bytes] | None = None

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        """See SSHServerSession."""
        self._ssh = chan
        bound_channel(chan)
        self.stream.opened(chan)

    def connection_lost(self, exc: Exception | None) -> None:
        """See SSHServerSession."""
        del exc
        self.stream.gone()

    def pty_requested(
        self, term_type: str, term_size: tuple[int, int, int, int], term_modes: Mapping[int, int]
    ) -> bool:
        """See SSHServerSession. Without a terminal, ssh says so and goes on."""
        del term_modes
        if self._has_terminal:
            self.asked.terminal = terminal_type(term_type)
            self.terminal_size_changed(*term_size)
        return self._has_terminal

    def shell_requested(self) -> bool:
        """See SSHServerSession."""
        return True

    def exec_requested(self, command: str) -> bool:
        """See SSHServerSession."""
        self.asked.command = command
        return len(command) <= MAXIMUM_COMMAND_CHARACTERS

    def subsystem_requested(self, subsystem: str) -> bool:
        """See SSHServerSession."""
        self.asked.subsystem = subsystem
        return len(subsystem) <= MAXIMUM_COMMAND_CHARACTERS

    def session_started(self) -> None:
        """See SSHServerSession."""
        self._run(self)

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """See SSHServerSession."""
        if datatype is None:
            self.stream.received(Data(data))

    def eof_received(self) -> bool:
        """See SSHServerSession. Output is still to come."""
        self.has_ended_input = True
        self.stream.received(EndOfInput())
        return True

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        """See SSHServerSession."""
        del pixwidth, pixheight
        if 0 < width <= MAXIMUM_TERMINAL_SIZE and 0 < height <= MAXIMUM_TERMINAL_SIZE:
            self.stream.received(Resized(width, height))

    def signal_received(self, signal: str) -> None:
        """See SSHServerSession."""
        self.stream.received(Signalled(signal))

    def pause_writing(self) -> None:
        """See SSHServerSession."""
        self.stream.pause_writing()

    def resume_writing(self) -> None:
        """See SSHServerSession."""
        self.stream.resume_writing()

    def say(self, message: str) -> None:
        """A line for the person."""
        with contextlib.suppress(ChannelGone):
            line = f"node-access-gateway: {printable(message)}\r\n".encode()
            self.stream.write_now(line, asyncssh.EXTENDED_DATA_STDERR)

    def exit(self, code: int) -> None:
        """The exit code, behind all output."""
        with contextlib.suppress(ChannelGone):
            self.stream.flush()
        if self._ssh is not None and not self._ssh.is_closing():
            self._ssh.exit(code)


@dataclass(slots=True)
class Session:
    """Runs one session."""

    connection: Entered
    channel: SessionChannel
    names_pod: bool
    """The login named a workload: say which pod it is."""

    async def run(self) -> None:
        """From the request to the exit code. What goes wrong is said on standard error."""
        try:
            code = await self._run()
        except (Closed, NotResolved) as error:
            code = self._fail(error.message)
        except (ApiError, InvalidCommand, ValueError) as error:
            code = self._fail(str(error))
        self.channel.exit(code)

    async def _run(self) -> int:
        asked = self.channel.asked
        opening = self.connection.opening()
        container = await self.connection.container()
        if self.names_pod and asked.terminal:
            self.channel.say(f"connected to pod {container.pod}")
        if asked.subsystem == SFTP and not opening.command:
            return await self._sftp(container)
        if asked.subsystem and not opening.command:
            return self._fail(f"there is no subsystem {asked.subsystem[:64]}")
        folder = ""
        if not opening.command and self.connection.has_tools() and not await self._has_shell(container):
            container, folder = await self._tools(container, "the image has no shell"), TARGET_ROOT
        mark, command = self.connection.mark, asked.command or asked.subsystem
        words = session_command(mark, asked.terminal, command, opening.command, folder)
        is_upload = not opening.command and _LEGACY_UPLOAD.match(asked.command) is not None
        result = await self._pass(container, words, has_read_answers=is_upload)
        if isinstance(result, Failed) and is_upload and self.channel.has_ended_input:
            return 0
        if isinstance(result, Exited):
            if result.code == EXIT_NOT_FOUND and asked.command.startswith(_LEGACY_COPY) and not opening.command:
                self.channel.say(_NO_SCP)
            return result.code
        return self._fail(_missing(_NO_SHELL) if is_missing_program(result) else result.message)

    async def _has_shell(self, container: RunningContainer) -> bool:
        """Asked before a connection's first session in it, whose input a command that does not start would take."""
        if container == self.connection.with_shell:
            return True
        if is_missing_program(await run_to_its_end(self.connection.api(), container, probe_command())):
            return False
        self.connection.with_shell = container
        return True

    async def _tools(self, target: RunningContainer, why: str) -> RunningContainer:
        if self.channel.asked.terminal:
            self.channel.say(f"{why}: starting a container with tools beside {target.container}")
        found = await self.connection.tools(target)
        self.channel.say(f"{why}: this is a container with tools; files of {target.container} are below {TARGET_ROOT}")
        return found

    async def _sftp(self, container: RunningContainer) -> int:
        """By the image's shell; without one, each server that images have is tried."""
        first = await self.channel.stream.next()
        if not isinstance(first, Data):
            return EXIT_FAILED
        servers = (sftp_command(self.connection.mark), *((path,) for path in SFTP_SERVERS))
        code = await self._sftp_of(container, first.content, servers)
        if code != EXIT_NOT_FOUND:
            return code
        if not self.connection.has_tools():
            return self._fail(_missing(_NO_SFTP), EXIT_NOT_FOUND)
        tools = await self._tools(container, "the image has no SFTP server")
        code = await self._sftp_of(tools, first.content, (tools_sftp_command(self.connection.mark),))
        return code if code != EXIT_NOT_FOUND else self._fail(_TOOLS_NEEDED, code)

    async def _sftp_of(self, container: RunningContainer, first: bytes, servers: Sequence[tuple[str, ...]]) -> int:
        """The first server that there is. ``EXIT_NOT_FOUND`` without one: then nothing was answered."""
        by_shell = servers[0]
        for words in servers:
            result = await self._pass(container, words, first, has_read_answers=True)
            if self.channel.has_ended_input:
                return 0
            if isinstance(result, Failed) and not is_missing_program(result):
                return self._fail(result.message)
            if isinstance(result, Exited) and result.code != EXIT_NOT_FOUND:
                return result.code
            if isinstance(result, Exited) and words is by_shell:
                break  # the shell has looked everywhere
        return EXIT_NOT_FOUND

    async def _pass(
        self, container: RunningContainer, words: tuple[str, ...], first: bytes = b"", *, has_read_answers: bool
    ) -> Exited | Failed:
        pod = PodName(container.namespace, container.pod)
        is_terminal = bool(self.channel.asked.terminal)
        stream = await exec_stream(self.connection.api(), pod, container.container, words, tty=is_terminal)
        return await _Pump(self.connection, self.channel, stream, first, has_read_answers=has_read_answers).run()

    def _fail(self, message: str, code: int = EXIT_FAILED) -> int:
        self.channel.say(message)
        return code


class _Pump:
    """Passes data between a session and a command until the command ends, or the client goes."""

    def __init__(
        self, connection: Entered, channel: SessionChannel, stream: ExecStream, first: bytes, *, has_read_answers: bool
    ) -> None:
        """``has_read_answers``: a client of this protocol has read every answer before it ends its input."""
        self._connection = connection
        self._channel = channel
        self._stream = stream
        self._first = first
        self._has_read_answers = has_read_answers
        self._is_terminal = bool(channel.asked.terminal)

    async def run(self) -> Exited | Failed:
        """How the command ended."""
        inward = asyncio.create_task(self._input())
        try:
            return await self._output()
        finally:
            inward.cancel()
            await asyncio.gather(inward, return_exceptions=True)
            await self._stream.close()

    async def _output(self) -> Exited | Failed:
        try:
            async for one in self._stream:
                if not isinstance(one, Output):
                    return one
                await self._channel.stream.write(one.data, _DATATYPES[one.stream])
        except ChannelGone:
            return Failed("the client has gone")
        return Failed("the command's stream has no end")

    async def _input(self) -> None:
        with contextlib.suppress(StreamEnded):
            if self._first:
                await self._stream.send(self._first)
            while await self._one_input():
                pass

    async def _one_input(self) -> bool:
        match await self._channel.stream.next():
            case Data(content):
                await self._stream.send(content)
            case Resized(width, height):
                if self._is_terminal:
                    await self._stream.resize(width, height)
            case Signalled(name):
                await self._signal(name)
            case EndOfInput():
                await self._end_input()
            case Gone():
                await self._stream.close()
                return False
        return True

    async def _end_input(self) -> None:
        try:
            await self._stream.end_input()
        except EndOfInputUnsupported as unsupported:
            if self._has_read_answers:
                await self._stream.close()
                return
            await asyncio.sleep(PATIENCE_SECONDS)  # this task ends with the command
            self._channel.say(str(unsupported))

    async def _signal(self, name: str) -> None:
        if self._is_terminal and name in CONTROL_CHARACTERS:
            await self._stream.send(CONTROL_CHARACTERS[name])
        elif name in SIGNALS:
            await self._connection.signal(name)


def _missing(what: str) -> str:
    return f"{what}; {SWITCHED_OFF}"


__all__ = ["EXIT_FAILED", "EXIT_NOT_FOUND", "Asked", "Entered", "Session", "SessionChannel"]
