"""How wide output is, and where it goes."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from signer.cli.output import WIDTH_OF_FILES, print_for_people

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
