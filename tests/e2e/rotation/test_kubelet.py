"""T7: a real kubelet under systemd takes the CAs of a rotation, by its own agent."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from attestors.wire.statement import ClusterIdentity
from attestors.wire.statement.cluster_trust import MINIMUM_TURN_SECONDS
from attestors.wire.statement.names import STATEMENT_CONFIG_MAP
from authenticator.store.store import AUTHORITY_FILE, TRUST_FILE
from signer.authority import load_certificate_authority
from signer.authority.statement_signing import StatementKeys
from signer.kube.client import Client
from signer.kube.resources import CLUSTERS_V1BETA2, SECRETS
from signer.model.seal import KeyUse
from signer.rotation import reconciler
from signer.rotation.statements import TrustFacts, publish_statement
from signer.rotation.statements.readers import ensure_readers
from signer.store.controller_key import SECRET_NAME, parse_controller_keys
from signer.testing.world import CONTROLLER_NAMESPACE, RunningController
from tests.deploy.manifests import WORKER, of_class
from tests.deploy.running_machine import RunningMachine
from tests.e2e.kubeadm.node import attestation, ready, wait_ready
from tests.e2e.rotation.machines import CONFIGURATION, GRACE_SECONDS, Heartbeats, JoiningMachine
from tests.e2e.rotation.test_whole_rotation import pairs as pairs
from tests.e2e.rotation.test_whole_rotation import world as world
from tests.e2e.rotation.world import CLUSTER, NAMESPACE, RotationWorld
from tests.support import statements
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.serial,
    pytest.mark.skipif(
        "NODE_ATTESTATION_ROTATION" not in os.environ, reason="minutes each, on a quiet machine: make rotation"
    ),
]
SPEC: Final = of_class(WORKER, attestation("SelfSigned"))
CLIENT_AUTHORITY: Final = "/etc/kubernetes/pki/ca.crt"
STORE: Final = "/var/lib/kubelet/pki"
TURN_SECONDS: Final = 400
"""Two turns of two minutes, a minute until the agent looks, and one to restart."""


@pytest.fixture
def joining(world: RotationWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JoiningMachine]:
    """With a controller, and turns as short as they may be."""
    monkeypatch.setattr(reconciler, "TrustFacts", partial(TrustFacts, turn_seconds=MINIMUM_TURN_SECONDS))
    with RunningController(world.management.api.connection(), CONFIGURATION):
        try:
            yield JoiningMachine.of(world, tmp_path)
        except MissingPart as missing:
            skip_or_fail(missing)


@pytest.fixture
def machine(joining: JoiningMachine) -> Iterator[RunningMachine]:
    """A worker that has joined."""
    with joining.booted(SPEC, joining.user_data(SPEC)) as machine:
        joining.has_joined(machine)
        yield machine


def trusted(machine: RunningMachine) -> set[bytes]:
    """What the kubelet's files hold: one content, unless they are being changed."""
    return {machine.path(name).read_bytes() for name in (CLIENT_AUTHORITY, f"{STORE}/{AUTHORITY_FILE}")}


def status(machine: RunningMachine) -> str:
    """What the node's program says of its trust."""
    machine.run("kubelet-authenticator status")
    return machine.output()


def process_of_kubelet(machine: RunningMachine) -> str:
    """Process ID in the machine."""
    machine.run("systemctl show --property=MainPID kubelet")
    return machine.output()


def test_a_running_kubelet_takes_the_new_authority(
    world: RotationWorld, joining: JoiningMachine, machine: RunningMachine
) -> None:
    """N of N: the rotation is Prepared only when the evidence of this kubelet named the new CA."""
    former = process_of_kubelet(machine)
    began = time.monotonic()
    with Heartbeats(joining.plane) as heartbeats:
        world.order("start-ca-rotation")
        world.until_step("NodesTrust")
        assert trusted(machine) == {world.old.certificate_pem}
        told = time.monotonic()
        world.until_phase("Prepared", seconds=TURN_SECONDS)
        trusting = time.monotonic()
        world.order("complete-ca-rotation")
        world.until_phase("Completed", seconds=TURN_SECONDS)
        new = world.authority()
        wait_until(lambda: trusted(machine) == {new.certificate_pem}, "the old CA is dropped", TURN_SECONDS)
        with RawClient(joining.plane.connection()) as client:
            wait_ready(client, machine, ready(client))
        wait_until(lambda: "is in force" in status(machine), "the statement is in force", 60)
    ended = time.monotonic()
    print(
        f"T7: NodesTrust after {told - began:.0f} s, held for {trusting - told:.0f} s, "
        f"all in {ended - began:.0f} s; longest gap of the lease: {heartbeats.longest_gap_seconds:.1f} s, "
        f"{len(heartbeats.renewed)} renewals"
    )
    assert "TrustRejected" not in status(machine)
    assert process_of_kubelet(machine) != former
    assert heartbeats.longest_gap_seconds < GRACE_SECONDS


def test_a_wrong_bundle_is_undone(world: RotationWorld, joining: JoiningMachine, machine: RunningMachine) -> None:
    """Signed by all that must sign, and no API server presents a certificate of it."""
    foreign = statements.authority("foreign")
    now = datetime.now(UTC)
    found = world.client.get(CLUSTERS_V1BETA2.object(CLUSTER, NAMESPACE))
    keys = parse_controller_keys(world.client.get(SECRETS.object(SECRET_NAME, CONTROLLER_NAMESPACE)))
    old = load_certificate_authority(world.secret("ca"), now=now)
    facts = TrustFacts(
        ClusterIdentity(NAMESPACE, CLUSTER, found["metadata"]["uid"]),
        statements.ROTATION,
        int(now.timestamp()),
        (foreign,),
        (old,),
        (),
        MINIMUM_TURN_SECONDS,
    )

    async def publish() -> None:
        async with Client(joining.plane.connection()) as client:
            await ensure_readers(client, STATEMENT_CONFIG_MAP)
            await publish_statement(client, facts, StatementKeys.of(keys.subkeys(KeyUse.STATEMENT)), now)

    asyncio.run(publish())
    former = trusted(machine)
    assert former == {world.old.certificate_pem}
    wrong = statements.bundle_of(foreign).encode("ascii")
    wait_until(lambda: trusted(machine) == {wrong}, "the agent has written the wrong CA", TURN_SECONDS)
    wait_until(lambda: "TrustRejected since" in status(machine), "the statement is rejected", TURN_SECONDS)
    assert trusted(machine) == former
    assert "NodeNotReady" in status(machine)
    assert TRUST_FILE in {path.name for path in machine.path(STORE).iterdir()}
    with RawClient(joining.plane.connection()) as client:
        wait_ready(client, machine, ready(client))
