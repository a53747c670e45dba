"""What a person sees and answers. Text of the cluster is shown without what a terminal would obey."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import Final, TextIO

from attestors.standard_output import standard_output
from node_access.client.errors import ClientFailed
from node_access.client.tables import WIDTH, WIDTH_WITHOUT_TERMINAL
from node_access.client.words import printable

_MAXIMUM: Final = 16384
_NARROWEST: Final = 20


def say(text: str) -> None:
    """A message to standard error: one line for a program that reads it, and several for a person."""
    shown = printable(text, _MAXIMUM)
    lines = wrapped(shown, width_of(sys.stderr)) if sys.stderr.isatty() else [shown]
    print("\n".join(lines), file=sys.stderr, flush=True)


def wrapped(text: str, width: int) -> list[str]:
    """Lines of whole words. A longer word stays whole, so that it can be copied."""
    return textwrap.wrap(
        text, max(width, _NARROWEST), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    ) or [""]


def width_of(stream: TextIO) -> int:
    """Columns of the terminal that shows the stream, for the tables of :mod:`node_access.client.tables`."""
    if not stream.isatty():
        return WIDTH_WITHOUT_TERMINAL
    try:
        return os.get_terminal_size(stream.fileno()).columns or WIDTH
    except (OSError, ValueError):
        return WIDTH


def show(text: str) -> None:
    """Lines to standard output; each is printable already.

    Raises:
        BrokenPipeError, OutputNotWritten: see :func:`~attestors.standard_output.standard_output`.
    """
    with standard_output():
        sys.stdout.write(text)


def tell(text: str) -> None:
    """Lines to standard error: a person sees them if standard output goes elsewhere. Each is printable already."""
    sys.stderr.write(text)
    sys.stderr.flush()


def is_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str) -> str:
    """The person's answer.

    Raises:
        ClientFailed: nobody is there.
    """
    if not is_terminal():
        raise ClientFailed(
            "this machine's address is needed, and nobody is at the terminal: give --cidr, --public-ip-command or "
            "--public-ip-url, or --bastion None where nodes are reached directly"
        )
    sys.stderr.write(printable(question))
    sys.stderr.flush()
    return sys.stdin.readline(4096).strip()


def confirm(question: str) -> bool:
    """Whether the person says yes; no if nobody is there."""
    return is_terminal() and ask(f"{question} [y/N] ").lower() in ("y", "yes")
