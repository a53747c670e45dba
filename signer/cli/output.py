"""Printing to standard output, as text or JSON.

A failed write raises an error of its own: exit code 1 of ``audit verify`` means a fault in the log, and never a full
disk.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rich.console import Console

from attestors.standard_output import discard_output, standard_output

WIDTH_WITHOUT_TERMINAL: Final = 140
"""Columns where standard output is not a terminal. rich would take 80 and fold long names, which breaks ``grep``."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise instead of rich's exit with code 1, which means a fault in the log for ``audit verify``."""
        raise BrokenPipeError


def print_report(show: Callable[[Console], None]) -> None:
    """Print what ``show`` writes to the console.

    Raises:
        BrokenPipeError, OutputNotWritten: see :func:`~attestors.standard_output.standard_output`.
    """
    with standard_output():
        show(_Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL))


def print_as_json(document: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print a document as JSON.

    Raises:
        BrokenPipeError, OutputNotWritten: see :func:`~attestors.standard_output.standard_output`.
    """
    with standard_output():
        json.dump(document, sys.stdout, indent=2)
        print()


def print_text(text: str) -> None:
    """Print text unchanged.

    Raises:
        BrokenPipeError, OutputNotWritten: see :func:`~attestors.standard_output.standard_output`.
    """
    with standard_output():
        print(text, end="")


def print_to_stderr(text: str) -> None:
    """Print a line to standard error. A failure, as on a full disk, does not change the exit code."""
    try:
        print(text, file=sys.stderr)
    except OSError:
        discard_output(sys.stderr)
