"""Printing to standard output, as text or JSON.

A failed write raises an error of its own, so that its exit code differs from those of the commands: exit code 1 of
``audit verify`` means a fault in the log, and never a full disk.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TextIO

from rich.console import Console

WIDTH_WITHOUT_TERMINAL: Final = 140
"""Columns where standard output is not a terminal. rich would take 80 and fold long names, which breaks ``grep``."""


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


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise instead of rich's exit with code 1, which means a fault in the log for ``audit verify``."""
        raise BrokenPipeError


def print_report(show: Callable[[Console], None]) -> None:
    """Print what ``show`` writes to the console.

    Raises:
        BrokenPipeError, OutputNotWritten: see :func:`standard_output`.
    """
    with standard_output():
        show(_Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL))


def print_as_json(document: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print a document as JSON.

    Raises:
        BrokenPipeError, OutputNotWritten: see :func:`standard_output`.
    """
    with standard_output():
        json.dump(document, sys.stdout, indent=2)
        print()


def print_text(text: str) -> None:
    """Print text unchanged.

    Raises:
        BrokenPipeError, OutputNotWritten: see :func:`standard_output`.
    """
    with standard_output():
        print(text, end="")


def print_to_stderr(text: str) -> None:
    """Print a line to standard error. A failure, as on a full disk, does not change the exit code."""
    try:
        print(text, file=sys.stderr)
    except OSError:
        discard_output(sys.stderr)
