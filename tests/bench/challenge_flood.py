"""Measures a flood of TPM challenges: its cost in controller memory, and in join time of honest machines.

An attacker with one stolen bootstrap token posts well-formed first requests as fast as kube-apiserver accepts them,
each for a new key. Honest machines with the same token join before the flood and during it. The controller runs in a
process of its own, so that its memory can be measured.
"""

from __future__ import annotations

import enum
import itertools
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec

from signer.configuration import OperatorAttestor
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.testing.world import ManagementCluster, Verdict, WorldCluster
from tests.bench.drain import controller_process
from tests.bench.honest_nodes import Joins, add_machines, join_in_turn
from tests.bench.thief import write_loot
from tests.integration.tpm.fake_tpm_node import FakeTPMNode
from tests.support.control_plane import ControlPlane
from tests.support.grants import as_service_account, restrict_in_workload_cluster
from tests.unit.attestors.tpm.endorsement.support import intermediate, root
from tests.unit.attestors.tpm.fake_tpm import FakeTPM

REQUESTS: Final = 10_000
MAXIMUM_GROWTH: Final = 50 * 1024 * 1024
"""Limit of the growth of resident memory, in bytes."""
MAXIMUM_SECONDS_SLOWER: Final = 2.0
"""Limit of the delay of honest joins by the flood, at the 99th percentile."""
HONEST_BEFORE: Final = 40
HONEST_AT_MOST: Final = 600
EVERY_SECONDS: Final = 0.5
"""Interval between the starts of honest joins."""
_WARM: Final = 5
_NUMBERS: Final = itertools.count(100_000)


class Flood(enum.Enum):
    """What the attacker posts."""

    ONE_CHIP = "copied evidence of a Machine's own TPM"
    MANY_CHIPS = "many TPMs, for a Machine with another TPM"
    ONE_CHIP_NO_MACHINE = "copied evidence of one TPM, for missing Machines"
    MANY_CHIPS_NO_MACHINE = "many TPMs, for missing Machines"

    @property
    def has_machine(self) -> bool:
        """Whether the claimed Machine exists."""
        return self in (Flood.ONE_CHIP, Flood.MANY_CHIPS)

    @property
    def has_many_chips(self) -> bool:
        """Whether each request is of another TPM."""
        return self in (Flood.MANY_CHIPS, Flood.MANY_CHIPS_NO_MACHINE)


@dataclass(frozen=True, slots=True)
class Flooded:
    """The result of one flood."""

    flood: str
    requests: int
    resident_before: int
    """Bytes, after the first honest joins."""
    resident_most: int
    """Bytes, the maximum until the end of the last honest join."""
    honest_before: int
    honest_meanwhile: int
    p99_seconds_before: float
    p99_seconds_meanwhile: float
    reasons: dict[str, int]
    """Numbers of the attacker's requests by their final reason; empty for undecided ones."""

    @property
    def grown(self) -> int:
        """Growth of resident memory, in bytes."""
        return self.resident_most - self.resident_before

    @property
    def slower_seconds(self) -> float:
        """Delay of honest joins, at the 99th percentile."""
        return self.p99_seconds_meanwhile - self.p99_seconds_before


def measure_challenge_flood(control_plane: ControlPlane, flood: Flood, requests: int = REQUESTS) -> Flooded:
    """Run one flood on a control plane of its own, with kubeadm's grants."""
    with tempfile.TemporaryDirectory() as folder, ManagementCluster(control_plane) as management:
        cluster = management.add_cluster("flooded", control_plane)
        known = cluster.ca_cert_hash  # computed once, because it is slow
        victim, *honest = (
            FakeTPMNode(cluster, f"honest-{number:04}", _chip(), known_cluster=known)
            for number in range(HONEST_AT_MOST)
        )
        add_machines(cluster, [victim, *honest])
        restrict_in_workload_cluster(cluster, control_plane)
        cluster.authorize("tpm")
        token = control_plane.token_connection(control_plane.bootstrap_token())
        loot = Path(folder) / "loot"
        write_loot(loot, token, _posted(victim, flood, requests))
        attestors = {"tpm": OperatorAttestor(settings=_authorities(Path(folder)))}
        left = iter(honest)
        with controller_process(as_service_account(control_plane, cluster.namespace), attestors) as process:

            def join(at_least: int, over: Callable[[], bool] = lambda: True) -> Joins:
                return join_in_turn(token, left, every_seconds=EVERY_SECONDS, at_least=at_least, over=over)

            join(_WARM)
            before = join(HONEST_BEFORE)
            memory = Memory(process.pid)
            with subprocess.Popen([sys.executable, "-m", "tests.bench.thief", str(loot)]) as thief:
                try:
                    meanwhile = join(HONEST_BEFORE, lambda: thief.poll() is not None)
                finally:
                    thief.terminate()
            assert thief.returncode == 0
            most = memory.most()
        return Flooded(
            flood.value,
            requests,
            memory.before,
            most,
            len(before.seconds),
            len(meanwhile.seconds),
            before.percentile(99),
            meanwhile.percentile(99),
            _reasons(cluster),
        )


class Memory:
    """The resident memory of a process (``proc(5)``), and its maximum since this object was created."""

    def __init__(self, pid: int) -> None:
        self._process = Path(f"/proc/{pid}")
        (self._process / "clear_refs").write_text("5")  # resets the maximum
        self.before = self._bytes("VmRSS")

    def most(self) -> int:
        """The maximum, in bytes."""
        return self._bytes("VmHWM")

    def _bytes(self, field: str) -> int:
        lines = (self._process / "status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def _chip() -> FakeTPM:
    return FakeTPM.new(next(_NUMBERS)).certified()


def _posted(victim: FakeTPMNode, flood: Flood, requests: int) -> Iterator[dict[str, Any]]:
    for number in range(requests):
        chip = _chip() if flood.has_many_chips else victim.chip
        machine = victim.machine if flood.has_machine else f"missing-{number}"
        key = ec.generate_private_key(ec.SECP256R1())
        yield victim.but(machine=machine, key=key).manifest(f"flood-{number:05}", chip.first())


def _authorities(folder: Path) -> dict[str, Any]:
    """The operator's settings, which trust the manufacturer of all these TPMs."""
    for name, content in (("roots", root()), ("intermediates", intermediate())):
        (folder / name).mkdir()
        (folder / name / "maker.der").write_bytes(content)
    return {
        "endorsementRootsFolder": str(folder / "roots"),
        "endorsementKeyTemplates": ["ecc-p256"],
        "endorsementIntermediatesFolder": str(folder / "intermediates"),
    }


def _reasons(cluster: WorldCluster) -> dict[str, int]:
    posted = cluster.client().items(CERTIFICATE_SIGNING_REQUESTS.collection())
    flood = [item for item in posted if item["metadata"]["name"].startswith("flood-")]
    return dict(Counter(Verdict.of(item).reason for item in flood))
