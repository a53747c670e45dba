"""Standard output of commands, and its failures: a closed pipe, or a full disk."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import sys
from collections.abc import Iterator
from typing import Final, TextIO

from authenticator.commands.arguments import report
from authenticator.model.failures import ExitCode, OutputNotWritten

# The convention of shells: 128 + SIGPIPE.
_BROKEN_PIPE: Final = 141


def prepare_streams() -> None:
    """Make standard output accept any text, whatever its encoding. Replace closed streams by /dev/null."""
    if sys.stdout is None:
        sys.stdout = _devnull()
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stderr is None:
        sys.stderr = _devnull()  # otherwise print would use standard output


@contextlib.contextmanager
def standard_output() -> Iterator[None]:
    """Print only within this block; the output is flushed at its end.

    Raises:
        BrokenPipeError: the reader closed the pipe.
        OutputNotWritten: the output cannot be written.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputNotWritten(_cause(error)) from error


@contextlib.contextmanager
def argparse_output() -> Iterator[None]:
    """Parse arguments within this block: argparse ignores errors in writing its help, and exits as if it succeeded.

    Raises:
        BrokenPipeError, OutputNotWritten: see :func:`standard_output`.
    """
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            yield
    finally:
        if output.getvalue():
            with standard_output():
                print(output.getvalue(), end="")


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
    _discard(sys.stdout)
    if isinstance(error, BrokenPipeError):  # the reader has read enough, for example `| head`
        return _BROKEN_PIPE
    why = str(error) if isinstance(error, OutputNotWritten) else _cause(error)
    with contextlib.suppress(BrokenPipeError):
        report(f"standard output cannot be written: {why}: fix that, or write elsewhere")
    flush_log()
    return ExitCode.OUTPUT


def flush_log() -> None:
    """Flush the log, so that a full disk does not change the exit code at the end of the process."""
    try:
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


def _discard(stream: TextIO) -> None:
    """Discard buffered output: flushing it at the end of the process would fail again, with exit code 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _devnull() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def _cause(error: OSError) -> str:
    return error.strerror or type(error).__name__
