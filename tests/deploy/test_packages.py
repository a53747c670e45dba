"""The kustomize base and the clusterctl package have the chart's objects, as kustomize and clusterctl read them."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from signer.configuration import read_attestors
from signer.crds import custom_resource_definitions
from tests.deploy.clusterctl import process, variables_of
from tests.deploy.packages import (
    ACCESS,
    ACCESS_USERS,
    COMPONENTS,
    DEPLOY,
    MANAGEMENT,
    PROVIDER_LABEL,
    ROTATION,
    ROTATION_COMPONENT,
    SSH,
    SSH_COMPONENT,
)
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.kubectl import find_kubectl
from tests.support.yaml_documents import safe_load, safe_load_all

NAMESPACE = "node-attestation-system"


def kustomize(folder: str | Path) -> list[dict[str, Any]]:
    """The objects that ``kubectl kustomize`` builds from a folder of ``deploy/kustomize``, or from another one."""
    try:
        kubectl = find_kubectl()
    except MissingPart as missing:
        skip_or_fail(missing)
    path = DEPLOY / "kustomize" / folder
    built = subprocess.run([kubectl, "kustomize", path], capture_output=True, text=True, check=True, timeout=60)
    assert built.stderr == ""
    return list(safe_load_all(built.stdout))


def components(namespace: str = "", **variables: str) -> list[dict[str, Any]]:
    return process(COMPONENTS.read_text(encoding="utf-8"), variables, namespace)


def one(kind: str, objects: list[dict[str, Any]], name: str = "") -> dict[str, Any]:
    [found] = [each for each in objects if each["kind"] == kind and each["metadata"]["name"].startswith(name)]
    return found


def container(objects: list[dict[str, Any]]) -> dict[str, Any]:
    [found] = one("Deployment", objects)["spec"]["template"]["spec"]["containers"]
    return dict(found)


def names(objects: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Kind and name of each object. kustomize adds a hash of its content to a Secret's name."""
    return {(each["kind"], "" if each["kind"] == "Secret" else each["metadata"]["name"]) for each in objects}


@pytest.mark.slow
class TestKustomize:
    def test_the_base_has_what_clusterctl_has(self) -> None:
        assert names(kustomize("base")) == names(components())

    def test_a_configuration_makes_new_pods(self) -> None:
        base, example = kustomize("base"), kustomize("example")
        for objects in (base, example):
            [volume] = [
                volume["secret"]["secretName"]
                for volume in one("Deployment", objects)["spec"]["template"]["spec"]["volumes"]
                if volume["name"] == "config"
            ]
            assert volume == one("Secret", objects)["metadata"]["name"]
        assert one("Secret", base)["metadata"]["name"] != one("Secret", example)["metadata"]["name"]

    def test_the_example_is_a_whole_installation(self, tmp_path: Path) -> None:
        example = kustomize("example")
        assert container(example)["image"] == "registry.example/capi-node-attestation:0.2.0.dev0"
        assert one("Deployment", example)["spec"]["replicas"] == 2
        assert one("RoleBinding", example, "node-attestation-secrets")["metadata"]["namespace"] == "default"
        file = tmp_path / "attestors.yaml"
        file.write_bytes(base64.b64decode(one("Secret", example)["data"]["attestors.yaml"]))
        assert read_attestors(file)["aws"].settings["allowedRoles"]


def grants(objects: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Each rule, with the name of its role."""
    return {(each["metadata"]["name"], json.dumps(rule)) for each in objects for rule in each.get("rules", ())}


@pytest.mark.slow
class TestRotationByKustomize:
    """The component that switches the rotation of CAs on."""

    @pytest.fixture
    def switched_on(self, tmp_path: Path) -> list[dict[str, Any]]:
        overlay = tmp_path / "overlay"
        overlay.mkdir()
        # kustomize takes folders by relative paths only.
        for name, folder in (("base", DEPLOY / "kustomize/base"), ("rotation", ROTATION_COMPONENT)):
            shutil.copytree(folder, tmp_path / name)
        kustomization = {"resources": ["../base"], "components": ["../rotation"]}
        (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
        return kustomize(overlay)

    def test_it_adds_the_flag_and_the_roles_and_nothing_else(self, switched_on: list[dict[str, Any]]) -> None:
        base = kustomize("base")
        assert container(switched_on)["args"] == [*container(base)["args"], "--rotate-authorities"]
        assert names(switched_on) - names(base) == {
            ("ClusterRole", "node-attestation-rotation"),
            ("ClusterRole", "node-attestation-rotation-records"),
            ("ClusterRoleBinding", "node-attestation-rotation-records"),
            ("ClusterRole", "node-attestation-rotation-admission"),
            ("ClusterRoleBinding", "node-attestation-rotation-admission"),
        }
        assert names(base) <= names(switched_on)

    def test_the_roles_are_those_of_the_file_with_grants(self, switched_on: list[dict[str, Any]]) -> None:
        file = grants(list(safe_load_all(ROTATION.read_text(encoding="utf-8"))))
        assert grants(switched_on) - grants(kustomize("base")) == file
        assert not file & grants(list(safe_load_all(MANAGEMENT.read_text(encoding="utf-8"))))


@pytest.mark.slow
class TestSSHByKustomize:
    """The component that switches SSH on."""

    @pytest.fixture
    def switched_on(self, tmp_path: Path) -> list[dict[str, Any]]:
        overlay = tmp_path / "overlay"
        overlay.mkdir()
        for name, folder in (
            ("base", DEPLOY / "kustomize/base"),
            ("rotation", ROTATION_COMPONENT),
            ("ssh", SSH_COMPONENT),
        ):
            shutil.copytree(folder, tmp_path / name)
        kustomization = {"resources": ["../base"], "components": ["../rotation", "../ssh"]}
        (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
        return kustomize(overlay)

    def test_it_adds_the_flag_and_the_role_also_beside_rotation(self, switched_on: list[dict[str, Any]]) -> None:
        flags = [*container(kustomize("base"))["args"], "--rotate-authorities", "--ssh"]
        assert container(switched_on)["args"] == flags
        assert {name for _, name in names(switched_on) if name.endswith("-ssh")} == {"node-attestation-ssh"}
        file = grants(list(safe_load_all(SSH.read_text(encoding="utf-8"))))
        assert file <= grants(switched_on)
        assert not file & grants(list(safe_load_all(MANAGEMENT.read_text(encoding="utf-8"))))


@pytest.mark.slow
class TestAccessByKustomize:
    """The components that switch access grants on, and the policies that prove who made them."""

    @pytest.fixture
    def switched_on(self, tmp_path: Path) -> list[dict[str, Any]]:
        overlay = tmp_path / "overlay"
        overlay.mkdir()
        components = ("ssh", "access", "access-policies", "access-creator")
        for name in ("base", *components):
            shutil.copytree(DEPLOY / "kustomize" / name, tmp_path / name)
        kustomization = {"resources": ["../base"], "components": [f"../{name}" for name in components]}
        (overlay / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
        return kustomize(overlay)

    def test_they_add_the_flag_the_roles_the_definitions_and_the_policies(
        self, switched_on: list[dict[str, Any]]
    ) -> None:
        assert container(switched_on)["args"] == [*container(kustomize("base"))["args"], "--ssh", "--access"]
        added = set(names(switched_on)) - set(names(kustomize("base")))
        group = "access.cluster.x-k8s.io"
        assert {name for kind, name in added if kind == "CustomResourceDefinition"} == {
            f"{plural}.{group}" for plural in ("accessgrants", "accessapprovals", "bastions")
        }
        assert {name for kind, name in added if kind.endswith("AdmissionPolicy")} == {
            "node-access-grants",
            "node-access-approvals",
            "node-access-bastions",
            "node-access-creator",
        }
        assert {name for kind, name in added if kind == "ClusterRole" and name.startswith("node-access-")} == {
            f"node-access-{name}" for name in ("view", "user", "admin", "approver")
        }
        for file in (ACCESS, ACCESS_USERS):
            assert grants(list(safe_load_all(file.read_text(encoding="utf-8")))) <= grants(switched_on)

    def test_the_policies_name_the_controllers_service_account(self, switched_on: list[dict[str, Any]]) -> None:
        [account] = [one for one in switched_on if one["kind"] == "ServiceAccount"]
        metadata = account["metadata"]
        user = f"system:serviceaccount:{metadata['namespace']}:{metadata['name']}"
        [policy] = [
            one
            for one in switched_on
            if (one["kind"], one["metadata"]["name"]) == ("ValidatingAdmissionPolicy", "node-access-grants")
        ]
        assert f"request.userInfo.username == '{user}'" in json.dumps(policy)


class TestClusterctl:
    def test_variables_have_defaults(self, tmp_path: Path) -> None:
        assert variables_of(COMPONENTS.read_text(encoding="utf-8")) == {
            "CAPI_DIAGNOSTICS_ADDRESS",
            "NODE_ATTESTATION_CONFIG_B64",
            "NODE_ATTESTATION_IMAGE",
            "NODE_ATTESTATION_REPLICAS",
        }
        objects = components()
        assert one("Deployment", objects)["spec"]["replicas"] == 1
        assert container(objects)["image"].startswith("capi-node-attestation:")
        assert "--diagnostics-address=:8443" in container(objects)["args"]
        file = tmp_path / "attestors.yaml"
        file.write_bytes(base64.b64decode(one("Secret", objects)["data"]["attestors.yaml"]))
        assert read_attestors(file) == {}

    def test_variables_are_replaced(self) -> None:
        objects = components(
            NODE_ATTESTATION_REPLICAS="2", NODE_ATTESTATION_IMAGE="registry.example/a:b", CAPI_DIAGNOSTICS_ADDRESS=":1"
        )
        assert one("Deployment", objects)["spec"]["replicas"] == 2
        assert container(objects)["image"] == "registry.example/a:b"
        assert "--diagnostics-address=:1" in container(objects)["args"]

    def test_everything_has_the_provider_s_label(self) -> None:
        label, value = PROVIDER_LABEL
        assert {each["metadata"]["labels"].get(label) for each in components()} == {value}

    def test_the_container_is_called_manager(self) -> None:
        assert container(components())["name"] == "manager"

    def test_in_another_namespace_it_is_still_whole(self) -> None:
        """clusterctl moves all objects there, so no binding may belong to another namespace."""
        objects = components("elsewhere")
        account = one("ServiceAccount", objects)["metadata"]
        subjects = [subject for each in objects for subject in each.get("subjects", ())]
        assert {(subject["name"], subject["namespace"]) for subject in subjects} == {(account["name"], "elsewhere")}
        assert {each["metadata"]["name"] for each in objects if each["kind"] == "RoleBinding"} == {
            "node-attestation-controller",
            "node-attestation-controller-key-creation",
        }

    def test_what_belongs_to_a_cluster_moves_with_it(self) -> None:
        """``clusterctl move`` discovers definitions by one label, and moves objects of those with the second label."""
        moving = {
            each["spec"]["names"]["kind"]
            for each in components()
            if each["kind"] == "CustomResourceDefinition"
            and {"clusterctl.cluster.x-k8s.io", "clusterctl.cluster.x-k8s.io/move"} <= set(each["metadata"]["labels"])
        }
        assert moving == {"AttestedNode", "CertificateAuthorityRotation", "NodeAttestationPolicy"}

    def test_it_rotates_nothing(self) -> None:
        """The definition comes with it, because that grants nothing."""
        assert "--rotate-authorities" not in container(components())["args"]
        assert not [one for one, _ in grants(components()) if "rotation" in one]

    def test_the_definitions_are_those_that_the_program_prints(self) -> None:
        printed = {safe_load(text)["metadata"]["name"] for text in custom_resource_definitions()}
        packaged = {each["metadata"]["name"] for each in components() if each["kind"] == "CustomResourceDefinition"}
        assert packaged == printed
