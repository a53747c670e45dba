"""How wide output is, and where it goes."""

from __future__ import annotations

import errno
import io
import json
import sys
from collections.abc import Callable

import pytest
from rich.console import Console

from signer.cli.output import (
    WIDTH_OF_FILES,
    OutputNotWritten,
    prepare_streams,
    print_as_json,
    print_for_people,
    print_text,
    standard_output,
    tell,
)

SENTENCE = " ".join(["twenty characters or"] * 12)


class Terminal(io.StringIO):
    """Somebody sits before it."""

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
        print_for_people(show)
        widest.append(max(map(len, output.getvalue().splitlines())))
        assert "\x1b" not in output.getvalue()
    assert widest[0] <= 60 < WIDTH_OF_FILES - 20 <= widest[1] <= WIDTH_OF_FILES


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_text_that_the_encoding_does_not_have(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of what was found is held back for the sake of a letter; nor for half of a pair of surrogates."""
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding))
    prepare_streams()
    print_for_people(lambda console: console.print("\N{CHECK MARK} \ud800"))
    print_text("\N{CHECK MARK} \ud800\n")
    print_as_json({"mark": "\N{CHECK MARK}"})
    mark = "\N{CHECK MARK}" if encoding == "utf-8" else r"\u2713"
    people, text, *others = written.getvalue().decode(encoding).splitlines()
    assert (people, text) == (rf"{mark} \ud800", rf"{mark} \ud800")
    assert json.loads("".join(others)) == {"mark": "\N{CHECK MARK}"}


PRINTERS = [
    pytest.param(lambda: print_for_people(show), id="people"),
    pytest.param(lambda: print_as_json([1]), id="JSON"),
    pytest.param(lambda: print_text("text"), id="text"),
]


class Failing(io.StringIO):
    """It takes text, and cannot write it."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def flush(self) -> None:
        raise self.error


@pytest.mark.parametrize("print_it", PRINTERS)
def test_what_cannot_be_written_is_said(print_it: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Failing(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OutputNotWritten, match=r"^No space left on device$"):
        print_it()


def test_an_error_without_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Failing(OSError()))
    with pytest.raises(OutputNotWritten, match=r"^OSError$"):
        print_text("")


def test_nobody_who_reads_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Failing(BrokenPipeError(errno.EPIPE, "Broken pipe")))
    with pytest.raises(BrokenPipeError):
        print_text("text")


def test_what_is_written_is_written_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where something else ends it, as argparse does."""
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "utf-8"))

    def help_and_exit() -> None:
        with standard_output():
            print("help", end="")
            sys.exit(0)

    with pytest.raises(SystemExit):
        help_and_exit()
    assert written.getvalue() == b"help"


def test_streams_that_were_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told beside the output does not get into it."""
    written = io.StringIO()
    monkeypatch.setattr("sys.stdout", written)
    monkeypatch.setattr("sys.stderr", None)
    prepare_streams()
    tell("beside it")
    sys.stderr.close()
    assert written.getvalue() == ""
    monkeypatch.setattr("sys.stdout", None)
    prepare_streams()
    print_for_people(show)
    print_text("text")
    sys.stdout.close()
