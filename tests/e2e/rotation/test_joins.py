"""T5 and T6: real machines join by kubeadm at each moment of a rotation."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509

from signer.kube.kubeconfig import parse_kubeconfig
from signer.kube.resources import CONFIG_MAPS
from signer.rotation.control_plane.readiness import (
    CLIENT_CA_FILE,
    CLIENT_CA_KEY,
    LINK_COMMAND,
    LINK_FILE,
    LINK_KEY,
    SERVER_CA_FILE,
    SERVER_CA_KEY,
)
from signer.testing.world import RunningController
from tests.deploy.bootstrap_data import KUBEADM_API
from tests.deploy.manifests import CONTROL_PLANE, WORKER, of_class
from tests.e2e.kubeadm.cluster import kubeadm_api, with_control_plane
from tests.e2e.kubeadm.node import attestation, machine_address
from tests.e2e.rotation.machines import CONFIGURATION, MACHINE, JoiningMachine, RotatedPlane
from tests.e2e.rotation.test_whole_rotation import pairs as pairs
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
    api = kubeadm_api(RotatedPlane(world))
    components = {"apiServer": API_SERVER, "controllerManager": CONTROLLER_MANAGER}
    with RunningController(world.management.api.connection(), CONFIGURATION):
        try:
            yield JoiningMachine.of(
                world,
                tmp_path,
                **{name: {"extraArgs": arguments_of(api, flags)} for name, flags in components.items()},
            )
        except MissingPart as missing:
            skip_or_fail(missing)


def arguments_of(api: str, flags: Mapping[str, str]) -> object:
    """``extraArgs``, a map before v1beta4."""
    return [{"name": name, "value": value} for name, value in flags.items()] if api == KUBEADM_API else flags


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


# Workers


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


# Control planes


@pytest.fixture
def local() -> tuple[str, int]:
    """Where the machine's own API server is to listen: kubeadm takes no loopback address."""
    addresses = machine_address()
    if not addresses:
        skip_or_fail(MissingPart("this machine has no address but a loopback one"))
    with socket.socket() as probe:
        probe.bind((addresses[0], 0))
        return addresses[0], int(probe.getsockname()[1])


def control_plane_spec(world: RotationWorld, joining: JoiningMachine, local: tuple[str, int]) -> dict[str, Any]:
    """The rotation-ready template, as Cluster API renders it from what the Secrets hold now."""
    spec = of_class(CONTROL_PLANE, attestation("SelfSigned"))
    spec = with_control_plane(joining.plane, spec, *local)
    trust: Mapping[str, bytes] = world.secret("trust")
    paths = {CLIENT_CA_FILE: CLIENT_CA_KEY, SERVER_CA_FILE: SERVER_CA_KEY, LINK_FILE: LINK_KEY}
    files = [
        {"path": path, "owner": "root:root", "permissions": "0644", "content": trust[key].decode("ascii")}
        for path, key in paths.items()
    ]
    commands = [*spec.get("postKubeadmCommands", ()), LINK_COMMAND]
    return {**spec, "files": [*spec["files"], *files], "postKubeadmCommands": commands}


def test_a_machine_of_the_control_plane_joins(
    world: RotationWorld, joining: JoiningMachine, local: tuple[str, int]
) -> None:
    """T5: with user data that Cluster API renders at that moment. The API servers are behind a balancer."""

    def join() -> None:
        spec = control_plane_spec(world, joining, local)
        with joining.booted(spec, joining.user_data(spec)) as machine:
            joining.has_joined(machine)
            authority = world.secret("ca")["tls.crt"]
            own = f"https://{local[0]}:{local[1]}"
            connection = replace(world.admin_connection(), server=own, certificate_authority=authority, tls=None)
            with RawClient(connection) as client:
                wait_until(lambda: answers(client), "its own API server accepts the administrator", 60)
            administrator = parse_kubeconfig(machine.path(ADMIN_CONF).read_bytes())
            assert administrator.certificate_authority.strip() == authority.strip(), "one CA"

    world.cluster.put_secret("trust", outside_of_a_rotation(world))
    join()
    world.order("start-ca-rotation")
    world.until_step("NodesTrust")
    join()
    world.until_phase("Prepared")
    forget_node(world)
    world.order("complete-ca-rotation")

    until(world, "ServersPresent")
    new = new_authority(world)
    assert world.authority().certificate_pem == new.certificate_pem
    join()
    for server in world.control_plane.servers:
        server.present(world.old)
        server.restart()
    spec = control_plane_spec(world, joining, local)
    with joining.booted(spec, joining.user_data(spec)) as machine:
        print(machine.output())
        assert not machine.joined(), "without the link"
        assert "certificate signed by unknown authority" in machine.output()

    forget_node(world)
    world.until_step("SignServing")
    join()
    world.until_phase("Completed")
    join()


def outside_of_a_rotation(world: RotationWorld) -> dict[str, bytes]:
    """What the operator writes into Secret ``<cluster>-trust`` beside the template."""
    present = world.secret("ca")["tls.crt"]
    return {CLIENT_CA_KEY: present, SERVER_CA_KEY: present, LINK_KEY: b""}


def answers(client: RawClient) -> bool:
    """Whether the API server serves this administrator."""
    with contextlib.suppress(OSError):
        return client.get("/api/v1/nodes").status == 200
    return False
