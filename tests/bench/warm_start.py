"""Measures the credential plugin with a valid stored certificate, compared with a bare Python interpreter."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from signer.testing.nodes import SimulatedNode
from tests.support.certificates import CertificateAuthority
from tests.support.node_program import NodeProgram, exec_info

RUNS: Final = 20


@dataclass(frozen=True)
class WarmStart:
    """Medians of whole processes, in milliseconds of wall time."""

    runs: int
    interpreter_milliseconds: float
    plugin_milliseconds: float

    @property
    def ratio(self) -> float:
        """The plugin's time divided by the bare interpreter's."""
        return self.plugin_milliseconds / self.interpreter_milliseconds

    def as_json(self) -> dict[str, float | int]:
        """For the machine-readable report."""
        return {**asdict(self), "ratio": self.ratio}


def measure_warm_start(runs: int = RUNS) -> WarmStart:
    """Run both in turn, so that other load on the machine affects both."""
    authority = CertificateAuthority.like_cluster_api()
    node = SimulatedNode("bench", "test:///bench", f"sha256:{'0' * 64}", "insecure", {"provider-id": "test:///bench"})
    certificate, key = authority.issue_client("system:node:bench", ["system:nodes"])
    with tempfile.TemporaryDirectory(prefix="node-attestation-bench-") as folder:
        program = NodeProgram(Path(folder), node)
        program.store.mkdir()
        program.client_pair.write_bytes(certificate + key)
        environment = program.environment(exec_info())
        commands = ([sys.executable, "-c", "pass"], program.command_line("credential"))
        for command in commands:
            _time(command, environment)  # compiles modules
        timed = [tuple(_time(command, environment) for command in commands) for _ in range(runs)]
    interpreter, plugin = (statistics.median(times) * 1000 for times in zip(*timed, strict=True))
    return WarmStart(runs, interpreter, plugin)


def _time(command: Sequence[str], environment: Mapping[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return time.perf_counter() - began
