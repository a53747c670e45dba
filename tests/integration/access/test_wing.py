"""The wing in a running controller: off by default, and from a grant to a bundle that revokes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from attestors.wire.ssh.certificate import parse_certificate_line
from signer.configuration import AccessPermission, CreatorVerification, SSHPermission
from signer.crds import access_definitions
from signer.kube.resources import ACCESS_GRANTS, CONFIG_MAPS
from signer.testing.fixtures import embedded_api
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness
from tests.support.access_objects import ALICE, USER_KEY
from tests.support.processes import wait_until
from tests.support.yaml_documents import safe_load

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_waits")]
SSH: Final = SSHPermission(frozenset({"default"}))
ACCESS: Final = AccessPermission(frozenset({"default"}), CreatorVerification.UNVERIFIED)


def grant(harness: Harness, cluster: WorldCluster, node: str) -> None:
    harness.api.create(
        {
            "apiVersion": ACCESS_GRANTS.api_version,
            "kind": "AccessGrant",
            "metadata": {"name": "repair", "namespace": "default"},
            "spec": {
                "clusterRef": {"name": cluster.name},
                "target": {"nodes": [node]},
                "sshPublicKey": USER_KEY,
                "createdBy": dict(ALICE),
            },
        }
    )


def found(harness: Harness) -> dict[str, Any]:
    return next(iter(harness.api.objects("accessgrants")), {})


def condition(harness: Harness) -> str:
    conditions = (found(harness).get("status") or {}).get("conditions") or []
    return next((one["reason"] for one in conditions if one["type"] == "Ready"), "")


def install(harness: Harness) -> None:
    for text in access_definitions():
        harness.api.install_crd(safe_load(text))
    rbac = "rbac.authorization.k8s.io"
    names = ["root", "container"]
    rule = {"apiGroups": [ACCESS_GRANTS.group], "resources": ["logins"], "resourceNames": names, "verbs": ["use"]}
    metadata = {"name": "logins", "namespace": "default"}
    role = {"apiGroup": rbac, "kind": "Role", "name": "logins"}
    subject = {"kind": "User", "apiGroup": rbac, "name": "alice"}
    for kind, rest in (("Role", {"rules": [rule]}), ("RoleBinding", {"roleRef": role, "subjects": [subject]})):
        harness.api.apply({"apiVersion": f"{rbac}/v1", "kind": kind, "metadata": metadata, **rest})


def test_from_a_grant_to_the_bundle_that_revokes_it(harness: Harness) -> None:
    install(harness)
    cluster = harness.cluster(policy={"ssh": {"access": {}}})
    controller = harness.run(ssh=SSH, access=ACCESS)
    harness.join(cluster, "worker-1")
    grant(harness, cluster, "worker-1")
    wait_until(lambda: condition(harness) == "CertificatesIssued", "certificates are issued", 60)
    status = found(harness)["status"]
    certificate = parse_certificate_line(status["certificates"][0]["certificate"]).certificate
    assert list(map(str, certificate.principals)) == ["root@worker-1"]
    assert status["knownHosts"]
    sample = controller.options.metrics.registry.get_sample_value
    labels = {"cluster": f"default/{cluster.name}"}
    assert sample("node_attestation_access_certificates_total", {**labels, "hop": "node"}) == 1
    wait_until(lambda: sample("node_attestation_access_grants", {**labels, "state": "Live"}) == 1, "the gauge is 1")
    harness.wait_for_event("CertificatesIssued", "repair", "AccessGrant")
    harness.api.delete("accessgrants", "repair", "default")
    wait_until(lambda: not found(harness), "the grant is gone", 60)
    trust = embedded_api(cluster).get("configmaps", "node-access-trust", "kube-system")
    assert trust, "the bundle had to be published before the finalizer went"
    listed = harness.management.client.get(CONFIG_MAPS.object(f"{cluster.name}-ssh-access-revocations", "default"))
    assert certificate.key_id in listed["data"]["revocations"]
    assert sample("node_attestation_access_ends_total", {**labels, "reason": "Deleted"}) == 1


def test_off_by_default_nothing_of_it_is_watched_or_served(harness: Harness) -> None:
    install(harness)
    cluster = harness.cluster(policy={"ssh": {"access": {}}})
    harness.run(ssh=SSH)
    harness.join(cluster, "worker-1")
    grant(harness, cluster, "worker-1")
    harness.join(cluster, "worker-2")
    assert "status" not in found(harness)
    assert not harness.api.requests.matching(f"* *{ACCESS_GRANTS.group}*") or all(
        one.user != "attestation-controller" for one in harness.api.requests.matching(f"* *{ACCESS_GRANTS.group}*")
    )


def test_run_knows_the_wing_by_one_module() -> None:
    text = (Path(__file__).parents[3] / "signer" / "controller" / "run.py").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if "import" in line and "access" in line]
    assert all("access_wing" in line or "workload_access" in line for line in lines), lines
