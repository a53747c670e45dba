"""Measures how long commands take until they end, beside kubectl and a bare interpreter.

All but two ask no API server. These two ask an embedded one, which answers at once and holds no Cluster.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from signer.testing.opening import embedded_api, open_management_cluster
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
    "node-attestation-controller check --help",
    "node-attestation-controller preflight --help",
    "node-attestation-controller run --help",
    "node-attestation-controller crds",
    "node-attestation-controller version --client",
    "node-access --help",
    "node-access ssh --help",
    "kubelet-authenticator status --help",
)
"""Commands of people; parsers of the last words are complete."""
ASKING: Final = ("node-attestation-controller status", "kubectl get nodeattestationpolicies --all-namespaces")
"""These ask an API server. They count for no limit, as the server works meanwhile."""


def command_starts(settings: Settings, say: Say) -> Table:
    """The table of whole processes, in turn.

    Raises:
        MissingPart: kubectl or a program is not installed beside this interpreter.
    """
    names = (INTERPRETER, KUBECTL, *COMMANDS, *ASKING)
    with open_management_cluster() as management, tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        kubeconfig.write_text(embedded_api(management).kubeconfig(), encoding="utf-8")
        programs = {name: _command_line(name) for name in names}
        programs |= {name: [*programs[name], "--kubeconfig", str(kubeconfig)] for name in ASKING}
        for command in programs.values():
            _spent(command)  # compiles modules, and reads files from the disk
        timed = [{name: _spent(command) for name, command in programs.items()} for _ in range(settings.start_runs)]
    rows = [_row(name, [times[name] for times in timed], [times[KUBECTL] for times in timed]) for name in names]
    slowest = max((row for row in rows if row.name in COMMANDS), key=lambda row: row.figures["ms"].value)
    return Table(
        "commands",
        "Starts of commands, beside kubectl",
        (Column("ms", "ms", 0), Column("cpu", "CPU, ms", 0), Column("ratio", "ratio to kubectl", 2, Better.LOWER)),
        (*rows, Row(SLOWEST, slowest.figures)),
        (
            f"Whole processes: medians of {settings.start_runs} runs in turn, with the range in brackets.",
            "The last two commands ask an API server that holds no Cluster; the slowest is of those that ask none.",
            "A ratio divides by kubectl's time in the same turn. CPU time depends less on other work of the machine.",
        ),
    )


@dataclass(frozen=True, slots=True)
class _Spent:
    """By one process, in seconds."""

    wall: float
    processor: float


def _row(name: str, spent: Sequence[_Spent], kubectl: Sequence[_Spent]) -> Row:
    figures = {
        "ms": [1000 * one.wall for one in spent],
        "cpu": [1000 * one.processor for one in spent],
        "ratio": [one.wall / other.wall for one, other in zip(spent, kubectl, strict=True)],
    }
    return Row(name, {key: Figure.of(values) for key, values in figures.items()})


def _command_line(name: str) -> Sequence[str]:
    if name == INTERPRETER:
        return [sys.executable, "-c", "pass"]
    program, *words = name.split()
    found = shutil.which(program, path=str(Path(sys.executable).parent))
    if found is None:
        raise MissingPart(f"{program} is not installed beside {sys.executable}: run make test")
    return [found, *words]


def _spent(command: Sequence[str]) -> _Spent:
    """Raises ``CalledProcessError`` if the command fails."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return _Spent(wall, usage.ru_utime + usage.ru_stime)
