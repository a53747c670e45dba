"""Each check before a rotation: what breaks it alone, and the controller rejects a start for the same reason."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from signer.cli import main
from signer.configuration import RotationSettings
from signer.kube.errors import NotFound
from signer.kube.resources import (
    CERTIFICATE_AUTHORITY_ROTATIONS,
    KUBEADM_CONTROL_PLANES_V1BETA2,
    MACHINES_V1BETA2,
    NODE_ATTESTATION_POLICIES,
)
from signer.model.cluster import CONTROL_PLANE_LABEL
from signer.rotation.operations import OPERATION_ANNOTATION
from signer.rotation.phases import SigningPairs
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness
from tests.integration.rotating import add_control_plane, settle
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow


def change_control_plane(cluster: WorldCluster, patch: dict[str, object]) -> None:
    path = KUBEADM_CONTROL_PLANES_V1BETA2.object(f"{cluster.name}-control-plane", cluster.namespace)
    cluster.management.client.patch(path, patch)
    settle(cluster, 3)


def a_bundle(cluster: WorldCluster) -> None:
    other = new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256).certificate
    cluster.put_secret("ca", {"tls.crt": cluster.api.ca_certificate_pem + other, "tls.key": cluster.api.ca_key_pem})


def no_key(cluster: WorldCluster) -> None:
    cluster.put_secret("ca", {"tls.crt": cluster.api.ca_certificate_pem})


def a_ca_of_etcd_that_ends(cluster: WorldCluster) -> None:
    begin = datetime.now(UTC) - timedelta(days=10)
    ends = new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256, now=begin, duration=timedelta(days=12))
    cluster.put_secret("etcd", ends.secret_data)


def another_kind(cluster: WorldCluster) -> None:
    reference = {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "TalosControlPlane", "name": "talos"}
    cluster.patch({"spec": {"controlPlaneRef": reference}})


def no_control_plane(cluster: WorldCluster) -> None:
    path = KUBEADM_CONTROL_PLANES_V1BETA2.object(f"{cluster.name}-control-plane", cluster.namespace)
    cluster.management.client.delete(path)


def a_machine_that_joins(cluster: WorldCluster) -> None:
    cluster.add_machine("control-plane-1")
    path = MACHINES_V1BETA2.object("control-plane-1", cluster.namespace)
    cluster.management.client.patch(path, {"metadata": {"labels": {CONTROL_PLANE_LABEL: ""}}})


def paused_control_plane(cluster: WorldCluster) -> None:
    change_control_plane(cluster, {"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}})


def an_old_kubernetes(cluster: WorldCluster) -> None:
    change_control_plane(cluster, {"spec": {"version": "v1.18.20"}})


def foreign_signer(cluster: WorldCluster) -> None:
    flags = [{"name": "cluster-signing-cert-file", "value": "/etc/other.crt"}]
    manager = {"controllerManager": {"extraArgs": flags}}
    change_control_plane(cluster, {"spec": {"kubeadmConfigSpec": {"clusterConfiguration": manager}}})


_CA = "Secret workload-ca holds one certificate or public key with its key, and does not end soon"
_TEMPLATE = "its machines read the trusted CAs from Secret workload-trust"
CASES: tuple[tuple[Callable[[WorldCluster], object], str, str], ...] = (
    (a_bundle, _CA, "holds 2 certificates: leave that of its key"),
    (no_key, _CA, "the CA is external"),
    (lambda cluster: cluster.delete_secret("ca"), _CA, "Secret workload-ca does not exist"),
    (a_ca_of_etcd_that_ends, _CA.replace("-ca", "-etcd"), "authority etcd ends at "),
    (another_kind, "a KubeadmControlPlane runs the control plane", "talosctl rotate-ca"),
    (no_control_plane, _TEMPLATE, "KubeadmControlPlane default/workload-control-plane does not exist"),
    (foreign_signer, _TEMPLATE, "cluster-signing-cert-file"),
    (an_old_kubernetes, "its Kubernetes reads the CAs of clients while it runs", "Kubernetes before 1.19"),
    (paused_control_plane, "it is neither paused nor being deleted", "is paused or being deleted"),
    (a_machine_that_joins, "every Machine of the control plane has joined", "have joined: control-plane-1"),
)


@pytest.mark.parametrize(("break_it", "title", "reason"), CASES, ids=[f"{one[1]}-{one[2]}"[:60] for one in CASES])
def test_one_check_does_not_hold(
    harness: Harness,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    break_it: Callable[[WorldCluster], object],
    title: str,
    reason: str,
) -> None:
    cluster = harness.cluster(api={"seed_kubeadm": True})
    add_control_plane(cluster)
    break_it(cluster)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(harness.api.kubeconfig())
    assert main(["rotate", "workload", "preflight", "--kubeconfig", str(kubeconfig)]) == 3
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if line.startswith(" ✗")] == [f" ✗ {title}"]
    assert reason in shown
    harness.run(rotation=RotationSettings())
    client, path = harness.management.client, NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    client.patch(path, {"metadata": {"annotations": {OPERATION_ANNOTATION: "start-ca-rotation"}}})

    def rejected() -> bool:
        conditions = client.get(path).get("status", {}).get("conditions", [])
        return any(one["type"] == "OperationRejected" and reason in one["message"] for one in conditions)

    wait_until(rejected, "the controller rejects the start for the same reason")


_SIGNING = "Secret workload-signing holds the pair of Secret workload-ca twice"


def put_signing(cluster: WorldCluster, client: Mapping[str, bytes], serving: Mapping[str, bytes]) -> None:
    """As an operator makes it, from Secrets with ``tls.crt`` and ``tls.key``."""
    pairs = {"client": client, "serving": serving}
    cluster.put_secret(
        "signing", {f"{name}.{end}": pair[f"tls.{end}"] for name, pair in pairs.items() for end in ("crt", "key")}
    )


def test_split_pairs_need_their_secret(harness: Harness, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A template with split pairs makes the rotation one with split pairs: nothing else chooses it."""
    cluster = harness.cluster(api={"seed_kubeadm": True})
    add_control_plane(cluster, pairs=SigningPairs.SPLIT)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(harness.api.kubeconfig())
    own = {"tls.crt": cluster.api.ca_certificate_pem, "tls.key": cluster.api.ca_key_pem}
    other = new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256).secret_data

    def failing() -> str:
        code = main(["rotate", "workload", "preflight", "--kubeconfig", str(kubeconfig)])
        shown = capsys.readouterr().out
        failed = [line for line in shown.splitlines() if line.startswith(" ✗")]
        assert (code, failed) in ((0, []), (3, [f" ✗ {_SIGNING}"]))
        return shown if failed else ""

    assert "Secret workload-signing does not exist" in failing()
    for client, serving in ((own, other), (other, own)):
        put_signing(cluster, client, serving)
        assert "holds another pair" in failing()
    put_signing(cluster, own, {**own, "tls.crt": own["tls.crt"] * 2})
    assert "cannot be used (serving.crt and serving.key" in failing()
    put_signing(cluster, own, own)
    assert failing() == ""
    harness.run(rotation=RotationSettings())
    client_, path = harness.management.client, NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    client_.patch(path, {"metadata": {"annotations": {OPERATION_ANNOTATION: "start-ca-rotation"}}})
    started = CERTIFICATE_AUTHORITY_ROTATIONS.object(cluster.name, cluster.namespace)

    def is_split() -> bool:
        with contextlib.suppress(NotFound):
            return bool(client_.get(started)["spec"]["signingPairs"] == "Split")
        return False

    wait_until(is_split, "the record says so")


def test_a_template_that_is_not_ready(harness: Harness, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A person's preflight prints the whole command; a condition has no room for it, and names the preflight."""
    cluster = harness.cluster(api={"seed_kubeadm": True})
    add_control_plane(cluster, ready=False)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(harness.api.kubeconfig())
    assert main(["rotate", "workload", "preflight", "--kubeconfig", str(kubeconfig)]) == 3
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if line.startswith(" ✗")] == [f" ✗ {_TEMPLATE}"]
    (command,) = (line for line in shown if line.startswith("kubectl patch"))
    assert len(command) > 1500
    assert command.endswith("'")
    harness.run(rotation=RotationSettings())
    client, path = harness.management.client, NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    client.patch(path, {"metadata": {"annotations": {OPERATION_ANNOTATION: "start-ca-rotation"}}})
    harness.wait_for_condition(cluster, "OperationRejected", "True")
    (rejected,) = (one for one in client.get(path)["status"]["conditions"] if one["type"] == "OperationRejected")
    assert rejected["message"] == (
        "start-ca-rotation: the control plane's template is not rotation-ready; "
        "`node-attestation-controller rotate default/workload preflight` shows what to do"
    )


def test_the_operator_decides_where_cas_are_rotated(harness: Harness) -> None:
    cluster = harness.cluster(api={"seed_kubeadm": True})
    add_control_plane(cluster)
    harness.run(rotation=RotationSettings(frozenset({"team-a"})))
    client, path = harness.management.client, NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    client.patch(path, {"metadata": {"annotations": {OPERATION_ANNOTATION: "start-ca-rotation"}}})
    harness.wait_for_condition(cluster, "OperationRejected", "True")
