"""Standard output of programs, and its failures: a closed pipe, or a full disk.

A failed write raises an error of its own, so that its exit code differs from those of the commands.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO


class OutputNotWritten(Exception):
    """Standard output cannot be written, or not completely; the message says why."""


def prepare_streams() -> None:
    """Make standard output accept any text, whatever its encoding; replace closed streams by the null device."""
    if sys.stdout is None:
        sys.stdout = _nowhere()
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stderr is None:
        sys.stderr = _nowhere()  # print would write to standard output instead


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


@contextlib.contextmanager
def standard_output() -> Iterator[None]:
    """Flush standard output at the end of the block. Do nothing but print inside.

    Raises:
        BrokenPipeError: the reader has closed the pipe.
        OutputNotWritten: standard output cannot be written.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputNotWritten(error.strerror or type(error).__name__) from error


@contextlib.contextmanager
def checked_argparse_output() -> Iterator[None]:
    """Parse arguments in this block. By itself, argparse ignores that its help cannot be written, and exits with 0.

    Raises:
        BrokenPipeError, OutputNotWritten: see :func:`standard_output`.
    """
    captured = io.StringIO()
    try:
        with contextlib.redirect_stdout(captured):
            yield
    finally:
        if captured.getvalue():
            with standard_output():
                print(captured.getvalue(), end="")


def discard_output(stream: TextIO) -> None:
    """Discard buffered output: another failed write at exit would end the process with exit code 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
