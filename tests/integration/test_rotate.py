"""``rotate`` against an embedded management API, with a controller that rotates and without one."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from signer.cli import main, rotate_order, rotate_watch
from signer.configuration import RotationSettings
from signer.kube.resources import (
    API_SERVICES,
    CERTIFICATE_AUTHORITY_ROTATIONS,
    CONFIG_MAPS,
    MUTATING_WEBHOOKS,
    NODE_ATTESTATION_POLICIES,
    SECRETS,
    VALIDATING_WEBHOOKS,
)
from signer.rotation.operations import OPERATION_ANNOTATION, SKIP_GATES_ANNOTATION
from signer.store.controller_key import SECRET_NAME
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from signer.testing.world import CONTROLLER_NAMESPACE, WorldCluster
from tests.integration.fixtures import Harness
from tests.integration.rotating import add_control_plane, serve, settle
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    """Its control plane is ready for a rotation."""
    cluster = harness.cluster(api={"seed_kubeadm": True})
    add_control_plane(cluster)
    return cluster


@pytest.fixture
def run(harness: Harness, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``rotate`` on a Cluster; returns its exit code and what it wrote to either stream."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(harness.api.kubeconfig())
    monkeypatch.setattr(rotate_watch, "LOOK_SECONDS", 0.1)

    def rotate(*arguments: str, cluster: str = "workload") -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["rotate", cluster, *arguments, "--kubeconfig", str(kubeconfig)])
        written = capsys.readouterr()
        return code, written.out, written.err

    return rotate


def found(run: Run, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, output, _ = run(*arguments, "--output", "json")
    return code, json.loads(output)


def rotating(harness: Harness) -> None:
    harness.run(rotation=RotationSettings())


def policy(cluster: WorldCluster) -> dict[str, Any]:
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    return cluster.management.client.get(path)


def results(report: dict[str, Any]) -> dict[str, str]:
    return {one["check"]: one["result"] for one in report["checks"]}


# Orders


def test_a_rotation_is_started_and_watched(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    rotating(harness)
    assert run("status")[0] == 0
    code, answer = found(run, "start", "--yes")
    assert (code, answer["answer"]) == (0, "Accepted")
    assert OPERATION_ANNOTATION not in policy(cluster)["metadata"].get("annotations", {})
    wait_until(lambda: found(run, "status")[1]["rotation"]["reported"], "the policy's status shows the rotation")
    code, state = found(run, "status")
    rotation = state["rotation"]
    assert (code, state["attention"], rotation["phase"]) == (0, "None", "Preparing")
    assert rotation["steps"][0]["step"] == "NewAuthority"
    assert len(rotation["authorities"]) == 1
    assert rotation["authorities"][0]["old"]["hash"] == cluster.ca_cert_hash
    code, text, _ = run("status")
    assert "Cluster default/workload: Preparing" in text
    assert "→" in text
    assert "Roll back  all of the rotation" in text


def test_an_order_in_the_wrong_phase_is_rejected_with_the_reason(
    harness: Harness, cluster: WorldCluster, run: Run
) -> None:
    rotating(harness)
    code, answer = found(run, "complete", "--yes")
    assert (code, answer["answer"]) == (4, "Rejected")
    assert "no rotation was started: a rotation is completed once it is Prepared" in answer["message"]
    assert "Rejected   complete-ca-rotation: no rotation was started" in run("status")[1]
    # The same rejection again changes no condition.
    assert run("complete", "--yes")[0] == 4
    assert found(run, "start", "--yes")[1]["answer"] == "Accepted"
    assert found(run, "start", "--yes")[1]["answer"] == "Rejected"


def test_a_start_that_preflight_refuses_is_rejected(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    rotating(harness)
    settle(cluster, up_to_date=1)
    code, _, _ = run("start", "--yes")
    assert code == 4
    code, report = found(run, "preflight")
    assert (code, report["readiness"]) == (3, "NotReady")
    assert [name for name, result in results(report).items() if result != "holds"] == [
        "all its machines exist, are ready and up to date"
    ]


def test_an_order_that_no_controller_takes(cluster: WorldCluster, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotate_order, "ANSWERED_WITHIN_SECONDS", 0.5)
    code, text, _ = run("start", "--yes", "--without-workers-rollout")
    assert code == 5
    assert "no controller has taken it: does it run, with --rotate-authorities" in text
    annotation = policy(cluster)["metadata"]["annotations"][OPERATION_ANNOTATION]
    assert annotation == "start-ca-rotation-without-workers-rollout"
    assert "Ordered    start-ca-rotation-without-workers-rollout" in run("status")[1]
    code, _, error = run("rollback", "--yes")
    assert code == 6
    assert "already holds start-ca-rotation-without-workers-rollout" in error
    assert policy(cluster)["metadata"]["annotations"][OPERATION_ANNOTATION] == annotation


def test_gates_are_ordered_with_the_operation(cluster: WorldCluster, run: Run) -> None:
    code, _, _ = run("complete", "--yes", "--no-wait", "--skip-gates", "trust-age, machines")
    assert code == 0
    assert policy(cluster)["metadata"]["annotations"] == {
        OPERATION_ANNOTATION: "complete-ca-rotation",
        SKIP_GATES_ANNOTATION: "machines,trust-age",
    }


def test_a_gate_that_is_none_is_wrong_use(cluster: WorldCluster, run: Run) -> None:
    code, _, error = run("complete", "--yes", "--skip-gates", "hope")
    assert code == 2
    assert "'hope' is no gate that can be skipped" in error


def test_without_a_terminal_nobody_is_asked(cluster: WorldCluster, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", _Typed("yes\n", terminal=False))
    code, _, error = run("start")
    assert code == 2
    assert "give --yes" in error
    assert OPERATION_ANNOTATION not in policy(cluster)["metadata"].get("annotations", {})


class _Typed:
    """Standard input on which somebody types."""

    def __init__(self, text: str, *, terminal: bool = True, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._text, self._terminal, self._meanwhile = text, terminal, meanwhile

    def isatty(self) -> bool:
        return self._terminal

    def readline(self) -> str:
        self._meanwhile()
        return self._text


def test_a_person_is_asked_and_may_decline(cluster: WorldCluster, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", _Typed("\n"))
    code, _, error = run("complete", "--skip-gates", "overlap")
    assert code == 6
    asked = " ".join(error.split())
    assert "Every certificate and kubeconfig of the old CA stops working" in asked
    assert "Skips overlap: " in asked
    assert "rolled back until the first API server presents the new CA" in asked
    assert OPERATION_ANNOTATION not in policy(cluster)["metadata"].get("annotations", {})
    monkeypatch.setattr("sys.stdin", _Typed("y\n"))
    code, text, _ = run("complete", "--no-wait")
    assert (code, text) == (0, "complete-ca-rotation is ordered; `rotate … status` shows it\n")


def test_another_change_of_the_policy_is_no_obstacle(
    cluster: WorldCluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, path = cluster.management.client, NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    change = {"metadata": {"annotations": {"example.org/note": "changed"}}}
    monkeypatch.setattr("sys.stdin", _Typed("y\n", meanwhile=lambda: client.patch(path, change)))
    assert run("start", "--no-wait")[0] == 0
    assert policy(cluster)["metadata"]["annotations"][OPERATION_ANNOTATION] == "start-ca-rotation"


def test_what_was_agreed_to_is_what_is_ordered(
    cluster: WorldCluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another order came while the person read."""
    client, path = cluster.management.client, NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    change = {"metadata": {"annotations": {OPERATION_ANNOTATION: "retry-ca-rotation"}}}
    monkeypatch.setattr("sys.stdin", _Typed("y\n", meanwhile=lambda: client.patch(path, change)))
    code, _, error = run("start", "--no-wait")
    assert code == 6
    assert "the rotation has gone on meanwhile" in error
    assert policy(cluster)["metadata"]["annotations"][OPERATION_ANNOTATION] == "retry-ca-rotation"


def test_a_cluster_that_does_not_exist(cluster: WorldCluster, run: Run) -> None:
    for arguments in (("status",), ("start", "--yes"), ("preflight",)):
        code, _, error = run(*arguments, cluster="workloads")
        assert code == 1
        assert "there is default/workload" in error


def test_a_cluster_without_policy(harness: Harness, run: Run) -> None:
    harness.cluster(attestors=())
    code, _, error = run("status")
    assert code == 1
    assert "has no NodeAttestationPolicy" in error


# Status


def test_watch_prints_a_line_for_each_change(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    """It ends where nothing is under way."""
    code, text, _ = run("status", "--watch")
    assert code == 0
    (line,) = text.splitlines()
    assert line.endswith("Z default/workload: no rotation")
    code, text, _ = run("status", "--watch", "--output", "json")
    assert json.loads(text)["rotation"] is None


def test_an_object_that_is_no_rotation(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    rotating(harness)
    assert run("start", "--yes")[0] == 0
    resource = CERTIFICATE_AUTHORITY_ROTATIONS
    path = resource.object(cluster.name, cluster.namespace)
    harness.management.client.patch(path, {"spec": {"seal": "v2.forged"}})
    wait_until(lambda: run("status")[0] == 3, "the controller says that the rotation does not count")
    assert found(run, "status")[1]["attention"] == "NeedsAttention"


def test_a_rotation_whose_controller_key_is_lost_is_confirmed(
    harness: Harness, cluster: WorldCluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotating(harness)
    assert run("start", "--yes")[0] == 0
    wait_until(lambda: found(run, "status")[1]["rotation"]["step"] == "PublishTrust", "there are two CAs")
    code, _, error = run("confirm", "--yes")
    assert (code, "has sealed the rotation" in error) == (1, True)
    code, _, error = run("confirm", "--yes", "--controller-namespace", "nowhere")
    assert (code, "does not exist: start the controller first" in error) == (1, True)
    key = SECRETS.object(SECRET_NAME, CONTROLLER_NAMESPACE)
    lost = {"data": {"current": base64.b64encode(bytes(32)).decode()}}
    harness.management.client.patch(key, lost)
    monkeypatch.setattr("sys.stdin", _Typed("n\n"))
    code, _, error = run("confirm")
    assert code == 6
    assert cluster.ca_cert_hash in error
    monkeypatch.setattr("sys.stdin", _Typed("y\n"))
    code, text, _ = run("confirm", "--output", "json")
    # The controller may have gone on by one step before it knew that the key is lost.
    assert json.loads(text)["step"] in ("PublishTrust", "ServersTrust")
    assert (code, len(json.loads(text)["sealedSecrets"])) == (0, 2)
    assert run("confirm", "--yes")[0] == 1


def test_a_viewer_who_may_not_read_the_rotation(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    rotating(harness)
    assert run("start", "--yes")[0] == 0
    wait_until(lambda: found(run, "status")[1]["rotation"]["reported"], "the policy's status shows the rotation")
    path = CERTIFICATE_AUTHORITY_ROTATIONS.object(cluster.name, cluster.namespace)
    harness.api.faults.inject(lambda request: request.method == "GET" and request.path == path, status=403, times=None)
    code, state = found(run, "status")
    assert (code, state["rotation"]["phase"]) == (0, "Preparing")
    assert state["rotation"]["authorities"][0]["old"]["hash"] == cluster.ca_cert_hash


# Preflight


def test_preflight_of_a_cluster_that_is_ready(cluster: WorldCluster, run: Run) -> None:
    code, report = found(run, "preflight")
    assert set(results(report).values()) == {"holds"}
    assert (code, report["readiness"], report["operator"]["result"]) == (0, "Ready", "notAsked")
    code, text, _ = run("preflight")
    assert code == 0
    assert "Every check holds" in text


def test_preflight_shows_the_whole_patch(harness: Harness, run: Run) -> None:
    cluster = harness.cluster(api={"seed_kubeadm": True})
    add_control_plane(cluster, ready=False)
    code, text, _ = run("preflight")
    assert code == 3
    (command,) = [line for line in text.splitlines() if line.startswith("kubectl patch kubeadmcontrolplanes")]
    assert "postKubeadmCommands" in command
    assert command.endswith("'")


def test_preflight_without_rights_to_secrets(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    def is_secret(request: Any) -> bool:
        return "/secrets" in request.path

    harness.api.faults.inject(is_secret, status=403, times=None)
    code, report = found(run, "preflight")
    assert (code, report["readiness"]) == (5, "NotKnown")
    unread = [one for one in report["checks"] if one["result"] == "notReadable"]
    assert [one["check"].split()[1] for one in unread] == [
        "workload-ca", "workload-etcd", "workload-proxy", "workload-sa"
    ]  # fmt: skip
    assert all(one["message"].startswith("not readable here: ") for one in unread)
    assert "cannot be read" in report["notSearched"]


def test_preflight_lists_who_holds_cas(cluster: WorldCluster, run: Run) -> None:
    seed_holders(cluster)
    code, report = found(run, "preflight")
    assert code == 0
    assert report["unread"] == {}
    holders = {f"{one['kind']} {one['namespace']}/{one['name']}": one["holdsPresentCA"] for one in report["holders"]}
    assert holders == {
        "APIService /v1beta1.metrics.k8s.io": False,
        "ConfigMap default/ci": True,
        "MutatingWebhookConfiguration /own": False,
        "Secret default/builder-token": True,
        "ValidatingWebhookConfiguration /copied": True,
    }
    text = run("preflight")[1]
    assert "  ValidatingWebhookConfiguration copied" in text.partition("Hold CAs of their own")[0]
    assert "  APIService v1beta1.metrics.k8s.io" in text.partition("Hold CAs of their own")[2]


def seed_holders(cluster: WorldCluster) -> None:
    own = new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256).certificate
    ca = cluster.api.ca_certificate_pem

    def encoded(pem: bytes) -> str:
        return base64.b64encode(pem).decode()

    client = cluster.client()
    for resource, kind, name, pem in (
        (MUTATING_WEBHOOKS, "MutatingWebhookConfiguration", "own", own),
        (VALIDATING_WEBHOOKS, "ValidatingWebhookConfiguration", "copied", ca),
    ):
        serve(cluster, resource, kind)
        webhooks = [{"name": "one.example.org", "clientConfig": {"caBundle": encoded(pem)}}]
        body = {"apiVersion": resource.api_version, "kind": kind, "metadata": {"name": name}, "webhooks": webhooks}
        client.create(resource.collection(), body)
    serve(cluster, API_SERVICES, "APIService")
    service = {"apiVersion": API_SERVICES.api_version, "kind": "APIService"}
    for name, spec in (("v1beta1.metrics.k8s.io", {"caBundle": encoded(own)}), ("v1.apps", {})):
        client.create(API_SERVICES.collection(), {**service, "metadata": {"name": name}, "spec": spec})
    for name, data in (("ci", f"clusters:\n- certificate-authority-data: {encoded(ca)}\n"), ("other", own.decode())):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"kubeconfig": data}}
        client.create(CONFIG_MAPS.collection("default"), body)
    token = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "builder-token", "annotations": {"kubernetes.io/service-account.name": "builder"}},
        "data": {"ca.crt": encoded(ca)},
    }
    client.create(SECRETS.collection("default"), token)
