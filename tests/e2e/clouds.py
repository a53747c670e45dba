"""What the end-to-end tests of clouds' attestors share: a harness, the node's program, and what it must achieve."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from attestors.contract import Attestor
from signer.configuration import Configuration, OperatorAttestor, operator_settings
from signer.controller.run import ControllerOptions
from signer.controller.telemetry import recorder
from signer.testing.nodes import SimulatedNode
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController, WorldCluster
from tests.integration.fixtures import Harness
from tests.support.attestors import RegistryWith
from tests.support.binaries import MissingPart, find_control_plane, skip_or_fail
from tests.support.cluster_api import cluster_api_crds
from tests.support.control_plane import ControlPlane
from tests.support.exec_kubeconfig import exec_kubeconfig
from tests.support.grants import as_service_account, restrict_in_workload_cluster
from tests.support.hollow_node import HollowNode
from tests.support.node_program import PROGRAM, V1BETA1, NodeProgram
from tests.support.raw_client import RawClient
from tests.support.remembered_audit import RememberedAudit, assert_all_replayed


@contextlib.contextmanager
def open_harness(control_plane: ControlPlane, attestor: Attestor, operator: OperatorAttestor) -> Iterator[Harness]:
    """A harness on a real control plane, which is management cluster, too; its controller has this attestor.

    Its clusters stand on the API server that ``make_cluster`` is given as ``api``.
    """
    provider = attestor.description.provider
    configuration = Configuration(namespace=CONTROLLER_NAMESPACE, attestors={provider: operator})
    audit = RememberedAudit()
    options = ControllerOptions(registry=RegistryWith(attestor), audit_log=audit)
    made: list[WorldCluster] = []

    def make_cluster(name: str = "cloud", *, namespace: str = "default", **options: Any) -> WorldCluster:
        workload: ControlPlane = options.get("api", control_plane)
        made.append(management.add_cluster(name, workload, namespace=namespace))
        as_service_account(control_plane, namespace)
        restrict_in_workload_cluster(made[-1], workload)
        made[-1].authorize(provider)
        return made[-1]

    def start(**_: Any) -> RunningController:
        raise NotImplementedError("one controller runs already")

    control_plane.seed_kubeadm()
    with (
        pytest.MonkeyPatch.context() as patch,
        ManagementCluster(control_plane, capi_crds=cluster_api_crds()) as management,
    ):
        patch.setattr(recorder, "BURST", 10_000)
        with RunningController(as_service_account(control_plane), configuration, options):
            yield Harness(management, make_cluster, start)
            taken = assert_all_replayed(audit.lines, options.registry, partial(operator_settings, {provider: operator}))
            assert not [what for what in taken if "settings" in what or "fails with" in what], taken
            for cluster in made:
                cluster.remove()


def node_program(
    cluster: WorldCluster, node: SimulatedNode, folder: Path, settings: Mapping[str, str], timeout: float = 20.0
) -> NodeProgram:
    """The node's own program there, with a bootstrap token."""
    program = NodeProgram(folder, node.but(settings=settings), timeout=timeout)
    program.supply_bootstrap(cluster)
    return program


def joins_renews_and_serves(
    control_plane: ControlPlane,
    program: NodeProgram,
    dns_names: Sequence[str],
    address: IPv4Address | IPv6Address,
) -> None:
    """The whole life of a node's certificates, through its own program."""
    name = program.node.node_name
    joined = program.credential()
    assert joined.certificate().subject.rfc4514_string() == f"CN=system:node:{name},O=system:nodes"

    wanted = [part for dns_name in dns_names for part in ("--serving-dns-name", dns_name)]
    served = program.run("request", *wanted, "--serving-ip-address", str(address))
    assert served.exit_code == 0, served.log
    serving = x509.load_pem_x509_certificate(program.serving_pair.read_bytes())
    names = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == set(dns_names)
    assert names.get_values_for_type(x509.IPAddress) == [address]

    age, left = timedelta(minutes=81), timedelta(minutes=19)
    certificate, key = control_plane.ca.issue_client(f"system:node:{name}", ["system:nodes"], left, age)
    program.client_pair.write_bytes(certificate + key)
    renewed = program.renewed().certificate()
    before = (joined.certificate(), x509.load_pem_x509_certificate(certificate))
    assert renewed.serial_number not in {one.serial_number for one in before}


def a_kubelet_turns_ready(control_plane: ControlPlane, program: NodeProgram) -> None:
    """A real kubelet with this program as its credential plugin registers its Node, and turns Ready."""
    try:
        kubemark = find_control_plane().kubemark()
    except MissingPart as missing:
        skip_or_fail(missing)
    arguments = ["credential", "--config", str(program.configuration)]
    kubeconfig = exec_kubeconfig(
        control_plane.server, control_plane.ca_certificate_pem, PROGRAM, arguments, {}, api_version=V1BETA1
    )
    with (
        RawClient(control_plane.connection()) as administrator,
        HollowNode(program.node.node_name, kubeconfig, binary=kubemark) as kubelet,
    ):
        kubelet.wait_ready(administrator)
        kubelet.remove_from(administrator)
