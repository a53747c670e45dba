"""The parser of command lines: an error is one line, and the next line says what to type."""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

from signer.model.program_version import program_version

EXIT_USAGE: Final = 2
_CHOICE: Final = re.compile(r"(?P<argument>.*)invalid choice: '?(?P<given>.*?)'? \(choose from (?P<choices>.*)\)", re.S)
_LONGEST: Final = 200
"""Characters of a wrong word that are shown."""


class CommandParser(argparse.ArgumentParser):
    """Prints no list of all flags on an error, as argparse does, but the command that shows it.

    A word that nothing takes is an error of the command that it was given to, and not of the program.
    """

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """As argparse has it, but nothing is left over."""
        found, left = super().parse_known_args(args, namespace)
        if left:
            flags = [word.partition("=")[0] for word in left if word.startswith("--")]
            known = [flag for flag in self._option_string_actions if flag.startswith("--")]
            self._refuse(f"unknown arguments: {_shown(shlex.join(left))}", _closest(flags, known))
        return found, left

    def error(self, message: str) -> NoReturn:
        """Print the error and what to type, and exit with code 2."""
        choice = _CHOICE.fullmatch(message)
        if choice is None:
            message += "".join(
                f", which is one of {', '.join(action.choices or ())}"
                for action in self._actions
                if action.required and action.choices and message.endswith(f"required: {action.metavar}")
            )
            self._refuse(message, "")
        choices = [one.strip("'") for one in choice["choices"].split(", ")]
        wrong = f"{choice['argument']}{_shown(choice['given'])!r} is not one of {', '.join(choices)}"
        self._refuse(wrong, _closest([choice["given"]], choices))

    def _refuse(self, message: str, closest: str) -> NoReturn:
        meant = f"Did you mean {closest}? " if closest else ""
        self.exit(EXIT_USAGE, f"{self.prog}: error: {message}\n{meant}Type `{self.prog} --help` for what it takes.\n")


class ShowVersion(argparse.Action):
    """As argparse's action ``version``, but looks up the version only when it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str, **_: Any) -> None:
        help_text = "show program's version number and exit"
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=help_text)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Print the version to standard output, and exit with code 0."""
        print(f"{parser.prog} {program_version()}")
        parser.exit()


def _closest(given: Iterable[str], known: Sequence[str]) -> str:
    for word in given:
        for found in difflib.get_close_matches(word[:_LONGEST], known, n=1):
            return found
    return ""


def _shown(text: str) -> str:
    printable = "".join(character if character.isprintable() else "?" for character in text)
    return printable if len(printable) <= _LONGEST else f"{printable[:_LONGEST]}..."
