"""``status``, ``preflight`` and ``explain`` with a viewer's rights, and without the attestor's plugin.

They say what they do not know, and never that something is wrong that is not.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from attestors.registry import Registry
from attestors.wire.names import ENTRY_POINT_GROUP
from signer.cli import main
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.model.lease import DEFAULT_LEASE_NAME
from signer.store.controller_key import SECRET_NAME
from signer.testing.world import CONTROLLER_NAMESPACE, WorldCluster
from tests.integration.fixtures import Harness, node_of

pytestmark = pytest.mark.slow

VIEWER = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: viewer}
rules:
  - apiGroups: [attestation.cluster.x-k8s.io]
    resources: [nodeattestationpolicies, attestednodes, certificateauthorityrotations]
    verbs: [get, list, watch]
  - {apiGroups: [cluster.x-k8s.io], resources: [clusters, machines, machinepools], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: viewer}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: viewer}]
"""
KEY = f"Secret {CONTROLLER_NAMESPACE}/{SECRET_NAME}"
UNVERIFIED = (
    f"not readable here: {KEY}, so that the seals of AttestedNodes are not verified; which Machines are attested is "
    "not known"
)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(harness: Harness, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command as a viewer, or as the user of another kubeconfig; returns exit code, output and errors."""
    harness.api.apply_yaml(VIEWER)
    kubeconfig = tmp_path / "viewer"
    kubeconfig.write_text(harness.api.kubeconfig("management", "viewer", ()))

    def run(*arguments: str, administrator: bool = False) -> tuple[int, str, str]:
        if administrator:
            kubeconfig.write_text(harness.api.kubeconfig())
        capsys.readouterr()
        code = main([*arguments, "--kubeconfig", str(kubeconfig)])
        written = capsys.readouterr()
        assert "replace" not in written.out.lower() + written.err.lower()
        return code, written.out, written.err

    return run


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    """A healthy cluster with one attested Machine, and a request that waits."""
    cluster = harness.cluster(api={"seed_kubeadm": True})
    harness.run()
    harness.join(cluster, "worker-1")
    cluster.submit_with_token(node_of(cluster, "worker-2").client_request("waits"))
    harness.wait_for_condition(cluster, "Ready", "True")
    return cluster


@pytest.fixture
def without_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line of a person who has not installed the attestor."""
    installed = [one for one in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP) if one.name != "keyed-mac"]
    monkeypatch.setattr("attestors.registry._installed", lambda: tuple(installed))
    assert "keyed-mac" not in Registry().providers


def test_status(cluster: WorldCluster, run: Run) -> None:
    code, output, errors = run("status", "-o", "json")
    (one,) = json.loads(output)["clusters"]
    assert (code, errors, one["needs"]) == (0, "", [])
    assert one["ready"]["status"] == "True"
    assert one["notes"][1:] == [
        UNVERIFIED,
        "not readable here: the Secrets of its kubeconfig; its requests are not known",
        "not readable here: the Secrets of its CAs; when they expire is not known",
        f"not readable here: Lease {CONTROLLER_NAMESPACE}/{DEFAULT_LEASE_NAME}; whether a controller runs is not known",
    ]
    nothing = (one["attested"], one["pending"], one["certificateAuthorityNotAfter"], one["restrictedKubeconfig"])
    assert nothing == (None, None, None, None)
    _, text, _ = run("status")
    assert UNVERIFIED in text
    assert "no CA" not in text


def test_status_without_machines(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    harness.api.faults.inject("GET */machines", status=403, times=None)
    code, output, _ = run("status", "-o", "json")
    (one,) = json.loads(output)["clusters"]
    assert (code, one["needs"], one["machines"]) == (0, [], None)
    assert one["notes"][1].startswith(f"not readable here: machines; {KEY}")


def test_preflight(cluster: WorldCluster, run: Run) -> None:
    code, output, errors = run("preflight", "workload", "-o", "json")
    found = json.loads(output)
    assert (code, errors, found["ready"], found["machines"]) == (3, "", False, [])
    assert found["notKnown"] == [
        UNVERIFIED,
        "not readable here: the Secrets of the Cluster's kubeconfig; which grants auto-approve, and which Nodes have "
        "no Machine, is not known",
    ]
    assert found["steps"] == ["Run preflight as a user that may read the rest, or in the controller's Pod."]
    _, text, _ = run("preflight", "workload")
    assert UNVERIFIED in text
    assert "has no Machines" not in text
    assert "No ClusterRoleBinding" not in text


def test_preflight_without_the_controller_key_reads_the_workload_cluster(
    harness: Harness, cluster: WorldCluster, run: Run
) -> None:
    harness.api.faults.inject(f"GET */secrets/{SECRET_NAME}", status=403, times=None)
    code, output, _ = run("preflight", "workload", "-o", "json", administrator=True)
    found = json.loads(output)
    assert (code, found["notKnown"], found["unknownNodes"]) == (3, [UNVERIFIED], [])
    assert len(found["grants"]) >= 2


def test_explain(cluster: WorldCluster, run: Run, tmp_path: Path) -> None:
    """It never says that a request waits for the controller key, which only this user cannot read."""
    code, output, errors = run("explain", "waits", "--cluster", "default/workload")
    assert (code, output) == (1, "")
    assert errors.startswith("node-attestation-controller: not readable here: Cluster default/workload: Secret ")
    assert "Secret default/workload-kubeconfig-restricted cannot be read in the management cluster" in errors
    assert "or save the request with `kubectl get csr waits --output yaml > csr.yaml` and a kubeconfig of" in errors
    assert "kubectl get csr NAME --output yaml" in run("explain", "node/worker-1", "--cluster", "default/workload")[2]
    csr = tmp_path / "csr.yaml"
    csr.write_text(yaml.safe_dump(request(cluster)))
    code, output, errors = run("explain", str(csr), "--cluster", "default/workload")
    assert (code, output) == (1, "")
    assert f"not readable here: identityreservations; {KEY}." in errors
    assert "its decision is not known here" in errors


def request(cluster: WorldCluster) -> dict[str, Any]:
    return {
        "kind": "CertificateSigningRequest",
        **cluster.client().get(CERTIFICATE_SIGNING_REQUESTS.object("waits")),
    }


def test_explain_without_the_plugin(cluster: WorldCluster, run: Run, without_the_plugin: None) -> None:
    code, output, _ = run("explain", "waits", "--cluster", "default/workload", "-o", "json", administrator=True)
    found = json.loads(output)
    assert code == 6
    assert found["verdict"] == "not known"
    assert found["message"].endswith("is that of attestor keyed-mac, which is not installed here")
    assert "another signer" not in output


def test_status_and_preflight_without_the_plugin(cluster: WorldCluster, run: Run, without_the_plugin: None) -> None:
    code, output, _ = run("status", "-o", "json", administrator=True)
    (one,) = json.loads(output)["clusters"]
    assert (code, one["needs"], one["pending"]) == (0, [], 1)
    assert one["notes"][-1] == (
        "Machines attested by keyed-mac, which is not installed here: 1; whether they renew is not known, and they are "
        "not counted as attested"
    )
    code, output, _ = run("preflight", "workload", "-o", "json", administrator=True)
    found = json.loads(output)
    (machine,) = found["machines"]
    assert (code, machine["why"]) == (
        3,
        "was attested by keyed-mac, which is not installed here: whether it renews is not known",
    )
    assert found["steps"][0] == (
        "Run preflight where attestor keyed-mac is installed, as in the controller's Pod: whether 1 of the Machines "
        "renew is not known here."
    )
    assert not any("not attested" in step for step in found["steps"])
