"""Virtual machines join on the real kube-apiserver, and every attack on the GCP attestor is refused there.

Honest ones run the node's own program. The attacks are those of the integration tests, as they are, on another world.
Google is a fake on this machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from attestors.gcp import GCPAttestor
from signer.configuration import OperatorAttestor
from signer.testing.world import WorldCluster
from tests.e2e.clouds import a_kubelet_turns_ready, joins_renews_and_serves, node_program, open_harness
from tests.integration.fixtures import Harness
from tests.integration.gcp import test_virtual_machines as attacks
from tests.integration.gcp.virtual_machine import PROJECT, PROJECT_NUMBER, VirtualMachine
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.control_plane import ControlPlane
from tests.support.fake_google import FakeGoogle, Service
from tests.support.node_program import NodeProgram

pytestmark = [pytest.mark.real, pytest.mark.slow]

# pytest runs them again here, with the fixtures of this module.
victim, attacker = attacks.victim, attacks.attacker
TestHonest, TestCopies = attacks.TestHonest, attacks.TestCopies
TestForgeries, TestInstances = attacks.TestForgeries, attacks.TestInstances


@pytest.fixture(scope="module")
def running_google() -> Iterator[FakeGoogle]:
    with FakeGoogle() as running:
        yield running


@pytest.fixture
def google(running_google: FakeGoogle) -> Iterator[FakeGoogle]:
    yield running_google
    for service in Service:
        running_google.mend(service)


@pytest.fixture(scope="module")
def running(
    real_control_plane: ControlPlane, running_google: FakeGoogle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Harness]:
    settings = {
        "projects": {PROJECT: PROJECT_NUMBER},
        "checkInstance": True,
        "credentialsFile": running_google.write_account_key(tmp_path_factory.mktemp("credentials")),
        "computeEndpoint": running_google.compute_url,
    }
    attestor = GCPAttestor(running_google.pem_certificates_url)
    with open_harness(real_control_plane, attestor, OperatorAttestor(settings=settings)) as opened:
        yield opened


@pytest.fixture(scope="module")
def cluster(running: Harness) -> WorldCluster:
    return running.make_cluster("cloud")


@pytest.fixture(scope="module")
def other_cluster(running: Harness) -> Iterator[WorldCluster]:
    """On a control plane of its own: it has another CA."""
    try:
        with ControlPlane() as control_plane:
            control_plane.seed_kubeadm()
            yield running.make_cluster("other", namespace="elsewhere", api=control_plane)
            control_plane.check_running()
    except MissingPart as missing:
        skip_or_fail(missing)


def program_of(machine: VirtualMachine, folder: Path) -> NodeProgram:
    return node_program(machine.cluster, machine.node, folder, {"metadata-endpoint": machine.metadata})


def test_the_instance_joins_renews_and_serves(
    real_control_plane: ControlPlane, victim: VirtualMachine, tmp_path: Path
) -> None:
    instance = victim.instance
    names = [instance.name, instance.full_hostname]
    program = program_of(victim, tmp_path / "node")
    joins_renews_and_serves(real_control_plane, program, names, ip_address(instance.addresses[0]))


def test_a_kubelet_registers_and_turns_ready(
    real_control_plane: ControlPlane, victim: VirtualMachine, tmp_path: Path
) -> None:
    a_kubelet_turns_ready(real_control_plane, program_of(victim, tmp_path / "node"))
