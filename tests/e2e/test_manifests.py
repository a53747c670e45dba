"""What is in ``deploy/`` is taken by the real kube-apiserver, through the real kubectl: tried first, then applied."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import yaml

from signer.testing.world import CONTROLLER_NAMESPACE
from tests.deploy.clusterctl import process
from tests.deploy.packages import COMPONENTS, DEPLOY
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.control_plane import ControlPlane
from tests.support.helm import find_helm, render_chart
from tests.support.kubectl import run_kubectl
from tests.support.processes import wait_until
from tests.support.yaml_documents import safe_load_all

pytestmark = [pytest.mark.real, pytest.mark.slow]

EVERYTHING = {
    "replicas": 4,
    "commonLabels": {"example.com/owner": "platform"},
    "podDisruptionBudget": {"minAvailable": "50%"},
    "podSecurityContext": {"fsGroupChangePolicy": "OnRootMismatch"},
    "hostAliases": [{"ip": "192.0.2.7", "hostnames": ["api.example.com"]}],
    "extraVolumes": [{"name": "roots", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "roots", "mountPath": "/roots"}],
    "rbac": {
        "inventoryNamespaces": ["default"],
        "infrastructureStatus": True,
        "infrastructureMachines": {"enabled": True},
        "bareMetalHosts": True,
        "byoHosts": True,
    },
    "auditLog": {"enabled": True},
    "watch": {"filter": "blue"},
    "rotation": {"enabled": True},
}


def kubectl(plane: ControlPlane, arguments: Sequence[str], manifests: str = "") -> str:
    ended = run_kubectl(plane.kubeconfig(), arguments, standard_input=manifests)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def rendered(plane: ControlPlane) -> str:
    """The chart for the version of that API server, as helm asks it."""
    major, minor = plane.binaries.kubernetes()
    return render_chart({"createNamespace": True, **EVERYTHING}, kube_version=f"{major}.{minor}.0")


def number_of_objects(text: str) -> int:
    return sum(one is not None for one in safe_load_all(text))


@pytest.fixture(scope="module")
def applied(real_control_plane: ControlPlane) -> ControlPlane:
    """The chart's objects."""
    try:
        find_helm()
    except MissingPart as missing:
        skip_or_fail(missing)
    namespace = render_chart({"createNamespace": True}, templates=["namespace.yaml"])
    kubectl(real_control_plane, ["apply", "-f", "-"], namespace)
    chart = rendered(real_control_plane)
    tried = kubectl(real_control_plane, ["apply", "--dry-run=server", "-f", "-"], chart)
    assert tried.count("(server dry run)") == number_of_objects(chart)
    kubectl(real_control_plane, ["apply", "-f", "-"], chart)
    return real_control_plane


def test_the_chart_applied_again_changes_nothing(applied: ControlPlane) -> None:
    chart = rendered(applied)
    assert kubectl(applied, ["diff", "-f", "-"], chart) == ""


@pytest.mark.parametrize(
    "package", ["kustomize/base", "kustomize/example", "clusterctl", "rbac/management.yaml", "rbac/rotation.yaml"]
)
def test_a_package_is_accepted(applied: ControlPlane, package: str) -> None:
    """Validation by kubectl is off: it refuses rules in CEL where the API server has no notion of them."""
    match package:
        case "clusterctl":
            objects = process(COMPONENTS.read_text(encoding="utf-8"), {})
            manifests = yaml.safe_dump_all(objects)
        case "rbac/management.yaml" | "rbac/rotation.yaml":
            manifests = (DEPLOY / package).read_text(encoding="utf-8")
        case _:
            manifests = kubectl(applied, ["kustomize", str(DEPLOY / package)])
    tried = kubectl(applied, ["apply", "--dry-run=server", "--validate=false", "-f", "-"], manifests)
    assert tried.count("(server dry run)") == number_of_objects(manifests)


def test_the_policies_are_accepted(applied: ControlPlane) -> None:
    trial = "apiVersion: v1\nkind: Namespace\nmetadata: {name: trial}\n"
    kubectl(applied, ["apply", "-f", "-"], trial)
    tried = kubectl(applied, ["apply", "--dry-run=server", "-f", str(DEPLOY / "policies")])
    assert tried.count("(server dry run)") == len(list((DEPLOY / "policies").glob("*.yaml")))


def test_kubectl_shows_the_deployment(applied: ControlPlane) -> None:
    listed = kubectl(applied, ["get", "deployment", "--namespace", CONTROLLER_NAMESPACE, "--output", "wide"])
    assert "node-attestation-controller" in listed
    assert "manager" in listed


@pytest.mark.parametrize(
    ("role", "may_write"), [("node-attestation-view", False), ("node-attestation-policy-editor", True)]
)
def test_the_roles_for_people_allow_what_they_say(applied: ControlPlane, role: str, may_write: bool) -> None:
    user = f"user-of-{role}"
    kubectl(applied, ["create", "rolebinding", user, "--namespace", "default", "--clusterrole", role, "--user", user])

    def may(verb: str, resource: str, *more: str) -> bool:
        arguments = ["auth", "can-i", verb, resource, "--namespace", "default", "--as", user, *more]
        return run_kubectl(applied.kubeconfig(), arguments).stdout.strip() == "yes"

    policies = "nodeattestationpolicies.attestation.cluster.x-k8s.io"
    wait_until(lambda: may("list", policies), f"{user} has the role")
    assert {may(verb, policies) for verb in ("create", "update", "patch", "delete")} == {may_write}
    assert may("list", "attestednodes.attestation.cluster.x-k8s.io") is not may_write
    assert not may("patch", policies, "--subresource", "status")
    assert not may("get", "secrets")
