"""Printing text. A light module: what needs no table, JSON or YAML loads no more."""

from __future__ import annotations

import sys

from attestors.standard_output import discard_output, standard_output


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
