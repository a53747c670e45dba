"""Shells complete commands and flags; the plugin of kubectl has the name that a person types."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from signer.cli import main

pytestmark = pytest.mark.slow

PROGRAM: Final = "node-attestation-controller"
ASK: Final = """
source <({program} completion bash)
COMP_LINE="{program} {line}" COMP_POINT=$(( ${{#COMP_LINE}} )) COMP_TYPE=9
COMP_WORDS=($COMP_LINE) COMP_CWORD={number}
_python_argcomplete {program}
echo "${{COMPREPLY[@]}}"
"""


def run(command: list[str]) -> str:
    folder = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60, env=environment
    ).stdout.strip()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sta", "status"),
        ("status --outp", "--output"),
        ("status -o ", "table wide json yaml html"),
        ("rotate c sta", "start status"),
    ],
)
def test_bash_gets_the_words_that_fit(line: str, expected: str) -> None:
    assert run(["bash", "-c", ASK.format(program=PROGRAM, line=line, number=len(line.split()))]) == expected


@pytest.mark.parametrize(
    ("shell", "check"), [("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]), ("fish", ["fish", "-n"])]
)
def test_each_shell_reads_its_function(
    shell: str, check: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert PROGRAM in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: its function was printed, and not read")
    (tmp_path / "function").write_text(script)
    run([*check, str(tmp_path / "function")])


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["completion", "cmd"])
    assert "is not one of bash, zsh, fish" in capsys.readouterr().err


def test_the_plugin_of_kubectl_has_its_name() -> None:
    assert run(["kubectl-node_attestation", "status", "--help"]).startswith("usage: kubectl node-attestation status ")
    assert run([PROGRAM, "status", "--help"]).startswith(f"usage: {PROGRAM} status ")
