"""A new user on a real kube-apiserver: every command of ``docs/first-cluster.md``, in its order.

The controller runs as its Deployment says, beside the API server; the image, which another test builds, is compared by
its name. Machines start between the commands, where the page says so: the node's program, with a software TPM. The test
is Cluster API: it makes the machine of `kubeadm init`, and replaces it when it is told to.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS, MACHINES_V1BETA2, Resource
from signer.testing.nodes import SimulatedNode
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, WorldCluster
from tests.documents.markdown import ROOT, Block, blocks
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.cluster_api import cluster_api_crds
from tests.support.control_plane import ControlPlane
from tests.support.deployed import DeployedController
from tests.support.helm import find_helm
from tests.support.kubectl import find_kubectl
from tests.support.node_program import NodeProgram, Ran
from tests.support.processes import free_port
from tests.support.software_tpm import SoftwareTPM, find_tpm_library
from tests.support.yaml_documents import safe_load

pytestmark = [pytest.mark.real, pytest.mark.slow]

PAGE: Final = ROOT / "docs/first-cluster.md"
RSA_CERTIFICATE: Final = 0x01C00002
DENIED: Final = 7
"""Exit code of ``kubelet-authenticator``."""
THERE_IS_SOMETHING_TO_DO: Final = 3
"""Exit code of ``preflight``."""
FIRST: Final = "production-first"
SECOND: Final = "production-second"
"""The control plane's machines."""
MACHINES: Final = ("worker-1", "worker-2", FIRST, SECOND)
CONTROL_PLANES: Final = Resource("controlplane.cluster.x-k8s.io", "v1beta2", "kubeadmcontrolplanes", namespaced=True)
NODES: Final = Resource("", "v1", "nodes", namespaced=False)
KUBEADM_CONTROL_PLANES: Final = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: kubeadmcontrolplanes.controlplane.cluster.x-k8s.io
spec:
  group: controlplane.cluster.x-k8s.io
  names: {kind: KubeadmControlPlane, plural: kubeadmcontrolplanes, singular: kubeadmcontrolplane}
  scope: Namespaced
  versions:
    - name: v1beta2
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                replicas: {type: integer}
                rollout: {type: object, properties: {after: {type: string, format: date-time}}}
"""
"""The part of Cluster API's definition that this page uses."""
SECONDS: Final = 90.0


@dataclass
class Reader:
    """Who follows the page: a shell in an empty folder, and eyes."""

    folder: Path
    environment: Mapping[str, str]
    words: dict[str, str] = field(default_factory=dict)
    """What stands in the page for what only the reader knows."""
    unread: list[Block] = field(default_factory=lambda: blocks(PAGE))

    def next(self, *beginnings: str, exit_codes: Mapping[str, int] | None = None) -> str:
        """Run the commands of the next block, which begin with these words; returns all that they print."""
        block = self.unread.pop(0)
        assert block.language == "console", block
        commands = block.text.splitlines()
        assert [command.startswith(words) for command, words in zip(commands, beginnings, strict=True)] == [
            True for _ in commands
        ], (block, commands)
        return "".join(self._run(command, (exit_codes or {}).get(command.split()[1], 0)) for command in commands)

    def copy(self, name: str) -> str:
        """Write the next block, of YAML, into a file of that name."""
        block = self.unread.pop(0)
        assert block.language == "yaml", block
        (self.folder / name).write_text(block.text)
        return block.text

    def skip(self, text: str) -> None:
        """The next block is done otherwise."""
        assert self.unread.pop(0).text.strip() == text

    def provide_image(self) -> str:
        """The next block builds and pushes an image; returns its name."""
        build, push = (shlex.split(command) for command in self.unread.pop(0).text.splitlines())
        assert build == ["podman", "build", "--tag", push[-1], "."], "as tests/e2e/test_container_image.py builds it"
        assert push[:2] == ["podman", "push"]
        return push[-1]

    def _run(self, command: str, exit_code: int) -> str:
        for word, meant in self.words.items():
            command = command.replace(word, meant)
        ended = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=dict(self.environment),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        said = f"$ {command}\n{ended.stdout}{ended.stderr}"
        assert ended.returncode == exit_code, said
        return said


@dataclass(frozen=True)
class Scene:
    """The management cluster, a Cluster with a control plane and workers, their TPMs, and the reader."""

    plane: ControlPlane
    cluster: WorldCluster
    chips: Mapping[str, SoftwareTPM]
    reader: Reader
    folder: Path

    def add_machine(self, name: str) -> None:
        """Cluster API and its provider have made the Machine."""
        address = f"192.0.2.{MACHINES.index(name) + 1}"
        addresses = [("Hostname", name), ("InternalIP", address)]
        self.cluster.add_machine(name, provider_id=provider_id(name), addresses=addresses)

    def add_first_control_plane(self) -> None:
        """The machine of `kubeadm init`: its node is there, and its kubelet's certificate is by kubeadm.

        The control plane is complete by Cluster API's own definition, too: where that was there before, the API server
        goes by it for a moment.
        """
        self.plane.install_crd(safe_load(KUBEADM_CONTROL_PLANES))
        infrastructure = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Test", "name": self.cluster.name}
        control_plane = {
            "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2",
            "kind": "KubeadmControlPlane",
            "metadata": {"name": self.cluster.name, "namespace": self.cluster.namespace},
            "spec": {
                "replicas": 1,
                "version": "v1.36.0",
                "machineTemplate": {"spec": {"infrastructureRef": infrastructure}},
            },
        }
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": FIRST},
            "spec": {"providerID": provider_id(FIRST)},
        }
        self.cluster.management.client.create(CONTROL_PLANES.collection(self.cluster.namespace), control_plane)
        self.cluster.client().create(NODES.collection(), node)
        self.add_machine(FIRST)

    def is_told_to_replace_the_control_plane(self) -> bool:
        """Whether a KubeadmControlPlane controller would replace the machines that are older than now."""
        path = CONTROL_PLANES.object(self.cluster.name, self.cluster.namespace)
        rollout = self.cluster.management.client.get(path)["spec"].get("rollout", {})
        return "after" in rollout and datetime.fromisoformat(rollout["after"]) <= datetime.now(UTC)

    def delete_first_control_plane(self) -> None:
        """Cluster API has drained it and deleted its Machine and Node."""
        self.cluster.client().delete(NODES.object(FIRST))
        self.cluster.management.client.delete(MACHINES_V1BETA2.object(FIRST, self.cluster.namespace))

    def machine(self, name: str) -> NodeProgram:
        """The node's program on that machine, which has just been given a bootstrap token."""
        identifier = provider_id(name)
        node = SimulatedNode(
            name,
            identifier,
            self.cluster.ca_cert_hash,
            "tpm",
            {"tcti": self.chips[name].tcti, "provider-id": identifier},
        )
        program = NodeProgram(self.folder / name, node, timeout=40.0)
        program.supply_bootstrap(self.cluster)
        return program

    def denied_request(self) -> str:
        """The name of the CSR that was denied."""
        found = [
            item["metadata"]["name"]
            for item in self.cluster.client().items(CERTIFICATE_SIGNING_REQUESTS.collection())
            if any(
                condition["reason"] == "EndorsementKeyMismatch" for condition in item["status"].get("conditions", ())
            )
        ]
        assert len(found) == 1, found
        return str(found[0])


def provider_id(machine: str) -> str:
    return f"metal://{machine}"


def fingerprint(chip: SoftwareTPM) -> str:
    certificate = x509.load_der_x509_certificate(chip.endorsement_certificate(RSA_CERTIFICATE))
    info = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(info).hexdigest()}"


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """Cluster API and a Cluster, and nothing of ours."""
    try:
        find_tpm_library()
        programs = (find_kubectl(), find_helm(), Path(sys.executable).with_name("node-attestation-controller"))
    except MissingPart as missing:
        skip_or_fail(missing)
    with ExitStack() as stack:
        plane = stack.enter_context(ControlPlane())
        plane.seed_kubeadm()
        worker_1 = stack.enter_context(SoftwareTPM())
        worker_2 = stack.enter_context(SoftwareTPM(same_authority_as=worker_1))
        second = stack.enter_context(SoftwareTPM(same_authority_as=worker_1))
        management = stack.enter_context(ManagementCluster(plane, capi_crds=cluster_api_crds(), without_ours=True))
        cluster = management.add_cluster("production", plane)
        reader = Reader(tmp_path / "reader", _environment(tmp_path, plane, programs))
        _furnish(reader.folder, worker_1)
        reader.words = {
            "FINGERPRINT-OF-WORKER-1": fingerprint(worker_1),
            "FINGERPRINT-OF-ANOTHER": fingerprint(worker_1),
            "FINGERPRINT-OF-WORKER-2": fingerprint(worker_2),
            "FINGERPRINT-OF-NEW-MACHINE": fingerprint(second),
            "NEW-MACHINE": SECOND,
            "NOW": f"{datetime.now(UTC):%FT%TZ}",
        }
        chips = {"worker-1": worker_1, "worker-2": worker_2, SECOND: second}
        scene = Scene(plane, cluster, chips, reader, tmp_path)
        scene.add_first_control_plane()
        scene.add_machine("worker-1")
        yield scene


def _environment(folder: Path, plane: ControlPlane, programs: tuple[Path, ...]) -> dict[str, str]:
    """The reader's: these programs, the administrator's kubeconfig, and no other configuration of this machine."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(plane.kubeconfig())
    (folder / "bin").mkdir()
    for program in programs:
        (folder / "bin" / program.name).symlink_to(program)
    path = f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    return {"PATH": path, "HOME": str(folder), "KUBECONFIG": str(kubeconfig)}


def _furnish(folder: Path, chip: SoftwareTPM) -> None:
    """The reader's folder: the checkout's ``deploy``, and the CAs of the maker of the TPMs."""
    folder.mkdir()
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    for name, content in (("roots", chip.root_certificate), ("intermediates", chip.issuer_certificate)):
        (folder / name).mkdir()
        (folder / name / "maker.pem").write_bytes(content)


def test_a_new_user_gets_from_nothing_to_enforce_and_mends_a_refused_node(scene: Scene) -> None:
    reader = scene.reader
    reader.skip("make demo")  # `.ci/run` runs it

    image = reader.provide_image()
    values = safe_load(reader.copy("values.yaml"))
    ports = {"health": {"port": free_port()}, "diagnostics": {"port": free_port(), "insecure": True}}
    (reader.folder / "values.yaml").write_text(yaml.safe_dump({**values, **ports}))  # beside other tests' controllers
    said = reader.next("kubectl create namespace", *["kubectl create configmap"] * 2, "helm install")
    assert "STATUS: deployed" in said

    controller = DeployedController(scene.plane, CONTROLLER_NAMESPACE, "node-attestation-controller", scene.folder)
    assert controller.pod.container["image"] == image
    with controller:
        said = reader.next("kubectl annotate", "kubectl apply")
        assert "production created" in said
        reader.next("node-attestation-controller workload-kubeconfig")
        assert scene.machine("worker-1").credential().exit_code == 0
        said = reader.next("kubectl get nodeattestationpolicies", "kubectl get attestednodes")
        assert "production" in said
        assert "worker-1" in said

        said = reader.next(
            "node-attestation-controller preflight",
            "node-attestation-controller status",
            exit_codes={"preflight": THERE_IS_SOMETHING_TO_DO},
        )
        assert "default/production" in said
        assert FIRST in said
        _replace_the_first_control_plane(scene)

        said = reader.next("kubectl patch", "kubectl wait")
        assert "condition met" in said
        _mend_a_refused_node(scene)

        reader.next("kubectl patch")
    assert not reader.unread


def _replace_the_first_control_plane(scene: Scene) -> None:
    reader = scene.reader
    assert not scene.is_told_to_replace_the_control_plane()
    said = reader.next("kubectl patch kubeadmcontrolplane", "kubectl get machines")
    assert FIRST in said
    assert scene.is_told_to_replace_the_control_plane()
    scene.add_machine(SECOND)
    reader.next("kubectl annotate")
    assert scene.machine(SECOND).credential().exit_code == 0
    scene.delete_first_control_plane()
    assert FIRST not in reader.next("node-attestation-controller preflight")


def _mend_a_refused_node(scene: Scene) -> None:
    reader = scene.reader
    scene.add_machine("worker-2")
    reader.next("kubectl annotate")
    worker_2 = scene.machine("worker-2")
    refused = worker_2.credential()
    assert (refused.exit_code, refused.output) == (DENIED, "")
    request = scene.denied_request()
    said = reader.next("kubectl describe machine")
    assert "EndorsementKeyMismatch" in said
    assert f"explain {request} --cluster default/production" in said

    # Where the attestor's settings are: the page says in the Pod, whose files are the reader's here.
    settings = {
        f"endorsement{name.capitalize()}Folder": str(reader.folder / name) for name in ("roots", "intermediates")
    }
    (reader.folder / "config.yaml").write_text(yaml.safe_dump({"attestors": {"tpm": {"settings": settings}}}))
    reader.words["explain CSR"] = f"explain {request} --config config.yaml"
    said = reader.next("node-attestation-controller explain", exit_codes={"explain": 4})
    assert "EndorsementKeyMismatch" in said
    assert "if the fingerprint is wrong" in " ".join(said.split())

    reader.next("kubectl annotate")
    reader.skip("kubelet-authenticator request --now")
    mended: Ran = worker_2.run("request", "--now")
    assert mended.exit_code == 0, mended.log
    assert "worker-2" in reader.next("kubectl get attestednodes")
