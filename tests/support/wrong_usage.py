"""Wrong calls of a program: each is answered on standard error with what is wrong, and what to type."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
NOBODY: Final = 65534
_LONGEST: Final = 700
"""Characters of an answer: a person reads it."""


def answer(
    main: Callable[[list[str]], int], words: Sequence[str], capfd: pytest.CaptureFixture[str], code: int = 2
) -> str:
    """What a program says of a wrong call: one line, and perhaps one with the command that shows its help."""
    try:
        ended: object = main([*words])
    except SystemExit as error:
        ended = error.code
    said = capfd.readouterr()
    assert (ended, said.out) == (code, ""), said.err
    return checked(said.err)


def checked(said: str) -> str:
    """The answer.

    Raises:
        AssertionError: it is a traceback, an argument list, or longer than two lines.
    """
    _, *more = said.rstrip("\n").split("\n")
    assert not more or (len(more) == 1 and more[0].endswith("--help` for what it takes.")), said
    assert "usage:" not in said
    assert len(said) < _LONGEST
    return said


def as_nobody(
    preparation: str, *words: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program, which ``preparation`` imports as ``main``, as a user who may do nothing.

    It stays this user if it is not root. The change comes after the imports, also those that argparse makes late: root
    alone may read root's Python.
    """
    change = f"os.setgroups([]); os.setegid({NOBODY}); os.seteuid({NOBODY})" if os.geteuid() == 0 else ""
    program = f"import locale, os, shutil, sys\n{preparation}\n{change}\nsys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def files(folder: Path) -> dict[str, str]:
    """Files that no program can use, by a name for the tables of tests."""
    made = {"broken": "a: [\n", "empty": "", "binary": "\0\x01\x02", "list": "[]"}
    for name, content in made.items():
        (folder / name).write_text(content)
        (folder / name).chmod(0o600)
    return {"missing": str(folder / "missing"), "folder": str(folder), **{name: str(folder / name) for name in made}}
