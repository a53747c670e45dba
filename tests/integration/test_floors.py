"""A tenant writes the weakest policy that is valid, and the operator has a floor."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from signer.cli import main
from signer.configuration import OperatorAttestor
from signer.model.attestor_roles import AnyOf, RequiredAttestors
from signer.model.floors import Floor, Floors, MaximumDurations, NamespaceFloor
from signer.model.policy import ApprovalByOthers, Mode, NodeNameReuse, UntraceableTokens
from tests.integration.fixtures import Harness, certificate_of, keyed_mac, node_of, provider_id

pytestmark = pytest.mark.slow

WEAKEST = {
    "mode": "Observe",
    "certificates": {"clientDuration": "8784h"},
    "nodeNameReuse": "Immediate",
    "approvalByOthers": "Honor",
}
STRICT = Floor(
    Mode.ENFORCE,
    MaximumDurations(client=timedelta(hours=2)),
    NodeNameReuse.AFTER_EXPIRY,
    ApprovalByOthers.REFUSE,
    UntraceableTokens.ALLOW,
)
GRANT = "kubeadm:node-autoapprove-bootstrap"


def everywhere(floor: Floor) -> Floors:
    return Floors((NamespaceFloor(frozenset(), True, floor),))


def test_the_weakest_policy_is_raised_to_the_floor(
    harness: Harness, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the floor, the tenant keeps auto-approval and has certificates of a year."""
    cluster = harness.cluster(policy=WEAKEST)
    harness.run(floors=everywhere(STRICT))
    verdict = harness.join(cluster)
    certificate = certificate_of(verdict)
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc < timedelta(hours=3)
    shown = harness.wait_for_condition(cluster, "FloorsMet", "False")
    assert shown["reason"] == "BelowFloor"
    for part in (
        "spec.mode is Observe, in force is Enforce",
        "spec.certificates.clientDuration is 8784h, in force is 2h",
        "spec.nodeNameReuse is Immediate, in force is AfterExpiry",
        "spec.approvalByOthers is Honor, in force is Refuse",
    ):
        assert part in shown["message"]
    harness.wait_for_condition(cluster, "AutoApprovalRemoved", "True")
    harness.wait_for_condition(cluster, "Ready", "True")
    grants = cluster.client().items("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings")
    assert GRANT not in {grant["metadata"]["name"] for grant in grants}
    harness.assert_audited()
    assert_explained(harness, tmp_path, capsys)
    assert_in_status(harness, tmp_path, capsys)


def assert_explained(harness: Harness, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``explain`` shows the values in force, and where they come from."""
    arguments = ["explain", "join-workload-honest-1", "--cluster=default/workload", "--output=json"]
    main([*arguments, *files(harness, folder)])
    (policy,) = [one for one in json.loads(capsys.readouterr().out)["checks"] if one["name"] == "policy"]
    assert "mode Enforce, below the operator's floors: spec.mode is Observe, in force is Enforce" in policy["found"]


def assert_in_status(harness: Harness, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``status`` knows the floors from the condition alone, and the mode in force from the file."""
    kubeconfig, *config = files(harness, folder)
    for arguments, mode in (([kubeconfig], "Observe"), ([kubeconfig, *config], "Enforce")):
        main(["status", "--output=json", *arguments])
        (one,) = json.loads(capsys.readouterr().out)["clusters"]
        assert one["mode"] == mode
        assert one["belowFloors"] in one["notes"]
        assert "spec.mode is Observe, in force is Enforce" in one["belowFloors"]


def files(harness: Harness, folder: Path) -> list[str]:
    kubeconfig, config = folder / "kubeconfig", folder / "config.yaml"
    kubeconfig.write_text(harness.api.kubeconfig())
    settings = keyed_mac()["keyed-mac"].settings
    floor = {"namespaces": ["*"], "mode": "Enforce", "maximumDurations": {"client": "2h"}}
    config.write_text(json.dumps({"attestors": {"keyed-mac": {"settings": settings}}, "floors": [floor]}))
    return [f"--kubeconfig={kubeconfig}", f"--config={config}"]


def test_a_control_plane_needs_the_attestor_of_its_role(harness: Harness) -> None:
    """The policy authorizes both: evidence for a worker is not enough for a control plane."""
    cluster = harness.cluster()
    required = RequiredAttestors(control_plane=AnyOf(frozenset({"tpm"})))
    harness.run(attestors={**keyed_mac(), "tpm": OperatorAttestor()}, floors=everywhere(Floor(required=required)))
    harness.join(cluster, "worker")
    cluster.add_machine("plane", provider_id=provider_id("plane"))
    cluster.patch_machine("plane", {"metadata": {"labels": {"cluster.x-k8s.io/control-plane": ""}}})
    cluster.submit_with_token(node_of(cluster, "plane").client_request("weaker"))
    denied = cluster.wait_until_decided("weaker")
    assert (denied.condition, denied.reason) == ("Denied", "AttestorNotAuthorized")
    assert "accepts tpm for" in denied.message
    assert [one["spec"]["machineRef"]["name"] for one in harness.records(cluster)] == ["worker"]
    shown = harness.wait_for_condition(cluster, "Ready", "False")
    assert (shown["reason"], "tpm for control planes" in shown["message"]) == ("BelowFloor", True)
    harness.assert_audited()


def test_a_namespace_without_a_floor_has_no_condition(harness: Harness) -> None:
    cluster = harness.cluster(policy=WEAKEST)
    harness.run(floors=Floors((NamespaceFloor(frozenset({"elsewhere"}), False, STRICT),)))
    harness.wait_for_condition(cluster, "Ready", "True")
    policy = harness.management.client.items(
        f"/apis/attestation.cluster.x-k8s.io/v1alpha1/namespaces/{cluster.namespace}/nodeattestationpolicies"
    )[0]
    assert "FloorsMet" not in {one["type"] for one in policy["status"]["conditions"]}
