"""``docs/quickstart-kind.md``: its commands in their order, with the real kubectl, controller and node program.

The embedded API stands in for kind, the test for Cluster API and its Docker provider: it makes the Machines, and runs
on each "node" what the bootstrap data of ``deploy/kind/workers.yaml`` would run there.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from signer.kube.resources import ATTESTED_NODES
from signer.model.record_object import record_spec
from signer.testing.api import EmbeddedAPI
from signer.testing.fixtures import MakeWorkloadCluster, StartController, embedded_api
from signer.testing.nodes import SimulatedNode
from signer.testing.world import ManagementCluster, WorldCluster
from tests.deploy.test_cluster_api import crd_files, differences
from tests.documents.command_runs import RunBy, handling_of
from tests.documents.markdown import ROOT, blocks
from tests.documents.test_blocks import commands
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.kubectl import find_kubectl, run_kubectl
from tests.support.node_program import NodeProgram, Ran
from tests.support.processes import wait_until
from tests.support.yaml_documents import safe_load_all
from tests.unit.signer.builders import record as attested_node

PAGE: Final = ROOT / "docs/quickstart-kind.md"
WORKERS: Final = ROOT / "deploy/kind/workers.yaml"
CLUSTER: Final = "quickstart"
CONTROL_PLANE: Final = "quickstart-control-plane"
FIRST: Final = "quickstart-attested-1"
SECOND: Final = "quickstart-attested-2"
TRIED: Final = RunBy("tests/documents/test_quickstart.py::test_the_quick_start")
READ: Final = RunBy("tests/documents/test_quickstart.py::test_what_reads_is_understood_by_kubectl")
OWN: Final = RunBy("tests/documents/test_quickstart.py::test_the_nodes_own_commands")
SHOWN: Final = [block.text for block in blocks(PAGE) if block.language == "text"]
"""What the page shows of tables."""


def handled(handling: RunBy) -> list[list[str]]:
    """The commands that a test of this module runs."""
    return [command for block, command in commands() if handling_of(block.document, command) == handling]


def workers() -> dict[str, dict[str, Any]]:
    """The objects of the file, by kind."""
    return {one["kind"]: one for one in safe_load_all(WORKERS.read_text(encoding="utf-8"))}


def configuration_on(host_name: str, folder: Path) -> dict[str, Any]:
    """The node program's configuration, as the bootstrap data leaves it on a machine of that name."""
    spec = workers()["KubeadmConfigTemplate"]["spec"]["template"]["spec"]
    (file,) = spec["files"]
    place = folder / Path(file["path"]).name
    place.write_text(file["content"], encoding="utf-8")
    fill_in, reload = spec["preKubeadmCommands"]
    assert reload == "systemctl daemon-reload"
    script = f"hostname() {{ echo {shlex.quote(host_name)}; }}\n{fill_in.replace(file['path'], str(place))}"
    subprocess.run(["bash", "-euc", script], check=True, timeout=10)
    configuration: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    return configuration


@pytest.fixture
def cluster(make_workload_cluster: MakeWorkloadCluster, attestation_controller: StartController) -> WorldCluster:
    """The page's Cluster, and the controller with the flags that the chart gives it."""
    try:
        find_kubectl()
    except MissingPart as missing:
        skip_or_fail(missing)
    cluster = make_workload_cluster(CLUSTER)
    add_control_plane(cluster)
    attestation_controller(insecure_enabled=True, insecure_namespaces=frozenset(["default"]))
    return cluster


def add_control_plane(cluster: WorldCluster) -> None:
    """The machine of `kubeadm init`, which every such cluster has: nobody attested its node."""
    identifier = f"docker:////{CONTROL_PLANE}"
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": CONTROL_PLANE},
        "spec": {"providerID": identifier},
    }
    embedded_api(cluster).create(node)
    cluster.add_machine(CONTROL_PLANE, provider_id=identifier, addresses=[("Hostname", CONTROL_PLANE)])


@pytest.fixture
def join(cluster: WorldCluster, tmp_path: Path) -> Callable[[str], Ran]:
    """Makes a Machine as the Docker provider does, and runs the node's program on it."""

    def join(name: str) -> Ran:
        cluster.add_machine(name, provider_id=f"docker:////{name}", addresses=[("Hostname", name)])
        folder = tmp_path / name
        folder.mkdir()
        configuration = configuration_on(name, folder)
        assert configuration["nodeName"] == name
        settings = configuration["settings"]
        node = SimulatedNode(name, settings["provider-id"], cluster.ca_cert_hash, configuration["provider"], settings)
        program = NodeProgram(folder, node)
        program.supply_bootstrap(cluster)
        return program.credential()

    return join


class Page:
    """Runs the page's commands one behind the other."""

    def __init__(self, management: EmbeddedAPI, workload: EmbeddedAPI, folder: Path) -> None:
        self._left = iter(handled(TRIED))
        self._management = management
        self._workload = workload
        self._folder = folder

    def next(self, beginning: str, *, exit_code: int = 0) -> str:
        """Run the next command, which begins with these words, and return what it printed."""
        command = next(self._left)
        assert command[: len(beginning.split())] == beginning.split(), command
        if command[0] == "kubectl":
            return self._kubectl(command[1:])
        assert command[0] == "node-attestation-controller"
        kubeconfig = self._folder / "management.kubeconfig"
        kubeconfig.write_text(self._management.kubeconfig(), encoding="utf-8")
        program = str(Path(sys.executable).with_name(command[0]))
        done = subprocess.run(
            [program, *command[1:], "--kubeconfig", str(kubeconfig)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == exit_code, done.stderr
        return done.stdout

    def _kubectl(self, arguments: list[str]) -> str:
        api = self._management
        if "--kubeconfig" in arguments:
            place = arguments.index("--kubeconfig")
            assert arguments[place + 1] == "quickstart.kubeconfig"
            arguments, api = [*arguments[:place], *arguments[place + 2 :]], self._workload
        # The embedded API publishes no OpenAPI to validate by; files are named from the project's root.
        arguments = [str(ROOT / one) if one.startswith("deploy/") else one for one in arguments]
        validate = ["--validate=false"] if arguments[0] == "apply" else []
        done = run_kubectl(api.kubeconfig(), [*arguments, *validate])
        assert done.returncode == 0, done.stderr
        return done.stdout

    def is_at_its_end(self) -> bool:
        """Whether every command was run."""
        return next(self._left, None) is None


@pytest.mark.slow
def test_the_quick_start(
    cluster: WorldCluster, management_cluster: ManagementCluster, join: Callable[[str], Ran], tmp_path: Path
) -> None:
    management = embedded_api(management_cluster)
    page = Page(management, embedded_api(cluster), tmp_path)

    page.next("kubectl apply -f deploy/kind/policy.yaml")
    wait_until(lambda: ready(management), "the policy is ready")
    assert columns(page.next("kubectl get nodeattestationpolicies")) == columns(SHOWN[0])

    assert join(FIRST).certificate().subject.rfc4514_string() == f"CN=system:node:{FIRST},O=system:nodes"
    machines = page.next("kubectl get machines")
    assert FIRST in machines
    assert CONTROL_PLANE in machines
    shown = page.next("kubectl get attestednodes")
    assert columns(shown) == columns(SHOWN[1])
    assert re.search(rf"{CLUSTER}\.{FIRST} +{FIRST} +{FIRST} +insecure", shown)
    assert "Approved,Issued" in page.next("kubectl get csr")

    page.next("kubectl patch nodeattestationpolicy")
    wait_until(lambda: spec_of(management)["authorizedAttestors"] == [{"name": "tpm"}], "the policy has changed")
    refused = join(SECOND)
    assert refused.exit_code == 7
    assert "AttestorNotAuthorized" in refused.log
    assert "Denied" in page.next("kubectl get csr")
    events = page.next("kubectl get events")
    assert columns(events) == columns(SHOWN[2])
    said = "NodeAttestationPolicy default/quickstart does not authorize attestor insecure"
    assert re.search(rf"machine/{SECOND} +{said}", events)
    assert said in SHOWN[2]

    page.next("kubectl apply -f deploy/kind/policy.yaml")
    wait_until(lambda: spec_of(management)["authorizedAttestors"] == [{"name": "insecure"}], "it is put back")

    said = page.next("node-attestation-controller preflight quickstart", exit_code=3)
    assert FIRST in said
    assert CONTROL_PLANE in said
    page.next("kubectl delete cluster quickstart")
    assert page.is_at_its_end()


def columns(table: str) -> list[str]:
    return table.splitlines()[0].split()


def spec_of(management: EmbeddedAPI) -> dict[str, Any]:
    spec: dict[str, Any] = management.get("nodeattestationpolicies", CLUSTER, "default")["spec"]
    return spec


def ready(management: EmbeddedAPI) -> bool:
    status = management.get("nodeattestationpolicies", CLUSTER, "default").get("status") or {}
    return any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or ())


@pytest.mark.slow
def test_what_reads_is_understood_by_kubectl(cluster: WorldCluster, management_cluster: ManagementCluster) -> None:
    """Commands of the other pages that only look: with objects of the names in them."""
    management = embedded_api(management_cluster)
    cluster.authorize("insecure")
    for name in ("production", "worker-1", "production-md-0-x7k2p"):
        cluster.add_machine(name, provider_id=f"test:///{name}")
    policy = management.get("nodeattestationpolicies", CLUSTER, "default")
    management.create({**policy, "metadata": {"name": "production", "namespace": "default"}})
    metadata = {"name": "production.worker-1", "namespace": "default"}
    record = {"apiVersion": ATTESTED_NODES.api_version, "kind": "AttestedNode", "metadata": metadata}
    management.create({**record, "spec": {**record_spec(attested_node()), "seal": "v1.x"}})
    workload = embedded_api(cluster)
    node = SimulatedNode(FIRST, f"docker:////{FIRST}", cluster.ca_cert_hash, "insecure", {})
    workload.create(node.client_request("node-1-client"))
    every = handled(READ)
    assert len(every) > 8
    for _, *arguments in every:
        api = management
        if "--kubeconfig" in arguments:
            place = arguments.index("--kubeconfig")
            assert arguments[place + 1] == "workload.kubeconfig"
            del arguments[place : place + 2]
            api = workload
        done = run_kubectl(api.kubeconfig(), arguments)
        assert done.returncode == 0, (arguments, done.stderr)


@pytest.mark.slow
def test_the_nodes_own_commands(cluster: WorldCluster, join: Callable[[str], Ran], tmp_path: Path) -> None:
    """On a node that has joined."""
    cluster.authorize("insecure")
    assert join(FIRST).exit_code == 0
    folder = tmp_path / FIRST
    node = SimulatedNode(
        FIRST, f"docker:////{FIRST}", cluster.ca_cert_hash, "insecure", {"provider-id": f"docker:////{FIRST}"}
    )
    every = handled(OWN)
    assert len(every) == 3
    for _, command, *options in every:
        ran = NodeProgram(folder, node).run(command, *options)
        assert ran.exit_code == 0, (command, ran.log)
        assert ran.output


def test_the_bootstrap_data_is_cluster_apis() -> None:
    """Cluster API's own definition takes the template as it is; of the other two kinds there is none at hand."""
    template = workers()["KubeadmConfigTemplate"]
    with EmbeddedAPI() as api:
        api.install_crds(crd_files())
        assert differences(template, api.apply(template)) == []


def test_the_workers_belong_together() -> None:
    every = workers()
    deployment = every["MachineDeployment"]["spec"]
    machine = deployment["template"]["spec"]
    for reference in (machine["bootstrap"]["configRef"], machine["infrastructureRef"]):
        named = every[reference["kind"]]
        assert named["metadata"]["name"] == reference["name"]
        assert named["apiVersion"].partition("/")[0] == reference["apiGroup"]
    assert deployment["clusterName"] == machine["clusterName"] == CLUSTER
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]
    image = every["DevMachineTemplate"]["spec"]["template"]["spec"]["backend"]["docker"]["customImage"]
    assert image.endswith(f":{machine['version']}")
    built = [command for block, command in commands() if block.document == PAGE and command[:2] == ["docker", "build"]]
    assert image in [command[command.index("--tag") + 1] for command in built]


def test_the_template_is_that_of_deploy_node() -> None:
    """With the flag that makes a kubelet use the plugin; the units come with the image."""
    spec = workers()["KubeadmConfigTemplate"]["spec"]["template"]["spec"]
    arguments = spec["joinConfiguration"]["nodeRegistration"]["kubeletExtraArgs"]
    assert {"name": "rotate-certificates", "value": "false"} in arguments
    image = (ROOT / "deploy/kind/worker.Containerfile").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (?P<sources>.+) /\S+$", image, re.MULTILINE)
    sources = [source for line in copied for source in line.split()]
    assert all((ROOT / source).exists() for source in sources)
    assert {Path(source).name for source in sources} >= {
        "20-kubelet-authenticator.conf",
        "kubelet-authenticator.service",
    }
    (from_image,) = re.findall(r"^ARG NODE_IMAGE=kindest/node:(\S+)$", image, re.MULTILINE)
    assert from_image == workers()["MachineDeployment"]["spec"]["template"]["spec"]["version"]
