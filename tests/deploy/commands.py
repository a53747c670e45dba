"""Check command lines of ``kubelet-authenticator``."""

from __future__ import annotations

from collections.abc import Sequence

from authenticator.commands import parser


def parse_command_line(words: Sequence[str]) -> None:
    """Parse the words after the program's name.

    Raises:
        SystemExit: the command or a flag does not exist.
    """
    parser().parse_args(list(words))
