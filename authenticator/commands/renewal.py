"""A renewal in a child process, which continues when the plugin, for which a kubelet waits, has to end.

The child is a fork of a process with a single thread, no lock and no attestor. It loads the attestor, opens the TPM,
and takes and releases the lock itself. Other invocations find the lock held, and do not wait.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO
from typing import Final, NoReturn, TypeAlias

from authenticator.commands.arguments import report
from authenticator.flow.bounded import bounded, longest
from authenticator.flow.certificates import RENEWAL_TIMEOUT_SECONDS
from authenticator.model.failures import Failure

_MAXIMUM_ANSWER_BYTES: Final = 32
_MAXIMUM_MESSAGES_BYTES: Final = 64 * 1024
_POLL_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class Finished:
    """The stored pair is the one to use; the next step is due at ``until`` (Unix time)."""

    until: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The renewal ended without a result."""

    cause: str
    """What the child could not report itself; empty if it did."""


@dataclass(frozen=True, slots=True)
class StillRunning:
    """The renewal continues."""

    process: int


Renewal: TypeAlias = Finished | Failed | StillRunning


def renew_in_child(renew: Callable[[], int], *, seconds: float) -> Renewal:
    """Start a renewal, and wait that long for it. ``renew`` returns the time of the next step.

    Raises:
        OSError: no further process can be created.
    """
    end = time.monotonic() + seconds
    reading, writing = os.pipe()
    with FileIO(reading) as answers, FileIO(writing, "w") as answering, _messages() as messages:
        process = os.fork()
        if process == 0:
            _run_child(renew, answering.fileno(), messages.fileno())
        answering.close()
        polling = select.poll()
        polling.register(answers, select.POLLIN)
        ended = polling.poll(seconds * 1000)
        answer = answers.read(_MAXIMUM_ANSWER_BYTES) if ended else b""
        _forward(messages)
    if answer:
        return Finished(int(answer))
    return Failed(_signal(process, end)) if ended else StillRunning(process)


def _run_child(renew: Callable[[], int], answering: int, messages: int) -> NoReturn:
    """The child process, which must never return into its parent's code."""
    code = 1
    try:
        os.setsid()  # do not receive signals meant for the plugin and the terminal's other processes
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(messages, 2)
        os.dup2(2, 1)  # a kubelet reads the plugin's stdout to its end, and takes all of it as the credential
        sys.stdout = sys.stderr  # has no buffer that could be lost
        with bounded(longest(exchanges=1, timeout=RENEWAL_TIMEOUT_SECONDS)):
            os.write(answering, b"%d" % renew())
        code = 0
    except BaseException as error:  # noqa: BLE001 - a failed renewal must not withhold the present certificate
        report(f"{error if isinstance(error, Failure) else repr(error)}; the stored certificate is still valid")
    finally:
        os._exit(code)


def _messages() -> FileIO:
    """The file for the renewal's messages: the log, however late they come.

    If stderr is a pipe, the child must not hold it: its reader waits for the pipe's end, and must not wait longer than
    for the plugin. The messages are then forwarded while the plugin waits for the renewal.
    """
    log = sys.stderr.fileno()
    if stat.S_ISFIFO(os.fstat(log).st_mode):
        return FileIO(os.memfd_create("messages of a renewal"), "w+")
    return FileIO(os.dup(log), "w")


def _forward(messages: FileIO) -> None:
    if messages.readable():
        # pread does not move the position, at which the child writes.
        text = os.pread(messages.fileno(), _MAXIMUM_MESSAGES_BYTES, 0)
        with contextlib.suppress(OSError):
            sys.stderr.write(text.decode("utf-8", "replace"))
            sys.stderr.flush()


def _signal(process: int, end: float) -> str:
    """The signal that ended the process, which has just closed its end of the pipe; empty if none did."""
    with contextlib.suppress(ChildProcessError):  # the exit status is unknown: SIGCHLD is ignored
        while time.monotonic() < end:
            found, status = os.waitpid(process, os.WNOHANG)
            if found:
                code = os.waitstatus_to_exitcode(status)
                return f"the process was ended by signal {-code} ({signal.strsignal(-code)})" if code < 0 else ""
            time.sleep(_POLL_SECONDS)
    return ""
