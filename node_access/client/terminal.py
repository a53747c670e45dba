"""What a person sees and answers. Text of the cluster is shown without what a terminal would obey."""

from __future__ import annotations

import sys

from node_access.client.errors import ClientFailed
from node_access.client.words import printable


def say(text: str) -> None:
    """One line to standard error."""
    print(printable(text, 16384), file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Lines to standard output; each is printable already."""
    sys.stdout.write(text)
    sys.stdout.flush()


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
