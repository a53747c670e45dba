"""A cloud's libraries are imported only where that cloud is in use; each case runs in a process of its own."""

from __future__ import annotations

import base64
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from signer.testing.nodes import SimulatedNode
from signer.testing.world import WorldCluster
from tests.integration.fixtures import CONTROLLER_USER, MASTER_KEY, MASTERS, Harness
from tests.integration.gcp.virtual_machine import PROJECT, PROJECT_NUMBER
from tests.support.certificates import CertificateAuthority
from tests.support.fake_instance_metadata import FakeInstanceMetadata
from tests.support.node_program import NodeProgram, exec_info

pytestmark = pytest.mark.slow

AWS: Final = frozenset({"boto3", "botocore", "s3transfer"})
LIBRARIES: Final = AWS | {"google.auth", "requests"}
PLUGINS: Final = frozenset({"attestors.aws.controller", "attestors.gcp.controller"})
# Kubernetes' own client imports google-auth and requests into the controller, where they are installed.
OF_CONTROLLER: Final = AWS | PLUGINS
AWS_SETTINGS: Final[dict[str, Any]] = {"allowedRoles": ["arn:aws:iam::123456789012:role/nodes.example"]}
GCP_SETTINGS: Final[dict[str, Any]] = {"projects": {PROJECT: PROJECT_NUMBER}}

WITH_MODULES: Final = """
import sys
from {module} import main
code = main(sys.argv[1:]) if {with_arguments} else main()
with open({report!r}, "w") as file:
    file.write("\\n".join(sorted(sys.modules)))
sys.exit(code)
"""


def loaded(report: Path, of: frozenset[str]) -> frozenset[str]:
    """Which of these a process had imported when it ended."""
    return of & set(report.read_text().split())


@contextmanager
def controller(harness: Harness, folder: Path) -> Iterator[Path]:
    """``node-attestation-controller run``, whose operator knows both clouds; says at the end what it imported."""
    kubeconfig, config, report = (folder / name for name in ("kubeconfig", "config.yaml", "modules"))
    kubeconfig.write_text(harness.api.kubeconfig("management", CONTROLLER_USER, MASTERS))
    attestors = {
        "keyed-mac": {"settings": {"masterKey": base64.b64encode(MASTER_KEY).decode()}},
        "aws": {"settings": AWS_SETTINGS},
        "gcp": {"settings": GCP_SETTINGS},
    }
    config.write_text(yaml.safe_dump({"attestors": attestors}))
    code = WITH_MODULES.format(module="signer.entry", with_arguments=False, report=str(report))
    command = [sys.executable, "-c", code, "run", "--kubeconfig", str(kubeconfig), "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        try:
            yield report
        finally:
            running.send_signal(signal.SIGTERM)
            _, log = running.communicate(timeout=30)
    assert running.returncode == 0, log


def test_the_controller_without_a_cluster_of_a_cloud(harness: Harness, tmp_path: Path) -> None:
    """The operator's settings are checked at the start, which needs the attestors' own modules and no library."""
    cluster = harness.cluster()
    with controller(harness, tmp_path) as report:
        harness.join(cluster)
    assert loaded(report, OF_CONTROLLER) == PLUGINS


def test_a_cluster_of_aws_imports_no_library_before_the_first_call(harness: Harness, tmp_path: Path) -> None:
    cluster = harness.cluster(attestors=["aws"])
    with controller(harness, tmp_path) as report:
        harness.wait_for_condition(cluster, "Ready", "True")
    assert loaded(report, OF_CONTROLLER) == PLUGINS


def test_a_cluster_of_gcp_imports_no_aws_library(harness: Harness, tmp_path: Path) -> None:
    cluster = harness.cluster(attestors=["gcp"])
    with controller(harness, tmp_path) as report:
        harness.wait_for_condition(cluster, "Ready", "True")
    assert loaded(report, OF_CONTROLLER) == PLUGINS


def run(program: NodeProgram, report: Path) -> subprocess.CompletedProcess[str]:
    """``kubelet-authenticator credential``, as client-go runs it; says what it imported."""
    code = WITH_MODULES.format(module="authenticator.cli", with_arguments=True, report=str(report))
    command = [sys.executable, "-c", code, *program.command_line("credential")[1:]]
    environment = program.environment(exec_info())
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)


@pytest.mark.parametrize("provider", ["aws", "gcp"])
def test_the_node_with_a_stored_certificate(tmp_path: Path, provider: str) -> None:
    """The warm path: each start of the kubelet, each hour."""
    certificate, key = CertificateAuthority.like_cluster_api().issue_client("system:node:warm", ["system:nodes"])
    node = SimulatedNode("warm", f"{provider}:///warm", f"sha256:{'0' * 64}", provider)
    program = NodeProgram(tmp_path / "node", node)
    program.store.mkdir(mode=0o700)
    program.client_pair.write_bytes(certificate + key)
    program.client_pair.chmod(0o600)
    ran = run(program, tmp_path / "modules")
    assert ran.returncode == 0, ran.stderr
    assert "clientCertificateData" in ran.stdout
    assert loaded(tmp_path / "modules", LIBRARIES) == set()


def test_a_joining_node_imports_the_signing_code_and_no_client(workload_cluster: WorldCluster, tmp_path: Path) -> None:
    """It creates evidence without a decision. botocore signs; boto3 and Google's libraries are not needed."""
    with FakeInstanceMetadata() as metadata:
        node = SimulatedNode(
            "joining",
            "aws:///eu-west-1a/i-0123456789abcdef0",
            workload_cluster.ca_cert_hash,
            "aws",
            {"metadata-endpoint": metadata.url},
        )
        program = NodeProgram(tmp_path / "node", node, timeout=1.0)
        program.supply_bootstrap(workload_cluster)
        run(program, tmp_path / "modules")
    assert loaded(tmp_path / "modules", LIBRARIES) == {"botocore"}
