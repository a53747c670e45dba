"""Arguments of ``completion``."""

from __future__ import annotations

import argparse
from typing import Final

from signer.cli.completion import PROGRAM
from signer.cli.loading import Load

_SHELLS: Final = ("bash", "zsh", "fish")


def add_completion(parser: argparse.ArgumentParser, load: Load) -> None:
    """Complete the parser of the command."""
    parser.description = (
        "Prints a function for the shell, which asks this program for the words that fit. For this shell: "
        f"`source <({PROGRAM} completion bash)`; for all later ones, write it to a file that your shell reads at its "
        f"start. fish: `{PROGRAM} completion fish | source`."
    )
    parser.add_argument("shell", metavar="SHELL", choices=_SHELLS, help=f"one of {', '.join(_SHELLS)}")
    parser.set_defaults(load=load)
