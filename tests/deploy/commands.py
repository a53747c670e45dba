"""Whether a command line is one that ``kubelet-authenticator`` has."""

from __future__ import annotations

from collections.abc import Sequence

from authenticator.commands import parser


def parse_command_line(words: Sequence[str]) -> None:
    """Parse the words behind the program's name.

    Raises:
        SystemExit: there is no such command or flag.
    """
    parser().parse_args(list(words))
