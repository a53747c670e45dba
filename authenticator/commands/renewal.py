"""A renewal in a process of its own: it goes on where the plugin, which a kubelet waits for, has to end.

The process is a fork of one that has a single thread, no lock and no attestor: it loads the attestor, opens the TPM,
and takes and releases the lock itself. Who comes meanwhile finds the lock held, and does not wait.
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
    """The stored pair is the one to use; there is nothing to do before ``until`` (Unix time)."""

    until: int


@dataclass(frozen=True, slots=True)
class Broken:
    """It ended without an answer."""

    how: str
    """What it could not say itself; empty where it did."""


@dataclass(frozen=True, slots=True)
class UnderWay:
    """It goes on."""

    process: int


Renewal: TypeAlias = Finished | Broken | UnderWay


def renew_apart(renew: Callable[[], int], *, seconds: float) -> Renewal:
    """Begin to renew, and wait so long for it. ``renew`` returns until when there is nothing to do.

    Raises:
        OSError: there can be no further process.
    """
    end = time.monotonic() + seconds
    reading, writing = os.pipe()
    with FileIO(reading) as answers, FileIO(writing, "w") as answering, _messages() as messages:
        process = os.fork()
        if process == 0:
            _go_on(renew, answering.fileno(), messages.fileno())
        answering.close()
        looking = select.poll()
        looking.register(answers, select.POLLIN)
        ended = looking.poll(seconds * 1000)
        answer = answers.read(_MAXIMUM_ANSWER_BYTES) if ended else b""
        _pass_on(messages)
    if answer:
        return Finished(int(answer))
    return Broken(_signal(process, end)) if ended else UnderWay(process)


def _go_on(renew: Callable[[], int], answering: int, messages: int) -> NoReturn:
    """The new process, which must never return into its parent's code."""
    code = 1
    try:
        os.setsid()  # no signal that is meant for the plugin and a terminal's other processes
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(messages, 2)
        os.dup2(2, 1)  # a kubelet waits for the end of the plugin's stdout, and takes all of it for the credential
        sys.stdout = sys.stderr  # without a buffer of its own, which would be lost
        with bounded(longest(exchanges=1, timeout=RENEWAL_TIMEOUT_SECONDS)):
            os.write(answering, b"%d" % renew())
        code = 0
    except BaseException as error:  # noqa: BLE001 - nothing of the next certificate may keep the present one back
        report(f"{error if isinstance(error, Failure) else repr(error)}; the stored certificate is still valid")
    finally:
        os._exit(code)


def _messages() -> FileIO:
    """What a renewal says goes to the journal, however late it says it.

    Where stderr is a pipe, it has none: who reads that to its end waits for the plugin, and must not wait for longer.
    It is passed on then, as long as the renewal is waited for.
    """
    log = sys.stderr.fileno()
    if stat.S_ISFIFO(os.fstat(log).st_mode):
        return FileIO(os.memfd_create("messages of a renewal"), "w+")
    return FileIO(os.dup(log), "w")


def _pass_on(messages: FileIO) -> None:
    if messages.readable():
        # Without moving the position, which the other process writes at.
        said = os.pread(messages.fileno(), _MAXIMUM_MESSAGES_BYTES, 0)
        with contextlib.suppress(OSError):
            sys.stderr.write(said.decode("utf-8", "replace"))
            sys.stderr.flush()


def _signal(process: int, end: float) -> str:
    """Which signal ended the process, which has just closed its end of the pipe; empty where none did."""
    with contextlib.suppress(ChildProcessError):  # its end is nobody's to know: SIGCHLD is ignored
        while time.monotonic() < end:
            found, status = os.waitpid(process, os.WNOHANG)
            if found:
                code = os.waitstatus_to_exitcode(status)
                return f"the process was ended by signal {-code} ({signal.strsignal(-code)})" if code < 0 else ""
            time.sleep(_POLL_SECONDS)
    return ""
