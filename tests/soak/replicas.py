"""Replicas of the controller, each with an adjustable clock, with leader election or shards.

A replica that ends is restarted.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from signer.cli import EXIT_FAILED
from signer.cli.run import EXIT_LEADERSHIP_LOST
from signer.kube.connection import ClusterConnection
from signer.testing.api.kubeconfig import kubeconfig_of
from tests.integration.fixtures import MASTER_KEY
from tests.soak.launcher import ClockFile
from tests.soak.ledger import Ledger
from tests.support.processes import Program, Programs
from tests.unit.attestors.tpm.endorsement.support import intermediate, root

_FLAGS: Final = (
    *("--leader-elect-lease-duration", "5s", "--leader-elect-renew-deadline", "4s"),
    *("--leader-elect-retry-period", "500ms", "--logging-format", "json"),
)
_NEW_SHARDS: Final = '"owning shards"'
_COMPLAINTS: Final = ("Traceback", '"level": "error"')
_RESTART_SECONDS: Final = 1.0
_ENDS: Final = {0, EXIT_FAILED, EXIT_LEADERSHIP_LOST, -signal.SIGKILL, -signal.SIGTERM}
"""Expected exit codes: terminated; management cluster unreachable at the start; Lease lost; killed; terminated before
the signal handler was installed.
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """Counts over all replicas, from the first start to the last exit."""

    starts: int
    divisions: tuple[str, ...]
    """How replicas shared the work, in order, as texts."""
    shard_changes: int
    """How often a replica's owned shards changed."""


@dataclass
class Replica:
    """One replica, and its current process."""

    name: str
    clock: ClockFile
    program: Program | None = None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it runs."""
        if self.program is not None:
            with contextlib.suppress(ProcessLookupError):
                self.program.process.send_signal(number)


@dataclass
class Replicas:
    """All replicas. A replica that ends is restarted, as by a Deployment."""

    programs: Programs
    management: ClusterConnection = field(repr=False)
    ledger: Ledger
    chance: Random
    sharings: Sequence[int]
    """Possible numbers of shards; 0 is leader election."""
    replicas: list[Replica] = field(default_factory=list)
    _starts: int = 0
    _divisions: list[str] = field(default_factory=list)
    _shards: int = 0
    """The number of shards for replicas that start now."""
    _stopping: bool = False

    def prepare(self, number: int) -> None:
        """Write the replicas' kubeconfig and configuration."""
        folder = self.programs.folder
        (folder / "kubeconfig").write_text(kubeconfig_of(self.management, "management"))
        for name, content in (("roots", root()), ("intermediates", intermediate())):
            (folder / name).mkdir()
            (folder / name / "maker.der").write_bytes(content)
        attestors = {
            "keyed-mac": {"settings": {"masterKey": base64.b64encode(MASTER_KEY).decode("ascii")}},
            "tpm": {
                "settings": {
                    "endorsementRootsFolder": str(folder / "roots"),
                    "endorsementKeyTemplates": ["ecc-p256"],
                    "endorsementIntermediatesFolder": str(folder / "intermediates"),
                }
            },
        }
        (folder / "config").write_text(json.dumps({"attestors": attestors}))
        self._divide(self.chance.choice(self.sharings))
        for index in range(number):
            name = f"replica-{index + 1}"
            self.replicas.append(Replica(name, ClockFile(folder / f"{name}.clock")))

    def roll_out(self) -> None:
        """Restart all replicas with another number of shards, or the same if there is only one. A restarted replica may
        run beside others that have not stopped yet.
        """
        others = [shards for shards in self.sharings if shards != self._shards]
        self._divide(self.chance.choice(others or self.sharings))
        for replica in self.replicas:
            replica.signal(signal.SIGTERM)

    def _divide(self, shards: int) -> None:
        self._shards = shards
        self._divisions.append(f"{shards} shards" if shards else "leader election")

    async def run(self) -> None:
        """Keep the replicas running until :meth:`stop`."""
        async with asyncio.TaskGroup() as tasks:
            for replica in self.replicas:
                tasks.create_task(self._keep_running(replica))

    def stop(self) -> None:
        """Terminate all replicas."""
        self._stopping = True
        for replica in self.replicas:
            replica.signal(signal.SIGTERM)

    async def _keep_running(self, replica: Replica) -> None:
        while not self._stopping:
            replica.program = self._start(replica)
            self._starts += 1
            code = await self._end_of(replica.program.process)
            if code not in _ENDS:
                self.ledger.found(f"{replica.name} ended with {code}: {replica.program.log_tail()}")
            await asyncio.sleep(self.chance.uniform(0, _RESTART_SECONDS))

    async def _end_of(self, process: subprocess.Popen[bytes]) -> int:
        return await asyncio.get_running_loop().run_in_executor(None, process.wait)

    def _start(self, replica: Replica) -> Program:
        command = [sys.executable, "-m", "tests.soak.launcher", str(replica.clock.path), "run"]
        command += ["--kubeconfig", "kubeconfig", "--config", "config", *_FLAGS]
        command += ["--shards", str(self._shards)] if self._shards else ["--leader-elect"]
        source = str(Path(__file__).parents[2])
        return self.programs.start(replica.name, command, {"PYTHONPATH": source})

    def ran(self) -> Ran:
        """The counts; complete once all replicas have ended."""
        changes = sum(log.read_text(errors="replace").count(_NEW_SHARDS) for log in self._logs())
        return Ran(self._starts, tuple(self._divisions), changes)

    @property
    def seen_divisions(self) -> frozenset[str]:
        """The ways in which replicas have shared the work so far, as texts."""
        return frozenset(self._divisions)

    def complaints(self) -> list[str]:
        """Log lines that show a defect."""
        found = []
        for log in self._logs():
            lines = log.read_text(errors="replace").splitlines()
            found += [f"{log.stem}: {line[:2000]}" for line in lines if any(sign in line for sign in _COMPLAINTS)]
        return found

    def _logs(self) -> list[Path]:
        return sorted(self.programs.folder.glob("replica-*.log"))
