"""T1, short: a whole rotation on real API servers, under load."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from signer.configuration import Configuration
from signer.kube.connection import ClusterConnection
from signer.kube.resources import CERTIFICATE_AUTHORITY_ROTATIONS, SECRETS
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController
from tests.e2e.rotation.afterwards import ask_all
from tests.e2e.rotation.load import KubectlLoad, Load, LoadClient, status_of
from tests.e2e.rotation.shortened import shortened
from tests.e2e.rotation.world import CLUSTER, NAMESPACE, SETTINGS, RotationWorld
from tests.integration.fixtures import keyed_mac
from tests.support.binaries import MissingPart, find_control_plane, skip_or_fail
from tests.support.processes import wait_until

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.serial,
    pytest.mark.skipif(
        "NODE_ATTESTATION_ROTATION" not in os.environ, reason="minutes each, on a quiet machine: make rotation"
    ),
]
NODES = 6


@pytest.fixture
def world(management_cluster: ManagementCluster) -> Iterator[RotationWorld]:
    """With waits that exist for caches shortened: here every process reads its files at its start."""
    try:
        find_control_plane().kube_controller_manager()
    except MissingPart as missing:
        skip_or_fail(missing)
    with shortened(), RotationWorld(management_cluster) as world:
        world.cluster.authorize("keyed-mac", mode="Observe")
        yield world


@pytest.fixture
def controller(world: RotationWorld) -> Iterator[RunningController]:
    configuration = Configuration(
        namespace=CONTROLLER_NAMESPACE, watch_namespace=NAMESPACE, attestors=keyed_mac(), rotation=SETTINGS
    )
    with RunningController(world.management.api.connection(), configuration) as running:
        yield running


@pytest.fixture
def load(world: RotationWorld, controller: RunningController) -> Iterator[Load]:
    """Six nodes and a client with the kubeconfig, together more than 20 requests a second."""
    for number in range(NODES):
        world.add_node(f"worker-{number}")
    clients = [LoadClient(name, node.get_connection) for name, node in world.nodes.items()]
    clients.append(LoadClient("administrator", world.admin_connection))
    with Load(clients, lambda: str(world.record.get("step"))) as load:
        yield load


def shown(world: RotationWorld) -> dict[str, Any]:
    """The rotation in the policy's status, which is written at most every few seconds."""
    found: dict[str, Any] = world.policy["status"]["credentials"]["rotation"]["certificateAuthorities"]
    return found


def only(connection: ClusterConnection, authority: bytes) -> ClusterConnection:
    """A client that trusts this CA alone."""
    return replace(connection, certificate_authority=authority, tls=None)


def test_a_whole_rotation(world: RotationWorld, load: Load, tmp_path: Path) -> None:
    kubectl = KubectlLoad(lambda: world.secret("kubeconfig")["value"], tmp_path, load.outcomes)
    former = {name: node.connection for name, node in world.nodes.items()}
    world.order("start-ca-rotation")
    world.until_phase("Prepared", work=kubectl.ask)
    assert world.condition("RollbackAvailable")["reason"] == "Full"
    assert world.authority().certificate_pem == world.old.certificate_pem, "nothing is switched without an order"
    world.order("complete-ca-rotation")
    world.until_phase("Completed", work=kubectl.ask)

    assert load.outcomes.failures == []
    assert set(load.outcomes.answered) == {*world.nodes, "administrator", "kubectl"}
    new = world.authority()
    record = world.record
    for answers in ask_all(world, former):
        assert answers.old_is_refused, answers
        assert answers.new_is_accepted, answers
    trust = world.secret("trust")
    assert trust == {"client-ca.crt": new.certificate_pem, "server-ca.crt": new.certificate_pem, "link.crt": b""}
    kept = world.secret(f"ca-{record['rotationID']}-old")
    assert kept == {"tls.crt": world.old.certificate_pem}, "the old key is gone, its certificate stays"
    assert "operation" not in str(world.policy["metadata"].get("annotations"))
    wait_until(lambda: shown(world)["phase"] == "Completed", "the status follows the record")
    status = shown(world)
    assert (status["phase"], status["gepPhase"], status["rollbackAvailable"]) == ("Completed", "Completed", "None")
    assert world.provider.rollouts == 6, "three rollouts of two Machines"


def test_a_server_that_does_not_get_the_bundle_holds_the_rotation(world: RotationWorld, load: Load) -> None:
    """T3: its Machine is named, nothing is signed by the new CA; once it is repaired, the rotation goes on."""
    left_out = world.provider.machines[-1]
    world.provider.leave_out(left_out)
    world.order("start-ca-rotation")

    def named() -> bool:
        world.know_new_authority()
        world.provider.follow()
        progressing = world.condition("CertificateAuthorityRotationProgressing")
        return progressing.get("reason") == "ServersTrust" and left_out.name in progressing["message"]

    wait_until(named, "the condition names the Machine", 60)
    world.nodes["worker-0"].follow()
    issued = world.nodes["worker-0"].issuer
    assert issued == world.old.name, "the old CA signs while one server would refuse the new one"
    world.provider.leave_out(None)
    world.until_phase("Prepared")
    assert load.outcomes.failures == []


@pytest.mark.parametrize("step", ["NodesTrust", "Prepared"])
def test_roll_back(world: RotationWorld, load: Load, step: str) -> None:
    """T8: all of it is taken back: the old CA signs, the new one's key is gone, and no client noticed."""
    world.order("start-ca-rotation")
    world.until_step(step)
    rotation_id = world.record["rotationID"]
    world.order("rollback-ca-rotation")
    world.until_phase("RolledBack")
    assert load.outcomes.failures == []
    assert world.authority().certificate_pem == world.old.certificate_pem
    assert set(world.secret(f"ca-{rotation_id}")) == {"tls.crt"}
    for node in world.nodes.values():
        assert node.issuer == world.old.name
        assert status_of(only(node.connection, world.old.certificate_pem)) == 200
    trust = world.secret("trust")
    assert trust["server-ca.crt"] == world.old.certificate_pem
    assert world.client.get(SECRETS.object(f"{CLUSTER}-ca", NAMESPACE))["type"] == "cluster.x-k8s.io/secret"
    assert world.client.get(CERTIFICATE_AUTHORITY_ROTATIONS.object(CLUSTER, NAMESPACE))
