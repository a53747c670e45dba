"""The parser of every program's command line: an error is one line, and the next line says what to type."""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
import sys
import textwrap
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, NoReturn

EXIT_USAGE: Final = 2
_CHOICE: Final = re.compile(r"(?P<argument>.*)invalid choice: '?(?P<given>.*?)'? \(choose from (?P<choices>.*)\)", re.S)
_AMBIGUOUS: Final = re.compile(r"ambiguous option: (?P<given>.*) could match (?P<known>.*)", re.S)
_NUMBER: Final = re.compile(r"(?P<argument>argument \S+: )invalid (?P<kind>int|float) value: (?P<given>.*)", re.S)
_NUMBERS: Final = {"int": "a whole number", "float": "a number"}
_REQUIRED: Final = "the following arguments are required: "
_IGNORED_VALUE: Final = "ignored explicit argument "
_INDENT: Final = "    "
_LONGEST: Final = 200
"""Characters of a wrong word that are shown."""


class CommandHelp(argparse.HelpFormatter):
    """Help in 80 columns, whose usage names what a call must have. All other flags are listed once, below it.

    Text with line breaks, such as examples, keeps them.
    """

    def add_usage(
        self, usage: str | None, actions: Iterable[argparse.Action], groups: Iterable[Any], prefix: str | None = None
    ) -> None:
        """As argparse has it, with ``[OPTIONS]`` for flags that may be left out and exclude no other."""
        actions = [*actions]
        exclusive = [action for group in groups for action in group._group_actions]
        flags = [action for action in actions if action.option_strings]
        named = [action for action in flags if action.required or action in exclusive]
        rest = [_Options()] if len(named) < len(flags) else []
        words = [action for action in actions if not action.option_strings]
        super().add_usage(usage, [*named, *rest, *words], groups, prefix)

    def _format_usage(self, *arguments: Any) -> str:
        text = super()._format_usage(*arguments)
        if all(len(line) <= self._width for line in text.splitlines()):
            return text
        words = " ".join(text.split())  # argparse indents them by the program's name, which leaves little room
        lines = textwrap.wrap(
            words, self._width, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False
        )
        return "\n".join(lines) + "\n\n"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return "".join(f"{indent}{line}" for line in text.splitlines(keepends=True))
        return super()._fill_text(text, width, indent)


class _Options(argparse.Action):
    """Stands in usage for flags."""

    def __init__(self) -> None:
        super().__init__(option_strings=[], dest="", metavar="[OPTIONS]")

    def __call__(self, *arguments: Any) -> None:
        """Nothing is parsed with it."""


class CommandParser(argparse.ArgumentParser):
    """Prints no list of all flags on an error, as argparse does, but the command that shows it.

    A word that nothing takes is an error of the command that it was given to, and not of the program. The value of an
    unknown flag is not shown: the flag may be misspelt, and its value a secret. ``shows_words=False`` is for programs
    whose standard error goes to a log: they show no other word that nothing takes either. ``of_words`` says more about
    such words.
    """

    def __init__(self, *arguments: Any, shows_words: bool = True, of_words: str = "", **options: Any) -> None:
        super().__init__(*arguments, **{"formatter_class": CommandHelp, **options})
        self._shows_words = shows_words
        self._of_words = f"; {of_words}" if of_words else ""
        self._words: Sequence[str] = ()
        self._has_commands = False

    def add_subparsers(self, **options: Any) -> Any:
        """As argparse has it. The commands show words as their program does."""
        self._has_commands = True
        return super().add_subparsers(**{"parser_class": partial(type(self), shows_words=self._shows_words), **options})

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """As argparse has it, but nothing is left over."""
        self._words = sys.argv[1:] if args is None else args
        if self._has_commands and (unknown := self._unknown_flags()):
            self._refuse_words(unknown)  # before the command reports what it lacks
        found, left = super().parse_known_args(args, namespace)
        if left:
            self._refuse_words(left)
        return found, left

    def error(self, message: str) -> NoReturn:
        """Print the error and what to type, and exit with code 2."""
        if unknown := self._unknown_flags():
            self._refuse_words(unknown)
        if choice := _CHOICE.fullmatch(message):
            choices = [one.strip("'") for one in choice["choices"].split(", ")]
            wrong = f"{choice['argument']}{_shown(choice['given'])!r} is not one of {', '.join(choices)}"
            self._refuse(wrong, _closest([choice["given"]], choices))
        if ambiguous := _AMBIGUOUS.fullmatch(message):
            self._refuse(f"{_shown(_name_of(ambiguous['given']))} is cut too short: it may be {ambiguous['known']}")
        if number := _NUMBER.fullmatch(message):
            self._refuse(f"{number['argument']}{_shown(number['given'])} is not {_NUMBERS[number['kind']]}")
        argument, ignored, _ = message.partition(_IGNORED_VALUE)
        self._refuse(f"{argument}it takes no value" if ignored else message + self._choices_of_required(message))

    def _choices_of_required(self, message: str) -> str:
        return "".join(
            f", which is one of {', '.join(action.choices or ())}"
            for action in self._actions
            if action.required and action.choices and message.endswith(f"required: {action.metavar}")
        )

    def _unknown_flags(self) -> list[str]:
        """Long flags that nothing takes; of a program with commands, those before the command.

        argparse reports what it lacks, which may be lacking because a flag is misspelt.
        """
        unknown = []
        for word in self._words:
            if word == "--" or (self._has_commands and not word.startswith("-")) or self._takes_the_rest(word):
                break
            is_flag = word.startswith("--") and " " not in word  # as argparse distinguishes them
            if is_flag and not any(known.startswith(_name_of(word)) for known in self._option_string_actions):
                unknown.append(word)
        return unknown

    def _takes_the_rest(self, word: str) -> bool:
        action = self._option_string_actions.get(word)
        return action is not None and action.nargs == argparse.REMAINDER

    def _refuse_words(self, words: Sequence[str]) -> NoReturn:
        flags = [word for word in words if word.startswith("-")]
        if flags:
            known = [flag for flag in self._option_string_actions if flag.startswith("--")]
            where = "; flags of a command follow its name" if self._has_commands else ""
            self._refuse(
                f"unknown arguments: {_shown(shlex.join(map(_name_of, flags)))}{where}",
                _closest((flag.partition("=")[0] for flag in flags), known),
            )
        shown = _shown(shlex.join(words)) if self._shows_words else "a word without a flag"
        self._refuse(f"unknown arguments: {shown}{self._of_words}")

    def _refuse(self, message: str, closest: str = "") -> NoReturn:
        meant = f"Did you mean {closest}? " if closest else ""
        self.exit(EXIT_USAGE, f"{self.prog}: error: {message}\n{meant}Type `{self.prog} --help` for what it takes.\n")


def _name_of(word: str) -> str:
    """The flag without its value, which follows a ``=``, or the letter of a short flag."""
    return word.partition("=")[0] if word.startswith("--") else word[:2]


def _closest(given: Iterable[str], known: Sequence[str]) -> str:
    for word in given:
        for found in difflib.get_close_matches(word[:_LONGEST], known, n=1):
            return found
    return ""


def _shown(text: str) -> str:
    printable = "".join(character if character.isprintable() else "?" for character in text)
    return printable if len(printable) <= _LONGEST else f"{printable[:_LONGEST]}..."
