"""Measures how long commands take until they end that ask no API server, beside kubectl and a bare interpreter."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.bench.figures import Better, Column, Figure, Row, Table
from tests.bench.progress import Say
from tests.bench.settings import Settings
from tests.support.binaries import MissingPart

KUBECTL: Final = "kubectl version --client"
INTERPRETER: Final = "python -c pass"
SLOWEST: Final = "slowest command"
COMMANDS: Final = (
    "node-attestation-controller --version",
    "node-attestation-controller --help",
    "node-attestation-controller status --help",
    "node-attestation-controller explain --help",
    "node-attestation-controller rotate --help",
    "node-attestation-controller crds",
    "node-access --help",
    "node-access ssh --help",
    "kubelet-authenticator status --help",
)
"""Commands of people; parsers of the last words are complete."""


def command_starts(settings: Settings, say: Say) -> Table:
    """The table of whole processes, in turn.

    Raises:
        MissingPart: kubectl or a program is not installed beside this interpreter.
    """
    names = (INTERPRETER, KUBECTL, *COMMANDS)
    programs = {name: _command_line(name) for name in names}
    for command in programs.values():
        _seconds(command)  # compiles modules, and reads files from the disk
    timed = [{name: _seconds(command) for name, command in programs.items()} for _ in range(settings.start_runs)]
    rows = [_row(name, [times[name] for times in timed], [times[KUBECTL] for times in timed]) for name in names]
    slowest = max((row for row in rows if row.name in COMMANDS), key=lambda row: row.figures["ms"].value)
    return Table(
        "commands",
        "Commands that ask no API server, beside kubectl",
        (Column("ms", "ms", 0), Column("ratio", "ratio to kubectl", 2, Better.LOWER)),
        (*rows, Row(SLOWEST, slowest.figures)),
        (
            f"Whole processes: medians of {settings.start_runs} runs in turn, with the range in brackets.",
            "A ratio divides by the time of kubectl in the same turn.",
        ),
    )


def _row(name: str, seconds: Sequence[float], kubectl: Sequence[float]) -> Row:
    ratios = [one / other for one, other in zip(seconds, kubectl, strict=True)]
    return Row(name, {"ms": Figure.of([1000 * one for one in seconds]), "ratio": Figure.of(ratios)})


def _command_line(name: str) -> Sequence[str]:
    if name == INTERPRETER:
        return [sys.executable, "-c", "pass"]
    program, *words = name.split()
    found = shutil.which(program, path=str(Path(sys.executable).parent))
    if found is None:
        raise MissingPart(f"{program} is not installed beside {sys.executable}: run make test")
    return [found, *words]


def _seconds(command: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began
