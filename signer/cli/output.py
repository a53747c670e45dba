"""Printing to standard output, as a table, JSON or YAML.

A failed write raises an error of its own: exit code 1 of ``audit verify`` means a fault in the log, and never a full
disk.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import yaml
from rich.console import Console

from attestors.standard_output import standard_output
from signer.cli.plain_output import print_text

WIDTH_WITHOUT_TERMINAL: Final = 10_000
"""Columns where standard output is not a terminal: no line is wrapped, so that ``grep`` and ``awk`` see whole lines."""
_RULE: Final = re.compile("─{10,}")
"""What the console draws below the headings of a table."""

Document: TypeAlias = Mapping[str, Any] | Sequence[Any]


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise instead of rich's exit with code 1, which means a fault in the log for ``audit verify``."""
        raise BrokenPipeError


def print_result(output: str, document: Callable[[], Document], show: Callable[[Console], None]) -> None:
    """Print a command's result as ``--output`` says it.

    Raises:
        BrokenPipeError, OutputNotWritten: see :func:`~attestors.standard_output.standard_output`.
    """
    match output:
        case "json":
            print_as_json(document())
        case "yaml":
            print_text(as_yaml(document()))
        case _:
            print_report(show, wide=output == "wide")


def print_report(show: Callable[[Console], None], *, wide: bool = False) -> None:
    """Print what ``show`` writes to the console.

    On a terminal, its width is that of the terminal, unless it is ``wide``. Elsewhere no line is wrapped, none ends
    with blanks, and tables have no rule: it would be as long as the longest line.

    Raises:
        BrokenPipeError, OutputNotWritten: see :func:`~attestors.standard_output.standard_output`.
    """
    with standard_output():
        if sys.stdout.isatty():
            show(_Console(highlight=False, width=WIDTH_WITHOUT_TERMINAL if wide else None))
            return
        # With the encoding of standard output, so that the console draws with characters that it has.
        written = io.TextIOWrapper(io.BytesIO(), sys.stdout.encoding or "utf-8", "backslashreplace", newline="\n")
        show(_Console(highlight=False, width=WIDTH_WITHOUT_TERMINAL, file=written))
        written.seek(0)
        for line in written:
            if _RULE.fullmatch(line.strip()) is None:
                print(line.rstrip())


def as_yaml(document: Document) -> str:
    """A document as YAML, its fields in their order."""
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=False, width=WIDTH_WITHOUT_TERMINAL))


def print_as_json(document: Document) -> None:
    """Print a document as JSON.

    Raises:
        BrokenPipeError, OutputNotWritten: see :func:`~attestors.standard_output.standard_output`.
    """
    with standard_output():
        json.dump(document, sys.stdout, indent=2)
        print()
