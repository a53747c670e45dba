"""Manual pages are made from the parsers: one for each program and command, the same everywhere, and sound roff."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from signer.cli.commands import COMMANDS
from tests.supply_chain.dependencies import CONSTRAINTS

ROOT: Final = CONSTRAINTS.parent
SCRIPT: Final = ROOT / "deploy/release/man.py"
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WIDE: Final = {"COLUMNS": "10000", "NO_COLOR": "1"}

pytestmark = pytest.mark.slow


def written(folder: Path, **variables: str) -> dict[str, str]:
    command = [sys.executable, str(SCRIPT), "--output", str(folder)]
    subprocess.run(command, env={**os.environ, **variables}, check=True, timeout=120)
    return {path.name: path.read_text(encoding="ascii") for path in folder.iterdir()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("man") / "man1"


@pytest.fixture(scope="module")
def pages(folder: Path) -> dict[str, str]:
    return written(folder)


def test_each_program_and_each_command_has_a_page(pages: dict[str, str]) -> None:
    assert {f"{program}.1" for program in PROJECT["scripts"]} <= set(pages)
    assert {f"node-attestation-controller-{command.name}.1" for command in COMMANDS} <= set(pages)
    for name, text in pages.items():
        related = text.partition(".SH SEE ALSO\n")[2]
        for other in re.findall(r"\\fB(\S+)\\fR\(1\)", related):
            assert f"{other.replace(chr(92), '')}.1" in pages, name


def test_a_page_has_every_option_that_help_has(pages: dict[str, str]) -> None:
    """Of a command whose parser is completed when the command is named, and of one of another program."""
    for program, words in (
        ("node-attestation-controller", ["explain"]),
        ("node-attestation-controller", ["rotate", "CLUSTER", "start"]),
        ("node-access", ["grant", "create"]),
        ("kubelet-authenticator", ["prepare"]),
    ):
        command = [str(Path(sys.executable).with_name(program)), *words, "--help"]
        said = subprocess.run(command, env=os.environ | WIDE, capture_output=True, text=True, check=True).stdout
        options = set(re.findall(r"^  (?:-\w(?: \S+)?, )?(--[\w-]+)", said, re.MULTILINE))
        text = pages["-".join([program, *words]).replace("-CLUSTER", "") + ".1"].replace("\\-", "-")
        assert len(options) > 1
        assert options <= set(re.findall(r"\\fB(--[\w-]+)\\fR", text)), words


def test_no_page_depends_on_the_machine(pages: dict[str, str], tmp_path: Path) -> None:
    variables = {"COLUMNS": "40", "HOME": "/nowhere", "LC_ALL": "C", "TZ": "Pacific/Kiritimati", "PYTHONHASHSEED": "7"}
    assert written(tmp_path / "again", **variables) == pages


def test_the_head_names_the_version_and_no_date(pages: dict[str, str]) -> None:
    version = PROJECT["version"].replace("-", r"\-")
    heads = {name: text.partition("\n")[0] for name, text in pages.items() if not text.startswith(".so ")}
    assert [
        name for name, head in heads.items() if not head.endswith(f' 1 "" "capi\\-node\\-attestation {version}"')
    ] == []


def test_groff_has_no_warning(pages: dict[str, str], folder: Path) -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not installed")
    for name in sorted(pages):
        command = [groff, "-man", "-ww", "-Tutf8", "-z", f"-I{folder.parent}", str(folder / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stderr == "", name


def test_text_is_shown_as_it_stands(tmp_path: Path) -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not installed")
    text = r".TH is 'no' macro here: \fB, `a`, ~/b, --c^d"
    script = f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import man; print(man.prose({text!r}))"
    line = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    shown = subprocess.run(
        [groff, "-man", "-Tascii", "-P-c"], input=f".TH X 1\n.SH N\n{line}", capture_output=True, text=True
    )
    assert text in shown.stdout
