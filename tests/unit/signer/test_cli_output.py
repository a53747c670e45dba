"""The width of output, and failures to write it."""

from __future__ import annotations

import argparse
import errno
import io
import json
import sys
from collections.abc import Callable

import pytest
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from attestors.standard_output import OutputNotWritten, prepare_streams, standard_output
from signer.cli.output import print_as_json, print_report, print_result
from signer.cli.parsers.arguments import FORMATS, add_output
from signer.cli.plain_output import print_text, print_to_stderr
from tests.support.yaml_documents import safe_load

SENTENCE = " ".join(["twenty characters or"] * 12)


class Terminal(io.StringIO):
    """Standard output on a terminal."""

    def isatty(self) -> bool:
        return True


def show(console: Console) -> None:
    console.print(SENTENCE)


def test_a_file_is_wider_than_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    widest = []
    for output in (Terminal(), io.StringIO()):
        monkeypatch.setattr("sys.stdout", output)
        print_report(show)
        widest.append(max(map(len, output.getvalue().splitlines())))
        assert "\x1b" not in output.getvalue()
    assert widest[0] <= 60 < widest[1] == len(SENTENCE)


def test_piped_lines_end_without_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.StringIO())
    print_report(lambda console: console.print(Padding("text", (0, 0, 0, 2))))
    assert sys.stdout.getvalue() == "  text\n"  # type: ignore[union-attr]


def test_tables_in_pipes_have_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be as long as the longest line. Cells of dashes are no rule."""
    table = Table("Name", "Message", box=SIMPLE_HEAD)
    table.add_row("-", "a sentence of some words")
    table.add_row("-------------", "--")
    monkeypatch.setattr("sys.stdout", io.StringIO())
    print_report(lambda console: console.print(table))
    lines = sys.stdout.getvalue().splitlines()  # type: ignore[union-attr]
    assert [line.split() for line in lines if line] == [
        ["Name", "Message"],
        ["-", "a", "sentence", "of", "some", "words"],
        ["-------------", "--"],
    ]
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    print_report(lambda console: console.print(table))
    assert "\N{BOX DRAWINGS LIGHT HORIZONTAL}" * 10 in terminal.getvalue()


def test_each_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """The document is made only if it is printed; its fields keep their order."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    document: dict[str, object] = {"second": [1, "\u00e9"], "first": SENTENCE}
    printed = {}
    for output in FORMATS:
        monkeypatch.setattr("sys.stdout", Terminal())
        print_result(output, lambda: document, show)
        printed[output] = sys.stdout.getvalue()  # type: ignore[union-attr]
    assert json.loads(printed["json"]) == safe_load(printed["yaml"]) == document
    assert printed["yaml"].startswith("second:\n- 1\n")
    assert printed["wide"] == f"{SENTENCE}\n"
    assert max(map(len, printed["table"].splitlines())) <= 60


def test_another_format_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_output(parser)
    assert parser.parse_args([]).output == "table"
    with pytest.raises(SystemExit):
        parser.parse_args(["-o", "xml"])
    assert "invalid choice: 'xml'" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_characters_missing_in_the_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unencodable characters and lone surrogates are escaped, and the rest is printed."""
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding))
    prepare_streams()
    print_report(lambda console: console.print("\N{CHECK MARK} \ud800"))
    print_text("\N{CHECK MARK} \ud800\n")
    print_as_json({"mark": "\N{CHECK MARK}"})
    mark = "\N{CHECK MARK}" if encoding == "utf-8" else r"\u2713"
    report, text, *others = written.getvalue().decode(encoding).splitlines()
    assert (report, text) == (rf"{mark} \ud800", rf"{mark} \ud800")
    assert json.loads("".join(others)) == {"mark": "\N{CHECK MARK}"}


PRINTERS = [
    pytest.param(lambda: print_report(show), id="report"),
    pytest.param(lambda: print_as_json([1]), id="JSON"),
    pytest.param(lambda: print_text("text"), id="text"),
]


class Failing(io.StringIO):
    """Buffers text, and fails to write it."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def flush(self) -> None:
        raise self.error


@pytest.mark.parametrize("print_it", PRINTERS)
def test_failed_output_has_an_error_of_its_own(print_it: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Failing(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OutputNotWritten, match=r"^No space left on device$"):
        print_it()


def test_an_error_without_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Failing(OSError()))
    with pytest.raises(OutputNotWritten, match=r"^OSError$"):
        print_text("")


def test_a_broken_pipe_has_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Failing(BrokenPipeError(errno.EPIPE, "Broken pipe")))
    with pytest.raises(BrokenPipeError):
        print_text("text")


def test_output_is_flushed_at_the_end_of_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the block exits, as argparse does."""
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "utf-8"))

    def help_and_exit() -> None:
        with standard_output():
            print("help", end="")
            sys.exit(0)

    with pytest.raises(SystemExit):
        help_and_exit()
    assert written.getvalue() == b"help"


def test_closed_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages for standard error do not get into standard output."""
    written = io.StringIO()
    monkeypatch.setattr("sys.stdout", written)
    monkeypatch.setattr("sys.stderr", None)
    prepare_streams()
    print_to_stderr("message")
    sys.stderr.close()
    assert written.getvalue() == ""
    monkeypatch.setattr("sys.stdout", None)
    prepare_streams()
    print_report(show)
    print_text("text")
    sys.stdout.close()
