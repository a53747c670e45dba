from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

import pytest

from attestors.command_parser import CommandParser

HINT: Final = "Type `program --help` for what it takes.\n"
COMMAND_HINT: Final = "Type `program status --help` for what it takes.\n"


def parser() -> argparse.ArgumentParser:
    top = CommandParser(prog="program")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    status = commands.add_parser("status")
    status.add_argument("--namespace")
    status.add_argument("-o", "--output", choices=("table", "json"))
    status.add_argument("--seconds", type=int)
    commands.add_parser("explain").add_argument("name", metavar="NAME")
    return top


def error_of(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(arguments)
    assert ended.value.code == 2
    output = capsys.readouterr()
    assert output.out == ""
    return output.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], f"program: error: the following arguments are required: COMMAND, which is one of status, explain\n{HINT}"),
        (
            ["stats"],
            f"program: error: argument COMMAND: 'stats' is not one of status, explain\nDid you mean status? {HINT}",
        ),
        (["nothing"], f"program: error: argument COMMAND: 'nothing' is not one of status, explain\n{HINT}"),
        (
            ["status", "--namspace=x"],
            f"program status: error: unknown arguments: --namspace=x\nDid you mean --namespace? {COMMAND_HINT}",
        ),
        (["status", "extra word"], f"program status: error: unknown arguments: 'extra word'\n{COMMAND_HINT}"),
        (
            ["status", "-o", "jsn"],
            "program status: error: argument -o/--output: 'jsn' is not one of table, json\n"
            f"Did you mean json? {COMMAND_HINT}",
        ),
        (
            ["status", "--seconds", "x"],
            f"program status: error: argument --seconds: invalid int value: 'x'\n{COMMAND_HINT}",
        ),
        (
            ["explain"],
            "program explain: error: the following arguments are required: NAME\n"
            "Type `program explain --help` for what it takes.\n",
        ),
    ],
    ids=["nothing", "close", "far", "flag", "word", "value", "type", "missing"],
)
def test_an_error_says_what_to_type(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert error_of(arguments, capsys) == expected


@pytest.mark.parametrize("word", ["\x1b[2J", "x" * 5000, "'", "invalid choice: '' (choose from a)"])
def test_a_hostile_word_is_shown_without_harm(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([word], ["status", word], ["status", "--output", word]):
        said = error_of(arguments, capsys)
        assert "\x1b" not in said
        assert len(said) < 700
        assert said.endswith("--help` for what it takes.\n")


def test_right_calls_are_parsed() -> None:
    assert parser().parse_args(["status", "-o", "json", "--seconds", "3"]).seconds == 3
