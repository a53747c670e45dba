"""The SSH authorities of a cluster, by a running controller; and the offline command over their Secrets."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from attestors.wire.ssh.certificate import CertificateKind, parse_certificate
from attestors.wire.ssh.encoding import from_base64
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.signatures import public_key_of
from signer.configuration import SSHPermission
from signer.kube.backoff import Backoff
from signer.kube.errors import NotFound
from signer.kube.resources import NODE_ATTESTATION_POLICIES, SECRETS
from signer.offline.main import main
from signer.ssh import host_coverage, reconciler
from signer.testing.world import WorldCluster
from tests.documents.grants import granted, requests_of, used
from tests.documents.markdown import ROOT
from tests.documents.test_grants import SERVICE_ACCOUNT, as_the_service_account
from tests.integration.fixtures import Harness, keyed_mac, node_of
from tests.integration.host_certificates import claim_of, request_with
from tests.integration.move import Move, copy_controller_key
from tests.support.openssh import private_key
from tests.support.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_waits")]

AVAILABLE: Final = "SSHAuthoritiesAvailable"
ALLOWED: Final = SSHPermission(frozenset({"default"}))


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "WAITING", Backoff(base_seconds=0.1, maximum_seconds=0.2, jitter=0.0))
    monkeypatch.setattr(reconciler, "VERIFIED_SECONDS", 0.3)


def secret(cluster: WorldCluster, suffix: str) -> dict[str, Any]:
    """Secret ``<cluster>-<suffix>``; empty without it."""
    try:
        return dict(cluster.management.client.get(SECRETS.object(f"{cluster.name}-{suffix}", cluster.namespace)))
    except NotFound:
        return {}


def status(cluster: WorldCluster) -> dict[str, Any]:
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    return cluster.management.client.get(path).get("status") or {}


def authorities(cluster: WorldCluster) -> dict[str, Any]:
    """What the status shows of them; the bundle's version comes and goes with its own service."""
    return {key: value for key, value in status(cluster)["ssh"].items() if key != "bundleVersion"}


def condition(cluster: WorldCluster) -> dict[str, Any]:
    """The condition; empty without it."""
    return next((one for one in status(cluster).get("conditions") or () if one["type"] == AVAILABLE), {})


def wait_for_reason(cluster: WorldCluster, reason: str) -> str:
    wait_until(lambda: condition(cluster).get("reason") == reason, f"its reason is {reason}")
    return str(condition(cluster)["message"])


def edit(cluster: WorldCluster, spec: dict[str, Any]) -> None:
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    cluster.management.client.patch(path, {"spec": spec})


def test_from_the_choice_to_its_end(harness: Harness, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = harness.cluster(policy={"ssh": {"rotationPeriod": "24h"}})
    controller = harness.run(ssh=ALLOWED)
    message = wait_for_reason(cluster, "Available")
    shown = authorities(cluster)
    [user], [host] = shown["userAuthorities"], shown["hostAuthorities"]
    assert user["fingerprint"] in message
    assert host["fingerprint"] in message
    metric, labels = "node_attestation_ssh_authorities_available", {"cluster": f"default/{cluster.name}"}
    wait_until(lambda: controller.options.metrics.registry.get_sample_value(metric, labels) == 1, "the gauge is 1")

    # The offline command over the manifest, as docs/ssh-authorities.md has it.
    manifest, key = tmp_path / "authority.yaml", tmp_path / "id.pub"
    manifest.write_text(json.dumps(secret(cluster, "ssh-user")), encoding="utf-8")
    key.write_text(f"{key_line(public_key_of(Ed25519PrivateKey.generate()))} me\n", encoding="utf-8")
    arguments = ["ssh-sign", "--authority", str(manifest), "--principal", "root", "--validity", "1h", str(key)]
    assert main(arguments) == 0
    certificate = parse_certificate(from_base64(capsys.readouterr().out.split()[1], "the certificate"))
    assert certificate.certificate.kind is CertificateKind.USER
    assert key_line(certificate.certificate.authority) == user["publicKey"]
    manifest.write_text(json.dumps(secret(cluster, "ssh-host")), encoding="utf-8")
    assert main(arguments) != 0
    assert "ssh-user" in capsys.readouterr().err

    before = secret(cluster, "ssh-host")
    path = SECRETS.object(f"{cluster.name}-ssh-host", cluster.namespace)
    cluster.management.client.patch(path, {"data": {"ssh-privatekey": None}})
    assert f"{cluster.name}-ssh-host" in wait_for_reason(cluster, "KeyMissing")
    wait_until(lambda: "ssh" not in status(cluster), "no authority is shown")
    ready = harness.wait_for_condition(cluster, "Ready", "True")
    assert ready["reason"] == "Ready", "it does not count"
    cluster.management.client.patch(path, {"data": before["data"]})
    wait_for_reason(cluster, "Available")
    assert authorities(cluster) == shown

    edit(cluster, {"ssh": None})
    assert "controller keeps" in wait_for_reason(cluster, "NotChosen")
    assert secret(cluster, "ssh-host")["data"] == before["data"]
    assert "ssh" not in status(cluster)


def test_a_cluster_that_only_attests_runs_none_of_it(harness: Harness) -> None:
    cluster = harness.cluster()
    harness.run(ssh=ALLOWED)
    harness.wait_for_condition(cluster, "Ready", "True")
    assert (condition(cluster), secret(cluster, "ssh-user"), secret(cluster, "ssh-host")) == ({}, {}, {})


def test_where_the_operator_does_not_allow_it(harness: Harness) -> None:
    cluster = harness.cluster(policy={"ssh": {}})
    harness.run(ssh=SSHPermission(frozenset({"elsewhere"})))
    assert "ssh.namespaces" in wait_for_reason(cluster, "NotAllowed")
    assert (secret(cluster, "ssh-user"), secret(cluster, "ssh-host")) == ({}, {})


def test_where_ssh_is_switched_off(harness: Harness) -> None:
    cluster = harness.cluster(policy={"ssh": {}})
    harness.run()
    assert "--ssh" in wait_for_reason(cluster, "NotAllowed")
    assert (secret(cluster, "ssh-user"), secret(cluster, "ssh-host")) == ({}, {})


@pytest.mark.parametrize("same_key", [True, False], ids=["same controller key", "another controller key"])
def test_moved_to_another_management_cluster(harness: Harness, target: Harness, same_key: bool) -> None:
    """Both controllers run throughout; the authorities stay what they were, or are not used."""
    cluster = harness.cluster(policy={"ssh": {}})
    harness.run(ssh=ALLOWED)
    wait_until(lambda: "bundleVersion" in status(cluster).get("ssh", {}), "the trust is published")
    before = status(cluster)["ssh"]
    if same_key:
        copy_controller_key(harness.management, target.management)
    target.run(ssh=ALLOWED)
    move = Move(cluster, target.management)
    move.pause()
    wait_for_reason(cluster, "Paused")
    move.create()
    move.delete()
    move.unpause()
    wait_for_reason(move.target, "Available" if same_key else "ForeignAuthority")
    if same_key:
        wait_until(lambda: status(move.target).get("ssh") == before, "authorities and trust are those of before")
    moved = secret(move.target, "ssh-user")
    assert base64.b64decode(moved["data"]["ssh-publickey"]).decode() == before["userAuthorities"][0]["publicKey"]


@pytest.mark.parametrize("granted_to_it", [True, False], ids=["with the role", "without it"])
def test_it_needs_exactly_the_role(harness: Harness, granted_to_it: bool) -> None:
    """The controller as its service account, with the files of ``deploy/rbac`` alone."""
    api = harness.api
    files = ["management.yaml", *(["ssh.yaml"] if granted_to_it else [])]
    for file in files:
        api.apply_yaml((ROOT / "deploy/rbac" / file).read_text(encoding="utf-8"))
    cluster = harness.cluster(policy={"ssh": {}})
    harness.start(ssh=ALLOWED, attestors=keyed_mac(), connection=as_the_service_account(api))
    if not granted_to_it:
        assert "secrets" in wait_for_reason(cluster, "NotKnown")
        assert secret(cluster, "ssh-host") == {}
        return
    wait_for_reason(cluster, "Available")
    used_by_it = used(requests_of(api, SERVICE_ACCOUNT))
    writes = {one for one in used_by_it if one[2] == "secrets" and one[1] != "get"}
    of_orders = {("attestation.cluster.x-k8s.io", "patch", "nodeattestationpolicies")}
    reads = {one for one in granted(ROOT / "deploy/rbac/ssh.yaml") if one[1] in ("get", "list")}
    """What ``test_ssh_ways_in.py`` uses."""
    assert granted(ROOT / "deploy/rbac/ssh.yaml") == writes | of_orders | reads


def test_nodes_without_a_host_certificate_are_listed(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """One joined before SSH, one never attested, and one has a certificate."""
    monkeypatch.setattr(host_coverage, "LOOK_SECONDS", 0.2)
    cluster = harness.cluster()
    harness.run(ssh=ALLOWED)
    harness.join(cluster, "joined-before")
    first = cluster.add_machine("init", provider_id="test:///init")
    cluster.set_machine_status(first, {"nodeRef": {"name": "init"}})
    cluster.add_machine("starting")
    edit(cluster, {"ssh": {}})
    wait_for_reason(cluster, "Available")

    def found() -> dict[str, Any]:
        conditions = status(cluster).get("conditions") or ()
        return next((one for one in conditions if one["type"] == "SSHHostCertificatesIssued"), {})

    wait_until(lambda: found().get("reason") == "NodesWithout", "the condition lists them")
    assert "2 of 2 nodes have no host certificate" in found()["message"]
    assert found()["message"].endswith("until they attest: init, joined-before")
    for name in ("joined-before", "init"):
        node = node_of(cluster, name)
        csr = request_with(node, f"ssh-{name}", claim_of(node, private_key("ed25519", len(name))))
        cluster.submit_with_token(csr)
        assert cluster.wait_until_decided(f"ssh-{name}").reason == "Attested"
    wait_until(lambda: found().get("reason") == "AllNodes", "both have one")
    assert found()["message"] == "each of 2 nodes has a host certificate"
    edit(cluster, {"ssh": None})
    wait_until(lambda: found() == {}, "the condition goes with SSH")
