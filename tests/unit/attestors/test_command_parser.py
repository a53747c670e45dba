from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

import pytest

from attestors.command_parser import CommandParser

HINT: Final = "Type `program --help` for what it takes.\n"
COMMAND_HINT: Final = "Type `program status --help` for what it takes.\n"


def parser(*, shows_words: bool = True) -> argparse.ArgumentParser:
    top = CommandParser(prog="program", shows_words=shows_words)
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    status = commands.add_parser("status")
    status.add_argument("--namespace")
    status.add_argument("-o", "--output", choices=("table", "json"))
    status.add_argument("--seconds", type=int)
    status.add_argument("--hours", type=float)
    status.add_argument("--setting")
    status.add_argument("--serve", action="store_true")
    explain = commands.add_parser("explain")
    explain.add_argument("name", metavar="NAME")
    explain.add_argument("--file")
    explain.add_argument("--run", nargs=argparse.REMAINDER)
    return top


def error_of(arguments: Sequence[str], capsys: pytest.CaptureFixture[str], *, shows_words: bool = True) -> str:
    with pytest.raises(SystemExit) as ended:
        parser(shows_words=shows_words).parse_args(arguments)
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
            f"program status: error: unknown arguments: --namspace\nDid you mean --namespace? {COMMAND_HINT}",
        ),
        (
            ["status", "-namespace", "x"],
            f"program status: error: unknown arguments: -n\nDid you mean --namespace? {COMMAND_HINT}",
        ),
        (["status", "extra word"], f"program status: error: unknown arguments: 'extra word'\n{COMMAND_HINT}"),
        (
            ["status", "-o", "jsn"],
            "program status: error: argument -o/--output: 'jsn' is not one of table, json\n"
            f"Did you mean json? {COMMAND_HINT}",
        ),
        (
            ["status", "--seconds", "x"],
            f"program status: error: argument --seconds: 'x' is not a whole number\n{COMMAND_HINT}",
        ),
        (
            ["status", "--hours", "x"],
            f"program status: error: argument --hours: 'x' is not a number\n{COMMAND_HINT}",
        ),
        (
            ["status", "--namespace"],
            f"program status: error: argument --namespace: expected one argument\n{COMMAND_HINT}",
        ),
        (
            ["explain"],
            "program explain: error: the following arguments are required: NAME\n"
            "Type `program explain --help` for what it takes.\n",
        ),
        (
            ["explain", "--fiel=x"],
            "program explain: error: unknown arguments: --fiel\n"
            "Did you mean --file? Type `program explain --help` for what it takes.\n",
        ),
        (
            ["--namespace", "x", "status"],
            f"program: error: unknown arguments: --namespace; flags of a command follow its name\n{HINT}",
        ),
        (
            ["explain", "--run", "ssh", "--verbos"],
            "program explain: error: the following arguments are required: NAME\n"
            "Type `program explain --help` for what it takes.\n",
        ),
        (
            ["explain", "--", "--fiel", "x"],
            "program explain: error: unknown arguments: x\nType `program explain --help` for what it takes.\n",
        ),
        (
            ["status", "--seconds", "x", "--", "--nothing"],
            f"program status: error: argument --seconds: 'x' is not a whole number\n{COMMAND_HINT}",
        ),
    ],
    ids=[
        *("nothing", "close", "far", "flag", "flag with one dash", "word", "value", "whole number", "number"),
        *("no value", "missing", "missing for a misspelt flag", "flag before the command", "missing before a command"),
        *("after two dashes", "flag after two dashes"),
    ],
)
def test_an_error_says_what_to_type(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert error_of(arguments, capsys) == expected


@pytest.mark.parametrize("word", ["\x1b[2J", "x" * 5000, "'", "invalid choice: '' (choose from a)", "--\x1b[2J"])
def test_a_hostile_word_is_shown_without_harm(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([word], ["status", word], ["status", "--output", word], ["status", "--seconds", word]):
        said = error_of(arguments, capsys)
        assert "\x1b" not in said
        assert len(said) < 700
        assert said.endswith("--help` for what it takes.\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--settng=SECRET"], "unknown arguments: --settng\nDid you mean --setting? "),
        (["--settng", "SECRET"], "unknown arguments: --settng\nDid you mean --setting? "),
        (["-pSECRET"], "unknown arguments: -p\n"),
        (["--se=SECRET"], "--se is cut too short: it may be --seconds, --setting, --serve\n"),
        (["--se=x could match SECRET"], "--se is cut too short: it may be --seconds, --setting, --serve\n"),
        (["--serve=SECRET"], "argument --serve: it takes no value\n"),
    ],
    ids=["in a word", "a word", "after a letter", "cut short", "cut short, in argparse's words", "of a switch"],
)
def test_the_value_of_a_wrong_flag_is_not_shown(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be a secret."""
    said = error_of(["status", *arguments], capsys)
    assert message in said
    assert "SECRET" not in said


def test_a_log_shows_no_word_that_nothing_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert error_of(["status", "SECRET"], capsys, shows_words=False) == (
        f"program status: error: unknown arguments: a word without a flag\n{COMMAND_HINT}"
    )


def test_right_calls_are_parsed() -> None:
    assert parser().parse_args(["status", "-o", "json", "--seconds", "3"]).seconds == 3
