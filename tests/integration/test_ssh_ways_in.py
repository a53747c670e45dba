"""Other ways in than SSH certificates: by a running controller with its roles alone, and by the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from signer.cli import main
from signer.configuration import SSHPermission
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists
from signer.kube.resources import (
    CLUSTERS_V1BETA2,
    CUSTOM_RESOURCE_DEFINITIONS,
    KUBEADM_CONFIGS_V1BETA2,
    MACHINES_V1BETA2,
    NODE_ATTESTATION_POLICIES,
    Resource,
)
from signer.ssh.ways_in import watch
from signer.testing.world import ManagementCluster, WorldCluster
from tests.documents.grants import granted, requests_of, used
from tests.documents.markdown import ROOT
from tests.documents.test_grants import SERVICE_ACCOUNT, as_the_service_account
from tests.integration.explaining import READ_ONLY
from tests.integration.fixtures import Harness, keyed_mac
from tests.support.processes import wait_until
from tests.support.yaml_documents import safe_load_all

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_waits")]

INFRASTRUCTURE: Final = "infrastructure.cluster.x-k8s.io"
BOOTSTRAP: Final = "bootstrap.cluster.x-k8s.io"
DEPLOYMENTS: Final = Resource("cluster.x-k8s.io", "v1beta2", "machinedeployments", namespaced=True)
TEMPLATES: Final = Resource(BOOTSTRAP, "v1beta2", "kubeadmconfigtemplates", namespaced=True)
CONTROL_PLANES: Final = Resource("controlplane.cluster.x-k8s.io", "v1beta2", "kubeadmcontrolplanes", namespaced=True)
AWS_CLUSTERS, AWS_TEMPLATES, AWS_MACHINES = (
    Resource(INFRASTRUCTURE, "v1beta2", plural, namespaced=True)
    for plural in ("awsclusters", "awsmachinetemplates", "awsmachines")
)
KINDS: Final = {
    DEPLOYMENTS: "MachineDeployment",
    TEMPLATES: "KubeadmConfigTemplate",
    CONTROL_PLANES: "KubeadmControlPlane",
    AWS_CLUSTERS: "AWSCluster",
    AWS_TEMPLATES: "AWSMachineTemplate",
    AWS_MACHINES: "AWSMachine",
}
NO_KEY: Final = {"template": {"spec": {"sshKeyName": ""}}}
USER: Final = {"name": "capi", "sshAuthorizedKeys": ["ssh-ed25519 AAAA"]}
Set = Callable[[Resource, str, Any], None]


def serve(management: ManagementCluster, resource: Resource, kind: str) -> None:
    """Serve a kind whose objects have any spec."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything}}}
    name = f"{resource.plural}.{resource.group}"
    definition: dict[str, Any] = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": resource.plural, "singular": kind.lower()},
            "versions": [{"name": "v1beta2", "served": True, "storage": True, "schema": schema}],
        },
    }
    try:
        management.client.create(CUSTOM_RESOURCE_DEFINITIONS.collection(), definition)
    except AlreadyExists:
        versions = {"spec": {"versions": definition["spec"]["versions"]}}
        management.client.patch(CUSTOM_RESOURCE_DEFINITIONS.object(name), versions)
    management.client.wait_for(
        CUSTOM_RESOURCE_DEFINITIONS.collection(),
        name,
        lambda item: any(one["status"] == "True" for one in (item.get("status") or {}).get("conditions") or []),
    )


def reference(resource: Resource, name: str) -> JsonObject:
    return {"apiGroup": resource.group, "kind": KINDS[resource], "name": name}


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    """A Cluster on AWS with a control plane, a MachineDeployment and a Machine, whose launch keys are all closed."""
    cluster = harness.cluster("production", policy={"ssh": {}})
    for resource, kind in KINDS.items():
        serve(cluster.management, resource, kind)
    create(cluster, AWS_CLUSTERS, cluster.name, {"sshKeyName": "operators"})
    of_cluster = {"infrastructureRef": reference(AWS_CLUSTERS, cluster.name)}
    of_cluster["controlPlaneRef"] = reference(CONTROL_PLANES, "production-cp")
    cluster.management.client.patch(CLUSTERS_V1BETA2.object(cluster.name, cluster.namespace), {"spec": of_cluster})
    template = {"spec": {"infrastructureRef": reference(AWS_TEMPLATES, "production-cp")}}
    create(cluster, CONTROL_PLANES, "production-cp", {"kubeadmConfigSpec": {}, "machineTemplate": template})
    create(cluster, AWS_TEMPLATES, "production-cp", NO_KEY)
    create(cluster, AWS_TEMPLATES, "production-md", NO_KEY)
    create(cluster, TEMPLATES, "production-md", {"template": {"spec": {}}})
    spec = {"infrastructureRef": reference(AWS_TEMPLATES, "production-md")}
    spec["bootstrap"] = {"configRef": reference(TEMPLATES, "production-md")}
    create(cluster, DEPLOYMENTS, "production-md", {"template": {"spec": spec}})
    machine = cluster.add_machine("m1", provider_id="aws:///eu-west-1a/i-1")
    cluster.add_kubeadm_config("m1", "abcdef.0123456789abcdef", machine)
    create(cluster, AWS_MACHINES, "m1", {"sshKeyName": ""})
    bootstrap = {"configRef": {"apiGroup": BOOTSTRAP, "kind": "KubeadmConfig", "name": "m1"}}
    cluster.management.client.patch(
        MACHINES_V1BETA2.object("m1", cluster.namespace),
        {"spec": {"infrastructureRef": reference(AWS_MACHINES, "m1"), "bootstrap": bootstrap}},
    )
    return cluster


def create(cluster: WorldCluster, resource: Resource, name: str, spec: Any) -> None:
    labels = {"cluster.x-k8s.io/cluster-name": cluster.name}
    metadata = {"name": name, "namespace": cluster.namespace, "labels": labels}
    body = {"apiVersion": resource.api_version, "kind": KINDS[resource], "metadata": metadata, "spec": spec}
    cluster.management.client.create(resource.collection(cluster.namespace), body)


def change(cluster: WorldCluster, resource: Resource, name: str, spec: Any) -> None:
    cluster.management.client.patch(resource.object(name, cluster.namespace), {"spec": spec})


def condition(cluster: WorldCluster) -> dict[str, Any]:
    """Condition NoOtherWaysInDeclared; empty without it."""
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    conditions = (cluster.management.client.get(path).get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == "NoOtherWaysInDeclared"), {})


def wait_for(cluster: WorldCluster, status: str, text: str) -> None:
    def has_it() -> bool:
        found = condition(cluster)
        return found.get("status") == status and text in found["message"]

    wait_until(has_it, f"it is {status}, with {text!r}")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.3)
    monkeypatch.setattr(watch, "LEAST_SECONDS", 0.1)


def test_it_appears_names_the_template_and_goes_when_it_is_closed(harness: Harness, cluster: WorldCluster) -> None:
    """The controller as its service account, with the files of ``deploy/rbac`` alone: it uses each grant."""
    api = harness.api
    for file in ("management.yaml", "ssh.yaml"):
        api.apply_yaml((ROOT / "deploy/rbac" / file).read_text(encoding="utf-8"))
    harness.start(
        ssh=SSHPermission(frozenset({"default"})), attestors=keyed_mac(), connection=as_the_service_account(api)
    )
    wait_for(cluster, "True", "EC2 Instance Connect")

    change(cluster, KUBEADM_CONFIGS_V1BETA2, "m1", {"users": [USER], "preKubeadmCommands": ["systemctl start sshd"]})
    change(cluster, AWS_TEMPLATES, "production-md", {"template": {"spec": {"sshKeyName": None}}})
    wait_for(
        cluster,
        "False",
        "AWSMachineTemplate production-md: spec.template.spec.sshKeyName is absent, so it is the AWSCluster's EC2 key "
        "pair 'operators'",
    )
    message = condition(cluster)["message"]
    assert "KubeadmConfig m1: spec.users[0].sshAuthorizedKeys has keys of user 'capi'" in message
    assert "possible: KubeadmConfig m1: spec.preKubeadmCommands[0] mentions sshd" in message
    assert "AAAA" not in message
    change(cluster, KUBEADM_CONFIGS_V1BETA2, "m1", {"users": None, "preKubeadmCommands": ["systemctl mask sshd"]})
    change(cluster, AWS_CLUSTERS, cluster.name, {"sshKeyName": ""})
    wait_for(cluster, "True", "no object that was read")

    ready = harness.wait_for_condition(cluster, "Ready", "True")
    assert ready["reason"] == "Ready", "it does not count"
    read = {one for one in granted(ROOT / "deploy/rbac/ssh.yaml") if one[1] in ("get", "list")}
    assert read <= used(requests_of(api, SERVICE_ACCOUNT))
    change(cluster, NODE_ATTESTATION_POLICIES, cluster.name, {"ssh": None})
    wait_until(lambda: condition(cluster) == {}, "the condition goes with SSH")


def test_without_the_role_it_says_what_may_not_be_read(harness: Harness, cluster: WorldCluster) -> None:
    api = harness.api
    objects = safe_load_all((ROOT / "deploy/rbac/management.yaml").read_text(encoding="utf-8"))
    # A role of its own lets the controller read the names of the API servers there.
    without = [one for one in objects if one["metadata"]["name"] != "node-attestation-control-plane-names"]
    api.apply_yaml(yaml.safe_dump_all(without))
    harness.start(
        ssh=SSHPermission(frozenset({"default"})), attestors=keyed_mac(), connection=as_the_service_account(api)
    )
    wait_for(cluster, "Unknown", "KubeadmControlPlane production-cp: 403 Forbidden")


def test_the_command(
    harness: Harness, cluster: WorldCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(harness.api.kubeconfig("management", "administrator", ()))

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["node-access", "preflight", *arguments, "--kubeconfig", str(kubeconfig)])
        written = capsys.readouterr()
        return code, written.out, written.err

    assert run("production")[0] == 1, "it may read nothing"
    harness.api.apply_yaml(READ_ONLY.replace("reader", "administrator"))
    code, out, _ = run("production")
    assert code == 0, out
    assert "a stock sshd on the nodes" in out
    assert "No object that was read declares another way in." in out
    change(cluster, CONTROL_PLANES, "production-cp", {"kubeadmConfigSpec": {"users": [USER]}})
    change(cluster, AWS_TEMPLATES, "production-md", {"template": {"spec": {"sshKeyName": "o\x1b[2J"}}})
    code, out, _ = run("default/production")
    assert code == 3
    line = (
        "  KubeadmControlPlane production-cp: spec.kubeadmConfigSpec.users[0].sshAuthorizedKeys has keys of user 'capi'"
    )
    assert f"{line}. To close it: remove it" in out
    assert "\x1b[2J" not in out
    code, out, _ = run("production", "-o", "json")
    document = json.loads(out)
    assert (code, document["verdict"]) == (3, "Declared")
    assert [(one["kind"], one["names"], one["objects"], one["field"]) for one in document["declared"]] == [
        ("KubeadmControlPlane", ["production-cp"], 1, "spec.kubeadmConfigSpec.users[0].sshAuthorizedKeys"),
        ("AWSMachineTemplate", ["production-md"], 1, "spec.template.spec.sshKeyName"),
    ]
    assert (document["possible"], document["notKnown"]) == ([], [])
    change(cluster, CONTROL_PLANES, "production-cp", {"kubeadmConfigSpec": {"users": None}})
    cluster.management.client.delete(AWS_TEMPLATES.object("production-md", cluster.namespace))
    code, out, _ = run("default/production", "--output", "json")
    assert (code, json.loads(out)["notKnown"]) == (
        5,
        [{"what": "AWSMachineTemplate production-md", "message": "does not exist"}],
    )
    code, _, error = run("none")
    assert code == 1
    assert "does not exist" in error
