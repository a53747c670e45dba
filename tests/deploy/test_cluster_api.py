"""Cluster API's own definitions accept the objects of ``deploy/node``, and prune no field of them."""

from __future__ import annotations

import contextlib
import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from signer.kube.errors import AlreadyExists
from signer.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from signer.testing.api import APIError, EmbeddedAPI
from signer.testing.clients import BlockingClient
from tests.deploy.manifests import CLUSTER_CLASS, CONTROL_PLANE, WORKER, every_object, objects, template_of_class
from tests.documents.markdown import ROOT
from tests.support.cluster_api import VARIABLE, cluster_api_crds
from tests.support.control_plane import ControlPlane
from tests.support.kubectl import run_kubectl
from tests.support.yaml_documents import safe_load

DEFINITIONS: Final = (
    "bootstrap.cluster.x-k8s.io_kubeadmconfigtemplates.yaml",
    "cluster.x-k8s.io_clusterclasses.yaml",
    "controlplane.cluster.x-k8s.io_kubeadmcontrolplanetemplates.yaml",
)
ATTESTATIONS: Final = [
    {"provider": "keyed-mac", "servingCertificates": serving, "nodeName": "{{ ds.meta_data.local_hostname }}"}
    for serving in ("SelfSigned", "Kubelet", "Agent")
]


def manifests() -> list[Any]:
    """Every object, and every template that a cluster of the class gets."""
    found = [pytest.param(one, id=f"{name}-{one['kind']}") for name, one in every_object()]
    for kind in (WORKER, CONTROL_PLANE):
        for attestation in ATTESTATIONS:
            manifest = template_of_class(kind, attestation)
            serving = attestation["servingCertificates"].lower()
            manifest["metadata"]["name"] += f"-{serving}"
            found.append(pytest.param(manifest, id=f"{kind}-{serving}"))
    return found


def crd_files() -> list[Path]:
    """Cluster API's definitions, which this project does not contain."""
    folder = cluster_api_crds()
    if folder is None:
        pytest.skip(f"Cluster API's definitions are not available: set {VARIABLE} to a folder with them")
    return [folder / name for name in DEFINITIONS]


@pytest.fixture(scope="module")
def api() -> Iterator[EmbeddedAPI]:
    files = crd_files()
    with EmbeddedAPI() as embedded:
        embedded.install_crds(files)
        yield embedded


def differences(sent: Any, stored: Any, path: str = "") -> list[str]:
    """Differences between the sent and the stored object, except for added defaults."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        missing = [f"{path}.{key} is gone" for key in sent if key not in stored]
        return missing + [
            line for key in sent if key in stored for line in differences(sent[key], stored[key], f"{path}.{key}")
        ]
    if isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        pairs = enumerate(zip(sent, stored, strict=True))
        return [line for index, (one, other) in pairs for line in differences(one, other, f"{path}[{index}]")]
    return [] if sent == stored else [f"{path}: {sent!r} is {stored!r}"]


@pytest.mark.parametrize("manifest", manifests())
def test_it_is_accepted_as_it_is(manifest: dict[str, Any], api: EmbeddedAPI) -> None:
    assert differences(manifest, api.apply(copy.deepcopy(manifest))) == []


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (WORKER, "kubeletextraargs", [{"name": "rotate-certificates", "value": "false"}]),
        (CONTROL_PLANE, "kubeletExtraArg", [{"name": "rotate-certificates", "value": "false"}]),
    ],
)
def test_a_misspelt_field_is_noticed(kind: str, field: str, value: object, api: EmbeddedAPI) -> None:
    """The definitions prune it silently. Only the comparison shows it."""
    manifest = template_of_class(kind, None)
    manifest["metadata"]["name"] = "misspelt"
    spec = manifest["spec"]["template"]["spec"]
    spec = spec.get("kubeadmConfigSpec", spec)
    spec["joinConfiguration"]["nodeRegistration"][field] = value
    [gone] = differences(manifest, api.create(copy.deepcopy(manifest)))
    assert gone.endswith(f".{field} is gone")


def test_a_control_plane_can_be_told_to_replace_its_machines() -> None:
    """By the patch in ``docs/first-cluster.md``."""
    folder = crd_files()[0].parent
    page = (ROOT / "docs/first-cluster.md").read_text(encoding="utf-8")
    [patch] = re.findall(
        r"^kubectl patch kubeadmcontrolplane production --type merge --patch '(.*)'$", page, re.MULTILINE
    )
    spec = json.loads(patch.replace("NOW", "2026-11-26T20:00:00Z"))["spec"]
    infrastructure = {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DevMachineTemplate", "name": "production"}
    manifest = {
        "apiVersion": "controlplane.cluster.x-k8s.io/v1beta2",
        "kind": "KubeadmControlPlane",
        "metadata": {"name": "production", "namespace": "default"},
        "spec": {"version": "v1.36.0", "machineTemplate": {"spec": {"infrastructureRef": infrastructure}}, **spec},
    }
    with EmbeddedAPI() as api:
        api.install_crds([folder / "controlplane.cluster.x-k8s.io_kubeadmcontrolplanes.yaml"])
        assert differences(manifest, api.create(copy.deepcopy(manifest))) == []


@pytest.mark.parametrize("arguments", [{"rotate-certificates": "false"}, [{"name": "rotate-certificates"}]])
def test_arguments_of_the_older_form_are_refused(arguments: object, api: EmbeddedAPI) -> None:
    manifest = template_of_class(WORKER, None)
    manifest["metadata"]["name"] = "older"
    manifest["spec"]["template"]["spec"]["joinConfiguration"]["nodeRegistration"]["kubeletExtraArgs"] = arguments
    with pytest.raises(APIError, match="kubeletExtraArgs"):
        api.create(manifest)


def older_form(manifest: dict[str, Any]) -> dict[str, Any]:
    """The changes for v1beta1 in the README: the version, and arguments as a map."""
    older = copy.deepcopy(manifest)
    older["apiVersion"] = older["apiVersion"].replace("v1beta2", "v1beta1")
    older["metadata"]["name"] += "-v1beta1"
    spec = older["spec"]["template"]["spec"]
    spec = spec.get("kubeadmConfigSpec", spec)
    for configuration in ("initConfiguration", "joinConfiguration"):
        registration = spec.get(configuration, {}).get("nodeRegistration", {})
        if arguments := registration.get("kubeletExtraArgs"):
            registration["kubeletExtraArgs"] = {argument["name"]: argument["value"] for argument in arguments}
    return older


@pytest.fixture(scope="module")
def older_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAPI]:
    """A management cluster without v1beta2."""
    folder = tmp_path_factory.mktemp("v1beta1")
    for file in crd_files():
        definition = safe_load(file.read_text(encoding="utf-8"))
        versions = [one for one in definition["spec"]["versions"] if one["name"] == "v1beta1"]
        definition["spec"]["versions"] = [{**one, "served": True, "storage": True} for one in versions]
        (folder / file.name).write_text(json.dumps(definition), encoding="utf-8")
    with EmbeddedAPI() as embedded:
        embedded.install_crds(folder.iterdir())
        yield embedded


@pytest.mark.slow
@pytest.mark.parametrize("manifest", [one for one in manifests() if one.values[0]["kind"] != "ClusterClass"])
def test_the_older_version_takes_it_with_arguments_as_a_map(manifest: dict[str, Any], older_api: EmbeddedAPI) -> None:
    older = older_form(manifest)
    assert differences(older, older_api.create(copy.deepcopy(older))) == []


def test_the_class_names_templates_that_are_there() -> None:
    worker, control_plane, cluster_class = objects(CLUSTER_CLASS)
    spec = cluster_class["spec"]
    [workers] = spec["workers"]["machineDeployments"]
    for reference, template in (
        (spec["controlPlane"]["templateRef"], control_plane),
        (workers["bootstrap"]["templateRef"], worker),
    ):
        assert reference["name"] == template["metadata"]["name"]
        assert (reference["apiVersion"], reference["kind"]) == (template["apiVersion"], template["kind"])


def is_established(definition: dict[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)


@pytest.mark.real
@pytest.mark.slow
def test_kubectl_applies_all_of_it(real_control_plane: ControlPlane) -> None:
    """With kubectl's own validation, against a real kube-apiserver. The stored objects equal the sent ones."""
    kubeconfig = real_control_plane.kubeconfig()
    with BlockingClient(real_control_plane.connection()) as client:
        for file in crd_files():
            definition = safe_load(file.read_text(encoding="utf-8"))
            with contextlib.suppress(AlreadyExists):
                client.create(CUSTOM_RESOURCE_DEFINITIONS.collection(), definition)
            name = definition["metadata"]["name"]
            client.wait_for(CUSTOM_RESOURCE_DEFINITIONS.collection(), name, is_established)
    every = [one.values[0] for one in manifests()]
    applied = run_kubectl(
        kubeconfig, ["apply", "--validate=true", "-f", "-"], standard_input=yaml.safe_dump_all(every, sort_keys=False)
    )
    assert applied.returncode == 0, applied.stderr
    for manifest in every:
        kind, name = f"{manifest['kind'].lower()}.{manifest['apiVersion'].split('/')[0]}", manifest["metadata"]["name"]
        read = run_kubectl(kubeconfig, ["get", f"{kind}/{name}", "--output", "json"])
        assert read.returncode == 0, read.stderr
        assert differences(manifest, json.loads(read.stdout)) == []
