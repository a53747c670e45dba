"""Describes the machine of a measurement, without which figures cannot be compared."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.documents.markdown import ROOT
from tests.support.binaries import MissingPart, find_control_plane

_UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine's state before the first measurement."""

    cores: int
    processor: str
    memory_mebibytes: int
    load_average: float
    """Over the last minute; near 0 on an idle machine."""
    versions: Mapping[str, str]
    """Versions of the interpreter, the kernel and the control plane's programs."""
    commit: str
    """This project's commit, with ``-dirty`` if files were changed since."""

    @property
    def was_busy(self) -> bool:
        """Whether other work ran on the machine, which makes figures worse and less stable."""
        return self.load_average > self.cores / 2

    def __str__(self) -> str:
        return (
            f"{self.cores} cores ({self.processor}), {self.memory_mebibytes / 1024:.0f} GiB, load average before "
            f"{self.load_average:.1f}"
        )


def this_machine() -> Machine:
    """Describe this machine."""
    return Machine(
        os.cpu_count() or 1,
        _field(Path("/proc/cpuinfo"), "model name"),
        int(_field(Path("/proc/meminfo"), "MemTotal").split()[0]) // 1024,
        os.getloadavg()[0],
        {"python": platform.python_version(), "kernel": platform.release(), **_control_plane_versions()},
        _commit(),
    )


def _field(file: Path, name: str) -> str:
    for line in file.read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "0" if name == "MemTotal" else _UNKNOWN


def _control_plane_versions() -> dict[str, str]:
    try:
        return {program: said.split()[-1] for program, said in find_control_plane().versions().items()}
    except MissingPart:
        return {}


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or _UNKNOWN
