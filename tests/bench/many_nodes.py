"""Measures how much of a controller's memory a node takes: its Machine, record and reservations.

A record's journal grows with each certificate up to :data:`~signer.model.record.JOURNAL_ENTRIES`, so a node takes more
memory after some months than on its first day.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from rich.console import Console
from rich.table import Table

from attestors.contract import Security
from attestors.wire.names import CLIENT_SIGNER_PREFIX
from signer.kube.client import Client, JsonObject
from signer.kube.errors import AlreadyExists
from signer.kube.resources import ATTESTED_NODES, IDENTITY_RESERVATIONS, SECRETS
from signer.model.record import (
    JOURNAL_ENTRIES,
    KUBELET_CLIENT,
    AttestedIdentity,
    AttestedNode,
    JournalEntry,
    MachineKey,
)
from signer.model.record_object import record_spec
from signer.model.reservation import Pair, ReservationSide
from signer.model.seal import KEY_BYTES, ControllerKeys, RecordSeals
from signer.store.controller_key import controller_key_secret
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster
from tests.bench.drain import controller_process, cpu_seconds
from tests.bench.load import Load
from tests.bench.many_clusters import resident_bytes
from tests.support.control_plane import ControlPlane
from tests.support.processes import wait_until
from tests.support.reservations import reservation_spec

NODES: Final = 3000
YOUNG: Final = 2
"""Journal entries after a node's first week."""
_LIFE: Final = timedelta(days=7)
_AT_ONCE: Final = 24
_IDLE_SECONDS: Final = 10.0
_TIMEOUT_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class Stage:
    """A controller with one set of objects per node."""

    what: str
    resident: int
    """Resident memory when idle, in bytes."""
    start_cpu_seconds: float


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.many_nodes", description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES, metavar="N")
    nodes = parser.parse_args().nodes
    stages = measure(nodes)
    table = Table("", "resident, MiB", "more per node, KiB", "CPU of the start, s", title=f"{nodes:,} nodes")
    for before, stage in zip((stages[0], *stages), stages, strict=False):
        each = (stage.resident - before.resident) / nodes / 1024
        table.add_row(stage.what, f"{stage.resident / 2**20:.0f}", f"{each:.1f}", f"{stage.start_cpu_seconds:.1f}")
    Console(highlight=False).print(table)
    return 0


def measure(nodes: int) -> list[Stage]:
    """Measure a controller without nodes, then with more and more objects per node.

    Raises:
        tests.support.binaries.MissingPart: there is no kube-apiserver.
        TimeoutError: the controller is not idle within five minutes.
    """
    keys = ControllerKeys(secrets.token_bytes(KEY_BYTES))
    with ControlPlane() as control_plane, ManagementCluster(control_plane) as management:
        load = Load(management.add_cluster("bench", control_plane), nodes)
        load.cluster.authorize("keyed-mac")
        management.client.create(
            SECRETS.collection(CONTROLLER_NAMESPACE), controller_key_secret(CONTROLLER_NAMESPACE, keys)
        )
        stages = [_stage("nothing", load, control_plane)]
        load.add_machines()
        stages.append(_stage("Machines", load, control_plane))
        identities = [
            AttestedIdentity("keyed-mac", f"keyed-mac:{secrets.token_hex(32)}", Security.SECURE) for _ in range(nodes)
        ]
        pairs = [Pair(_machine(load, name), identity) for name, identity in zip(load.names(), identities, strict=True)]
        asyncio.run(_write(control_plane, [_side(pair, side, keys) for pair in pairs for side in ReservationSide]))
        stages.append(_stage("and two reservations", load, control_plane))
        seals = RecordSeals(keys)
        for entries in (YOUNG, JOURNAL_ENTRIES):
            asyncio.run(_write(control_plane, [_record(pair, seals, entries) for pair in pairs]))
            stages.append(_stage(f"and records of {entries} entries", load, control_plane))
        return stages


def _stage(what: str, load: Load, control_plane: ControlPlane) -> Stage:
    with controller_process(control_plane.connection(), load.configuration.attestors) as process:
        wait_until(lambda: _is_idle(process.pid), "the controller is idle", _TIMEOUT_SECONDS)
        return Stage(what, resident_bytes(process.pid), cpu_seconds(process.pid))


def _is_idle(pid: int) -> bool:
    before = cpu_seconds(pid)
    time.sleep(_IDLE_SECONDS)
    return cpu_seconds(pid) - before < _IDLE_SECONDS / 100


async def _write(control_plane: ControlPlane, manifests: Iterable[JsonObject]) -> None:
    """Create the objects, or replace the spec of existing ones."""
    slots = asyncio.Semaphore(_AT_ONCE)
    async with Client(control_plane.connection(), timeout_seconds=60) as client:

        async def one(manifest: JsonObject) -> None:
            resource = ATTESTED_NODES if manifest["kind"] == "AttestedNode" else IDENTITY_RESERVATIONS
            namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
            async with slots:
                try:
                    await client.create(resource.collection(namespace), manifest)
                except AlreadyExists:
                    stored = await client.get(resource.object(name, namespace))
                    await client.replace(resource.object(name, namespace), {**stored, "spec": manifest["spec"]})

        await asyncio.gather(*[one(manifest) for manifest in manifests])


def _machine(load: Load, name: str) -> MachineKey:
    return MachineKey(load.cluster.key, "Machine", name, f"bench:///{name}")


def _side(pair: Pair, side: ReservationSide, keys: ControllerKeys) -> JsonObject:
    metadata = {"name": pair.name(side), "namespace": CONTROLLER_NAMESPACE}
    return {
        "apiVersion": IDENTITY_RESERVATIONS.api_version,
        "kind": "IdentityReservation",
        "metadata": metadata,
        "spec": reservation_spec(side, pair, keys=keys),
    }


def _record(pair: Pair, seals: RecordSeals, entries: int) -> JsonObject:
    node = pair.machine.name
    began = datetime.now(UTC).replace(microsecond=0) - entries * _LIFE / 2
    journal = tuple(_entry(node, began + number * _LIFE / 2) for number in range(entries))
    first, last = journal[0], journal[-1]
    record = AttestedNode(
        pair.machine, "uid", node, pair.identity, first.decided, last.decided, last.not_after, journal
    )
    metadata = {"name": record.name, "namespace": pair.machine.cluster.namespace}
    spec = {**record_spec(record), "seal": seals.seal(record)}
    return {"apiVersion": ATTESTED_NODES.api_version, "kind": "AttestedNode", "metadata": metadata, "spec": spec}


def _entry(node: str, decided: datetime) -> JournalEntry:
    decided += timedelta(seconds=secrets.randbelow(3600))
    return JournalEntry(
        kind=KUBELET_CLIENT,
        csr_name=f"node-attestation-{secrets.token_hex(20)}",
        csr_uid=f"{secrets.token_hex(4)}-{secrets.token_hex(2)}-4{secrets.token_hex(10)}",
        spec_digest=secrets.token_hex(32),
        signer_name=f"{CLIENT_SIGNER_PREFIX}keyed-mac",
        requester=f"system:node:{node}",
        serial_number=secrets.randbits(127) | 1,
        not_before=decided - timedelta(minutes=5),
        not_after=decided + _LIFE,
        ca_cert_hash=f"sha256:{hashlib.sha256(b'the CA of the cluster').hexdigest()}",
        evidence_ca_cert_hash=f"sha256:{hashlib.sha256(b'the CA of the cluster').hexdigest()}",
        certificate_digest=secrets.token_hex(32),
        public_key_digest=secrets.token_hex(32),
        created=decided - timedelta(seconds=1),
        decided=decided,
    )


if __name__ == "__main__":
    raise SystemExit(main())
