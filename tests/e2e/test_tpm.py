"""A machine with a TPM joins on the real kube-apiserver, through the node's program and a software TPM.

Ends as for every attestor: a real kubelet registers its Node and turns Ready.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION
from signer.configuration import Configuration, OperatorAttestor
from signer.testing.nodes import SimulatedNode
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController, WorldCluster
from tests.support.binaries import MissingPart, find_control_plane, skip_or_fail
from tests.support.cluster_api import cluster_api_crds
from tests.support.control_plane import ControlPlane
from tests.support.exec_kubeconfig import exec_kubeconfig
from tests.support.grants import as_service_account, restrict_in_workload_cluster
from tests.support.hollow_node import HollowNode
from tests.support.node_program import PROGRAM, V1BETA1, NodeProgram
from tests.support.raw_client import RawClient
from tests.support.software_tpm import SoftwareTPM, find_tpm_library

pytestmark = [pytest.mark.real, pytest.mark.slow]

RSA_CERTIFICATE = 0x01C00002
ADDRESSES = {"chip-1": "192.0.2.1", "chip-2": "192.0.2.2"}


@pytest.fixture(scope="module")
def chips() -> Iterator[tuple[SoftwareTPM, SoftwareTPM]]:
    """Two TPMs of one maker."""
    try:
        find_tpm_library()
        with SoftwareTPM() as first, SoftwareTPM(same_authority_as=first) as second:
            yield first, second
    except MissingPart as missing:
        skip_or_fail(missing)


@pytest.fixture(scope="module")
def cluster(
    real_control_plane: ControlPlane,
    chips: tuple[SoftwareTPM, SoftwareTPM],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[WorldCluster]:
    """Two Machines whose TPMs are known, and one that nobody said anything of."""
    folder = tmp_path_factory.mktemp("authorities")
    for name, content in (("roots", chips[0].root_certificate), ("intermediates", chips[0].issuer_certificate)):
        (folder / name).mkdir()
        (folder / name / "swtpm.pem").write_bytes(content)
    settings = {
        "endorsementRootsFolder": str(folder / "roots"),
        "endorsementIntermediatesFolder": str(folder / "intermediates"),
    }
    configuration = Configuration(
        namespace=CONTROLLER_NAMESPACE, attestors={"tpm": OperatorAttestor(settings=settings)}
    )
    real_control_plane.seed_kubeadm()
    with ManagementCluster(real_control_plane, capi_crds=cluster_api_crds()) as management:
        cluster = management.add_cluster("tpm", real_control_plane, namespace="tpm")
        for machine in ("chip-1", "chip-2", "unknown"):
            addresses = [("Hostname", machine), ("InternalIP", ADDRESSES.get(machine, "192.0.2.9"))]
            cluster.add_machine(machine, provider_id=provider_id(machine), addresses=addresses)
        for machine, chip in zip(("chip-1", "chip-2"), chips, strict=True):
            annotations = {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: fingerprint(chip)}
            cluster.patch_machine(machine, {"metadata": {"annotations": annotations}})
        restrict_in_workload_cluster(cluster, real_control_plane)
        cluster.authorize("tpm")
        with RunningController(as_service_account(real_control_plane, "tpm"), configuration):
            yield cluster
        cluster.remove()


def provider_id(machine: str) -> str:
    return f"metal://{machine}"


def fingerprint(chip: SoftwareTPM) -> str:
    """What an inventory of hardware has of a TPM: here, from the certificate that its maker gave it."""
    certificate = x509.load_der_x509_certificate(chip.endorsement_certificate(RSA_CERTIFICATE))
    info = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(info).hexdigest()}"


def program_of(
    cluster: WorldCluster, machine: str, chip: SoftwareTPM, folder: Path, timeout: float = 20.0
) -> NodeProgram:
    """The node's program on that machine, with a bootstrap token."""
    settings = {"tcti": chip.tcti, "provider-id": provider_id(machine)}
    node = SimulatedNode(machine, provider_id(machine), cluster.ca_cert_hash, "tpm", settings)
    program = NodeProgram(folder / machine, node, timeout=timeout)
    program.supply_bootstrap(cluster)
    return program


def test_the_machine_joins_renews_and_serves(
    cluster: WorldCluster,
    real_control_plane: ControlPlane,
    chips: tuple[SoftwareTPM, SoftwareTPM],
    tmp_path: Path,
) -> None:
    program = program_of(cluster, "chip-2", chips[1], tmp_path)
    joined = program.credential()
    assert joined.certificate().subject.rfc4514_string() == "CN=system:node:chip-2,O=system:nodes"
    assert "challenges this node" in joined.log
    served = program.run("request", "--serving-dns-name", "chip-2", "--serving-ip-address", ADDRESSES["chip-2"])
    assert served.exit_code == 0, served.log
    serving = x509.load_pem_x509_certificate(program.serving_pair.read_bytes())
    names = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["chip-2"]

    age, left = timedelta(minutes=81), timedelta(minutes=19)
    certificate, key = real_control_plane.ca.issue_client("system:node:chip-2", ["system:nodes"], left, age)
    program.client_pair.write_bytes(certificate + key)
    renewed = program.renewed()
    assert renewed.certificate().serial_number not in (
        joined.certificate().serial_number,
        x509.load_pem_x509_certificate(certificate).serial_number,
    )
    assert "challenges this node" in renewed.log


def test_another_chip_is_not_the_machine(
    cluster: WorldCluster, chips: tuple[SoftwareTPM, SoftwareTPM], tmp_path: Path
) -> None:
    ran = program_of(cluster, "chip-1", chips[1], tmp_path).credential()
    assert (ran.exit_code, ran.output) == (7, "")
    assert "EndorsementKeyMismatch" in ran.log


def test_a_machine_whose_chip_nobody_knows_waits(
    cluster: WorldCluster, chips: tuple[SoftwareTPM, SoftwareTPM], tmp_path: Path
) -> None:
    program = program_of(cluster, "unknown", chips[1], tmp_path, timeout=3.0)
    assert program.credential().exit_code == 3


def test_a_kubelet_registers_and_turns_ready(
    cluster: WorldCluster,
    real_control_plane: ControlPlane,
    chips: tuple[SoftwareTPM, SoftwareTPM],
    tmp_path: Path,
) -> None:
    try:
        kubemark = find_control_plane().kubemark()
    except MissingPart as missing:
        skip_or_fail(missing)
    program = program_of(cluster, "chip-1", chips[0], tmp_path)
    arguments = ["credential", "--config", str(program.configuration)]
    kubeconfig = exec_kubeconfig(
        real_control_plane.server, real_control_plane.ca_certificate_pem, PROGRAM, arguments, {}, api_version=V1BETA1
    )
    with (
        RawClient(real_control_plane.connection()) as administrator,
        HollowNode("chip-1", kubeconfig, binary=kubemark) as kubelet,
    ):
        kubelet.wait_ready(administrator)
        kubelet.remove_from(administrator)
