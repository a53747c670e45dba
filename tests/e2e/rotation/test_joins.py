"""T5 and T6: real machines join by kubeadm at each moment of a rotation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509

from signer.kube.resources import CONFIG_MAPS
from signer.rotation.control_plane.readiness import (
    CLIENT_CA_FILE,
    SERVER_CA_FILE,
)
from signer.testing.world import RunningController
from tests.deploy.manifests import WORKER, of_class
from tests.e2e.kubeadm.node import attestation
from tests.e2e.rotation.machines import CONFIGURATION, MACHINE, JoiningMachine
from tests.e2e.rotation.test_whole_rotation import world as world
from tests.e2e.rotation.world import NAMESPACE, RotationWorld
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.certificates import CertificateAuthority
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
STORED_PAIR: Final = "/var/lib/kubelet/pki/kubelet-authenticator-client.pem"
ADMIN_CONF: Final = "/etc/kubernetes/admin.conf"
REFUSED: Final = "cluster CA found in cluster-info ConfigMap is invalid: none of the public keys"
API_SERVER: Final = {"client-ca-file": CLIENT_CA_FILE}
CONTROLLER_MANAGER: Final = {"client-ca-file": CLIENT_CA_FILE, "root-ca-file": SERVER_CA_FILE}


@pytest.fixture
def joining(world: RotationWorld, tmp_path: Path) -> Iterator[JoiningMachine]:
    """With a controller, in a cluster whose configuration is ready for rotations."""
    with RunningController(world.management.api.connection(), CONFIGURATION):
        try:
            yield JoiningMachine.of(
                world,
                tmp_path,
                apiServer={"extraArgs": API_SERVER},
                controllerManager={"extraArgs": CONTROLLER_MANAGER},
            )
        except MissingPart as missing:
            skip_or_fail(missing)


def until(world: RotationWorld, step: str) -> None:
    """Wait for the controller alone: no Machine of the control plane is replaced meanwhile."""

    def reached() -> bool:
        world.know_new_authority()
        return bool(world.record.get("step") == step)

    try:
        wait_until(reached, f"the rotation works on {step}", 60)
    except TimeoutError as late:
        raise TimeoutError(f"{late}; {world.explained()}") from None


def forget_node(world: RotationWorld) -> None:
    """Its Machine is about to join: it holds step SignServing."""
    machine = {"metadata": {"name": MACHINE, "namespace": NAMESPACE}}
    world.cluster.set_machine_status(machine, {"nodeRef": None})


def pinned(world: RotationWorld) -> str:
    """The CAs that ``cluster-info`` has now, for the report of a failure."""
    with RawClient(world.admin_connection()) as client:
        return str(client.get(CONFIG_MAPS.object("cluster-info", "kube-public")).body["data"])


def new_authority(world: RotationWorld) -> CertificateAuthority:
    """The new CA, from the beginning on."""
    data = world.secret(f"ca-{world.record['rotationID']}")
    return CertificateAuthority.from_pem(data["tls.crt"], data["tls.key"])


def test_a_worker_joins_with_user_data_from_before_the_rotation(world: RotationWorld, joining: JoiningMachine) -> None:
    """T6: it pins the old CA alone."""
    spec = of_class(WORKER, attestation("SelfSigned"))
    data = joining.user_data(spec)

    def join(client_authority: CertificateAuthority) -> None:
        with joining.booted(spec, data) as machine:
            joining.has_joined(machine)
            pair = machine.path(STORED_PAIR).read_bytes()
            assert_issued(pair, client_authority)

    world.order("start-ca-rotation")
    until(world, "ServersTrust")
    new = new_authority(world)
    join(world.old)

    world.until_step("NodesTrust")
    join(new)
    world.until_phase("Prepared")
    forget_node(world)
    world.order("complete-ca-rotation")

    until(world, "ServersPresent")
    world.until_step("SignServing")
    join(new)

    world.until_phase("Completed")
    with joining.booted(spec, data) as machine:
        assert not machine.joined(), pinned(world)
        print(machine.output())
        assert REFUSED in machine.output()


def assert_issued(pair: bytes, authority: CertificateAuthority) -> None:
    """The certificate of a stored pair is by that CA."""
    issuer = x509.load_pem_x509_certificate(pair).issuer
    assert issuer == authority.name
