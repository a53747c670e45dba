"""Standard output while attestors run, and the exit code when it cannot be written."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from typing import Final

from attestors.standard_output import OutputNotWritten, discard_output
from authenticator.commands.arguments import report
from authenticator.model.failures import ExitCode

# The convention of shells: 128 + SIGPIPE.
_BROKEN_PIPE: Final = 141


@contextlib.contextmanager
def reserved_output() -> Iterator[None]:
    """Reserve standard output for the code after this block; within it, where attestors run, it is standard error.

    File descriptor 1 stays redirected for their libraries and programs: a C library may write its buffer only at exit.
    Processes that they fork do not inherit the output: a kubelet would read it until the last of them ends.
    """
    sys.stdout.flush()
    reserved = os.fdopen(fcntl.fcntl(sys.stdout.fileno(), fcntl.F_DUPFD_CLOEXEC, 3), "w", encoding="utf-8")
    os.register_at_fork(after_in_child=reserved.close)
    os.dup2(sys.stderr.fileno(), 1)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout = reserved


def end_without_output(error: OSError | OutputNotWritten) -> int:
    """The exit code if standard output was not fully written; reports the error, unless the reader closed the pipe."""
    discard_output(sys.stdout)
    if isinstance(error, BrokenPipeError):  # the reader has read enough, for example `| head`
        return _BROKEN_PIPE
    why = str(error) if isinstance(error, OutputNotWritten) else error.strerror or type(error).__name__
    with contextlib.suppress(BrokenPipeError):
        report(f"standard output cannot be written: {why}: fix that, or write elsewhere")
    flush_log()
    return ExitCode.OUTPUT


def flush_log() -> None:
    """Flush the log, so that a full disk does not change the exit code at the end of the process."""
    try:
        sys.stderr.flush()
    except OSError:
        discard_output(sys.stderr)
