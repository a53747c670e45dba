"""What commands print: for people as wide as their terminal, or as files are read; for programs JSON.

Whatever cannot be written is told apart from what commands themselves find: exit code 1 of ``audit verify`` is its word
on a log, and no disk that is full says it.
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

WIDTH_OF_FILES: Final = 140
"""What is no terminal has no width; by itself rich takes 80, and folds names in the middle, where nobody finds them."""


class OutputNotWritten(Exception):
    """Standard output takes nothing, or not all of it; the message says why."""


def prepare_streams() -> None:
    """Make standard output take any text, whatever its encoding. What was closed, nobody wants to see."""
    if sys.stdout is None:
        sys.stdout = _nowhere()
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stderr is None:
        sys.stderr = _nowhere()  # print would take standard output for it


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


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
        raise OutputNotWritten(error.strerror or type(error).__name__) from error


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


def give_up(stream: TextIO) -> None:
    """What is left of it is not tried again when the process ends: that would fail again, and end it with 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """rich would end the process with exit code 1, which is the word of ``audit verify`` on a log."""
        raise BrokenPipeError


def print_for_people(show: Callable[[Console], None]) -> None:
    """Print what ``show`` puts on the console.

    Raises:
        BrokenPipeError, OutputNotWritten: see :func:`standard_output`.
    """
    with standard_output():
        show(_Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_FILES))


def print_as_json(document: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print it for programs.

    Raises:
        BrokenPipeError, OutputNotWritten: see :func:`standard_output`.
    """
    with standard_output():
        json.dump(document, sys.stdout, indent=2)
        print()


def print_text(text: str) -> None:
    """Print it as it is.

    Raises:
        BrokenPipeError, OutputNotWritten: see :func:`standard_output`.
    """
    with standard_output():
        print(text, end="")


def tell(text: str) -> None:
    """A line beside the output. That nobody can be told, as where one full disk takes both, changes no exit code."""
    try:
        print(text, file=sys.stderr)
    except OSError:
        give_up(sys.stderr)
