"""The real command line, several times, for one namespace."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from signer.testing.api.kubeconfig import kubeconfig_of
from signer.testing.world import ManagementCluster
from tests.integration.fixtures import MASTER_KEY
from tests.support.processes import Program, Programs


class Replicas:
    """Controllers with the same flags and configuration."""

    def __init__(self, management: ManagementCluster, programs: Programs, flags: Sequence[str]) -> None:
        self.management = management
        self._programs = programs
        self._flags = flags
        (programs.folder / "kubeconfig").write_text(kubeconfig_of(management.api.connection(), "management"))
        settings = {"masterKey": base64.b64encode(MASTER_KEY).decode("ascii")}
        config = {"attestors": {"keyed-mac": {"settings": settings}}}
        (programs.folder / "config.yaml").write_text(json.dumps(config))

    def start(self, name: str) -> Program:
        """One more; ``name`` is for people."""
        command = [sys.executable, "-m", "signer.cli", "run", "--kubeconfig", "kubeconfig", "--config", "config.yaml"]
        root = str(Path(__file__).parents[2])
        return self._programs.start(name, [*command, *self._flags], {"PYTHONPATH": root})
