"""What commands print, and what becomes of it where nobody reads it or it cannot be written."""

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

# As shells say it: 128, and SIGPIPE.
_NOBODY_READS: Final = 141


def prepare_streams() -> None:
    """Make standard output take any text, whatever its encoding. What was closed, nobody wants to see."""
    if sys.stdout is None:
        sys.stdout = _nowhere()
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stderr is None:
        sys.stderr = _nowhere()  # print would take standard output for it


@contextlib.contextmanager
def standard_output() -> Iterator[None]:
    """Print in here, and nothing else; it is written when it ends.

    Raises:
        BrokenPipeError: nobody reads it any more.
        OutputNotWritten: it cannot be written.
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
def words_of_argparse() -> Iterator[None]:
    """Parse arguments in here: argparse says nothing where its help cannot be written, and ends as if it had been.

    Raises:
        BrokenPipeError, OutputNotWritten: see :func:`standard_output`.
    """
    words = io.StringIO()
    try:
        with contextlib.redirect_stdout(words):
            yield
    finally:
        if words.getvalue():
            with standard_output():
                print(words.getvalue(), end="")


@contextlib.contextmanager
def output_kept_back() -> Iterator[None]:
    """Standard output is for what is printed behind this alone; in here, where attestors work, it is standard error.

    For their libraries and programs, it stays so: a library in C may keep what it writes until this process ends. A
    process that they fork has none, for a kubelet reads to its end, however long that one lives.
    """
    sys.stdout.flush()
    kept = os.fdopen(fcntl.fcntl(sys.stdout.fileno(), fcntl.F_DUPFD_CLOEXEC, 3), "w", encoding="utf-8")
    os.register_at_fork(after_in_child=kept.close)
    os.dup2(sys.stderr.fileno(), 1)
    sys.stdout = sys.stderr
    try:
        yield
    finally:
        sys.stdout = kept


def end_without_output(error: OSError | OutputNotWritten) -> int:
    """The exit code where standard output took nothing, or not all of it; somebody is told, unless nobody reads."""
    _give_up(sys.stdout)
    if isinstance(error, BrokenPipeError):  # whoever read has read enough, as `head` does
        return _NOBODY_READS
    why = str(error) if isinstance(error, OutputNotWritten) else _cause(error)
    with contextlib.suppress(BrokenPipeError):
        report(f"standard output cannot be written: {why}: mend that, or write elsewhere")
    settle_log()
    return ExitCode.OUTPUT


def settle_log() -> None:
    """What a full disk did not take of the log changes no exit code when the process ends."""
    try:
        sys.stderr.flush()
    except OSError:
        _give_up(sys.stderr)


def _give_up(stream: TextIO) -> None:
    """What is left of it is not tried again when the process ends: that would fail again, and end it with 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def _cause(error: OSError) -> str:
    return error.strerror or type(error).__name__
