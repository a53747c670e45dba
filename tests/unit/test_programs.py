"""Every installed program answers a wrong command line in the same way."""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Final

import pytest

from deploy.release.man import PARSERS
from tests.support.wrong_usage import ROOT, checked

SCRIPTS: Final[Mapping[str, str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
_PROGRAM: Final = "import sys; from {module} import {function}; sys.exit({function}())"

pytestmark = pytest.mark.slow


def ran(name: str, *words: str, stdout: int | IO[str] = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    module, _, function = SCRIPTS[name].partition(":")
    body = f"import sys; sys.argv[0] = {name!r}; " + _PROGRAM.format(module=module, function=function)
    # Unbuffered, no write would be left for Python's exit.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [sys.executable, "-c", body, *words],
        cwd=ROOT,
        env=environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )


def shown(name: str) -> str:
    """kubectl calls a plugin by its file."""
    plugin = name.removeprefix("kubectl-").replace("_", "-")
    return f"kubectl {plugin}" if name.startswith("kubectl-") else name


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_misspelt_command(name: str) -> None:
    done = ran(name, "runn")
    assert (done.returncode, done.stdout) == (2, "")
    error, hint = checked(done.stderr).splitlines()
    assert error.startswith(f"{shown(name)}: error: argument COMMAND: 'runn' is not one of ")
    assert hint.endswith(f"Type `{shown(name)} --help` for what it takes.")


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The program's parser, and those of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from parsers(command)


@pytest.mark.parametrize("program", PARSERS)
def test_help_of_every_command(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    module, function = PARSERS[program]
    for parser in parsers(getattr(importlib.import_module(module), function)()):
        text = parser.format_help()
        assert [line for line in text.splitlines() if len(line) > 80] == []
        assert "``" not in text, "it is no reStructuredText"
        assert "[-h]" not in text, "usage does not repeat the flags"
        unexplained = [action.dest for action in parser._actions if not action.help and not action.choices]
        assert unexplained == [], parser.prog


LISTS: Final = {
    "node-access": ("config", "--folder", "{folder}/grants", "--kubectl", "/bin/true"),
    "node-access-sessions": ("list", "--folder", "{folder}"),
    "node-access-containers": ("list", "--tasks", "{folder}"),
}


@pytest.mark.parametrize("name", LISTS)
def test_standard_output_that_cannot_be_written(name: str, tmp_path: Path) -> None:
    """Python would print a traceback, or end with 120."""
    words = [word.format(folder=tmp_path) for word in LISTS[name]]
    with open("/dev/full", "w") as full:
        done = ran(name, *words, stdout=full)
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if "live grants" not in line]
    assert [line.partition("standard output")[2] for line in said] == [
        " cannot be written: No space left on device: fix that, or write elsewhere"
    ]
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as broken:
        done = ran(name, *words, stdout=broken)
    assert (done.returncode, "Traceback" in done.stderr, "ignored" in done.stderr) == (1, False, False)
