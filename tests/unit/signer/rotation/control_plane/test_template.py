"""The template of a KubeadmControlPlane, of both versions and of none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.rotation.control_plane.template import (
    NOT_SET,
    Changed,
    Component,
    FromSecret,
    Inline,
    InvalidTemplate,
    control_plane_template,
)
from tests.unit.signer.rotation.control_plane.recorded import KUBEADM, recorded

JOIN = Component.KUBELET_OF_LATER_MACHINES


def with_config(config: Any, version: str = "v1.34.1") -> dict[str, Any]:
    return {"spec": {"version": version, "kubeadmConfigSpec": config}}


@pytest.mark.parametrize("name", KUBEADM)
def test_both_versions_read_alike(name: str) -> None:
    template = control_plane_template(recorded(name))
    assert template.certificates_directory == "/etc/kubernetes/pki"
    assert template.argument(Component.API_SERVER, "audit-log-path") == "/var/log/audit.log"
    assert template.argument(Component.API_SERVER, "client-ca-file") == NOT_SET
    assert all(template.argument(component, "cloud-provider") == "external" for component in Component)
    audit = template.files_at("/etc/kubernetes/audit-policy.yaml")
    assert [one.content for one in audit] == [FromSecret("edge-audit", "policy.yaml")]
    assert [one.content for one in template.files_at("/etc/registry/token")] == [Inline("s3cr3t-of-the-registry")]
    assert template.commands_afterwards == ("systemctl restart containerd-metrics",)
    assert template.kubernetes_version in {(1, 31), (1, 34)}


def test_the_content_of_files_is_not_shown() -> None:
    template = control_plane_template(recorded(KUBEADM[1]))
    assert "s3cr3t" not in repr(template)
    assert "s3cr3t" not in "".join(str(one.content) for one in template.files)


def test_flags_are_named_as_the_programs_read_them() -> None:
    config = {"clusterConfiguration": {"apiServer": {"extraArgs": {"client_ca_file": "/ca.crt"}}}}
    assert control_plane_template(with_config(config)).argument(Component.API_SERVER, "client-ca-file") == "/ca.crt"


@pytest.mark.parametrize(
    ("given_version", "read"), [("v1.34.1", (1, 34)), ("1.25", (1, 25)), ("v1.31.0+k3s1", (1, 31)), ("main", (0, 0))]
)
def test_the_version_is_read(given_version: str, read: tuple[int, int]) -> None:
    assert control_plane_template(with_config({}, given_version)).kubernetes_version == read


@pytest.mark.parametrize(
    "extra",
    [
        {"append": True},
        {"encoding": "base64"},
        {"contentFormat": "Template"},
    ],
)
def test_content_that_is_changed_is_not_that_of_the_secret(extra: dict[str, Any]) -> None:
    source = {"secret": {"name": "edge-trust", "key": "client-ca.crt"}}
    file = {"path": "/etc//kubernetes/./ca.crt", "contentFrom": source, **extra}
    template = control_plane_template(with_config({"files": [file]}))
    assert [one.content for one in template.files_at("/etc/kubernetes/ca.crt")] == [Changed()]


def patches(*files: dict[str, Any], directory: str = "/etc/kubernetes/patches") -> dict[str, Any]:
    return {"joinConfiguration": {"patches": {"directory": directory}}, "files": list(files)}


def kubelet_patch(name: str, content: str, **extra: Any) -> dict[str, Any]:
    return {"path": f"/etc/kubernetes/patches/{name}", "content": content, **extra}


CLIENT_CA = "authentication: {x509: {clientCAFile: /ca.crt}}"
OTHER_CA = "authentication: {x509: {clientCAFile: /other.crt}}"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([kubelet_patch("kubeletconfiguration.yaml", CLIENT_CA)], "/ca.crt"),
        ([kubelet_patch("kubeletconfiguration0+merge.yaml", CLIENT_CA)], "/ca.crt"),
        (
            [
                kubelet_patch(
                    "kubeletconfiguration0+strategic.json", '{"authentication":{"x509":{"clientCAFile":"/a"}}}'
                )
            ],
            "/a",
        ),
        (
            [
                kubelet_patch("kubeletconfiguration0.yaml", CLIENT_CA),
                kubelet_patch("kubeletconfiguration1.yaml", "a: b"),
            ],
            "/ca.crt",
        ),
        (
            [
                kubelet_patch("kubeletconfiguration1.yaml", CLIENT_CA),
                kubelet_patch("kubeletconfiguration0.yaml", OTHER_CA),
            ],
            "/ca.crt",
        ),
    ],
    ids=["plain", "merge", "strategic in JSON", "a later patch of other fields", "in the order of names"],
)
def test_patches_of_the_kubelet_configuration_are_read(files: list[dict[str, Any]], found: str) -> None:
    assert control_plane_template(with_config(patches(*files))).patched_client_ca(JOIN) == found


@pytest.mark.parametrize(
    "files",
    [
        [kubelet_patch("kubeletconfiguration0+json.json", '[{"op":"add"}]')],
        [kubelet_patch("kubeletconfiguration.yaml", CLIENT_CA, append=True)],
        [kubelet_patch("kube-apiserver.yaml", CLIENT_CA)],
        [kubelet_patch("sub/kubeletconfiguration.yaml", CLIENT_CA)],
        [kubelet_patch("kubeletconfiguration.yaml", "a: &a b\nc: *a")],
        [kubelet_patch("kubeletconfiguration.yaml", f"$patch: replace\n{CLIENT_CA}")],
        [kubelet_patch("kubeletconfiguration.yaml", "authentication: {x509: {clientCAFile: [a]}}")],
        [kubelet_patch("kubeletconfiguration.yaml", "\ud800")],
        [kubelet_patch("kubeletconfiguration.yaml", "#" * 20_000 + "\n" + CLIENT_CA)],
        [
            kubelet_patch("kubeletconfiguration0.yaml", CLIENT_CA),
            kubelet_patch("kubeletconfiguration1.yaml", "authentication:"),
        ],
        [
            kubelet_patch("kubeletconfiguration0.yaml", CLIENT_CA),
            {
                "path": "/etc/kubernetes/patches/kubeletconfiguration1.yaml",
                "contentFrom": {"secret": {"name": "a", "key": "b"}},
            },
        ],
    ],
)
def test_a_patch_that_cannot_be_read_proves_nothing(files: list[dict[str, Any]]) -> None:
    assert control_plane_template(with_config(patches(*files))).patched_client_ca(JOIN) == NOT_SET


def test_kubeadm_before_1_25_patches_no_kubelet() -> None:
    config = patches(kubelet_patch("kubeletconfiguration.yaml", CLIENT_CA))
    assert control_plane_template(with_config(config, "v1.24.17")).patched_client_ca(JOIN) == NOT_SET
    assert control_plane_template(with_config(config, "v1.25.0")).patched_client_ca(JOIN) == "/ca.crt"


@pytest.mark.parametrize(
    "manifest",
    [
        {"spec": []},
        {"spec": {"kubeadmConfigSpec": "x"}},
        with_config({"clusterConfiguration": []}),
        with_config({"clusterConfiguration": {"certificatesDir": 1}}),
        with_config({"clusterConfiguration": {"apiServer": {"extraArgs": "x"}}}),
        with_config({"clusterConfiguration": {"apiServer": {"extraArgs": ["x"]}}}),
        with_config({"clusterConfiguration": {"apiServer": {"extraArgs": [{"name": "a"}]}}}),
        with_config({"clusterConfiguration": {"apiServer": {"extraArgs": [{"name": "", "value": ""}]}}}),
        with_config({"clusterConfiguration": {"apiServer": {"extraArgs": {"a": None}}}}),
        with_config({"clusterConfiguration": {"apiServer": {"extraArgs": {"a": "x" * 10_241}}}}),
        with_config({"clusterConfiguration": {"apiServer": {"extraArgs": {str(i): "" for i in range(101)}}}}),
        with_config({"clusterConfiguration": {"apiServer": {"extraArgs": {"a-b": "1", "a_b": "2"}}}}),
        with_config({"clusterConfiguration": {"apiServer": {"extraArgs": [{"name": "a", "value": "1"}] * 2}}}),
        with_config({"files": {}}),
        with_config({"files": [1]}),
        with_config({"files": [{"path": "/a"}] * 201}),
        with_config({"files": [{"path": "/a", "contentFrom": {"secret": {"name": 1}}}]}),
        with_config({"postKubeadmCommands": [1]}),
        with_config({"postKubeadmCommands": ["true"] * 1001}),
        with_config({"joinConfiguration": {"patches": {"directory": []}}}),
    ],
)
def test_an_object_that_no_machine_can_be_made_from_is_an_error(manifest: dict[str, Any]) -> None:
    with pytest.raises(InvalidTemplate):
        control_plane_template(manifest)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.dictionaries(
    st.sampled_from(
        ["spec", "kubeadmConfigSpec", "clusterConfiguration", "apiServer", "extraArgs", "files", "postKubeadmCommands"]
    ),
    JSON,
)


@given(JSON | FIELDS)
def test_any_config_is_read_or_is_an_error(config: Any) -> None:
    for manifest in (with_config(config), {"spec": config}, config if isinstance(config, dict) else {}):
        try:
            control_plane_template(manifest)
        except InvalidTemplate:
            continue
