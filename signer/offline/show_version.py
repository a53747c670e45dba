"""The flag ``--version``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from signer.model.program_version import program_version


class ShowVersion(argparse.Action):
    """As argparse's action ``version``, but looks up the version only when it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str, **_: Any) -> None:
        help_text = "show program's version number and exit"
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help_text)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Print the version to standard output, and exit with code 0."""
        print(f"{parser.prog} {program_version()}")
        parser.exit()
