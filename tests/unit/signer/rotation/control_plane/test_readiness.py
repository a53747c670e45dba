"""What a template lacks for a rotation, and the patch that adds it."""

from __future__ import annotations

import copy
import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.rotation.control_plane.readiness import (
    CLIENT_CA_FILE,
    LINK_COMMAND,
    LINK_FILE,
    SERVER_CA_FILE,
    Missing,
    Readiness,
    Ready,
    RequiredArgument,
    RequiredFile,
    Unsuitable,
    chosen_pairs,
    readiness,
    required_flags,
)
from signer.rotation.control_plane.template import Component, InvalidTemplate, control_plane_template
from signer.rotation.control_plane.template_patch import (
    cluster_class_patch,
    how_to_make_ready,
    patch_command,
    template_patch,
)
from signer.rotation.phases import SigningPairs
from signer.testing.api.patches import json_patch
from tests.unit.signer.rotation.control_plane.recorded import KUBEADM, recorded

PKI = "/etc/kubernetes/pki"


def judged(manifest: dict[str, Any], signing: SigningPairs = SigningPairs.ONE_PAIR, cluster: str = "edge") -> Readiness:
    return readiness(control_plane_template(manifest), cluster, signing)


def missing(manifest: dict[str, Any], signing: SigningPairs = SigningPairs.ONE_PAIR) -> Missing:
    found = judged(manifest, signing)
    assert isinstance(found, Missing)
    return found


def patched(manifest: dict[str, Any], signing: SigningPairs = SigningPairs.ONE_PAIR) -> dict[str, Any]:
    """The object with the patch applied, by the embedded API's implementation."""
    found = copy.deepcopy(manifest)
    json_patch(found, template_patch(manifest, missing(manifest, signing)))
    return found


def config_of(manifest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = manifest["spec"]["kubeadmConfigSpec"]
    return found


@pytest.mark.parametrize("signing", SigningPairs)
@pytest.mark.parametrize("name", KUBEADM)
def test_the_patch_makes_a_control_plane_ready(name: str, signing: SigningPairs) -> None:
    before = recorded(name)
    after = patched(before, signing)
    assert judged(after, signing) == Ready()
    kept = control_plane_template(after)
    for component, flags in control_plane_template(before).arguments.items():
        assert flags.items() <= kept.arguments[component].items()
    assert {one.path for one in control_plane_template(before).files} <= {one.path for one in kept.files}
    assert config_of(after)["postKubeadmCommands"] == [*config_of(before)["postKubeadmCommands"], LINK_COMMAND]


@pytest.mark.parametrize("name", KUBEADM)
def test_the_patch_has_the_form_of_the_version(name: str) -> None:
    arguments = config_of(patched(recorded(name)))["clusterConfiguration"]["controllerManager"]["extraArgs"]
    wanted = {"client-ca-file": CLIENT_CA_FILE, "root-ca-file": SERVER_CA_FILE}
    if name.endswith("v1beta1"):
        assert arguments == {"cloud-provider": "external", **wanted}
    else:
        assert arguments[1:] == [{"name": flag, "value": value} for flag, value in wanted.items()]


@pytest.mark.parametrize("name", KUBEADM)
def test_an_empty_template_becomes_ready(name: str) -> None:
    manifest = recorded(name)
    manifest["spec"]["kubeadmConfigSpec"] = {"clusterConfiguration": None, "files": None}
    assert judged(patched(manifest)) == Ready()


@pytest.mark.parametrize("name", KUBEADM)
def test_a_flag_in_another_spelling_is_replaced(name: str) -> None:
    manifest = recorded(name)
    server = config_of(manifest)["clusterConfiguration"]["apiServer"]
    if name == KUBEADM[0]:
        server["extraArgs"]["client_ca_file"] = f"{PKI}/ca.crt"
    else:
        server["extraArgs"].append({"name": "client_ca_file", "value": f"{PKI}/ca.crt"})
    assert judged(patched(manifest)) == Ready()


@pytest.mark.parametrize("component", Component)
@pytest.mark.parametrize("name", KUBEADM)
def test_each_flag_is_required(name: str, component: Component) -> None:
    for flag in required_flags(component, SigningPairs.ONE_PAIR):
        manifest = patched(recorded(name))
        parent: Any = config_of(manifest)
        *parents, last = component.value
        for key in parents:
            parent = parent[key]
        if isinstance(parent[last], dict):
            parent[last][flag.name] = f"{PKI}/ca.crt"
        else:
            parent[last] = [one for one in parent[last] if one["name"] != flag.name]
        assert [line.requirement for line in missing(manifest).lines] == [flag]
        assert judged(patched(manifest)) == Ready()


@pytest.mark.parametrize("path", [CLIENT_CA_FILE, SERVER_CA_FILE, LINK_FILE])
@pytest.mark.parametrize(
    "change", ["absent", "another Secret", "another key", "inline", "twice", "appended", "spelled"]
)
@pytest.mark.parametrize("name", KUBEADM)
def test_each_file_is_required(name: str, change: str, path: str) -> None:
    manifest = patched(recorded(name))
    files = config_of(manifest)["files"]
    entry = next(one for one in files if one["path"] == path)
    match change:
        case "absent":
            files.remove(entry)
        case "another Secret":
            entry["contentFrom"]["secret"]["name"] = "other-trust"
        case "another key":
            entry["contentFrom"]["secret"]["key"] = "ca.crt"
        case "inline":
            del entry["contentFrom"]
            entry["content"] = "s3cr3t"
        case "twice":
            files.insert(0, {"path": path, "content": "s3cr3t"})
        case "appended":
            entry["append"] = True
        case "spelled":
            files.append({"path": path.replace("/rotation", "//./rotation"), "content": "s3cr3t"})
    found = missing(manifest)
    assert [line.requirement.path for line in found.lines if isinstance(line.requirement, RequiredFile)] == [path]
    assert judged(patched(manifest)) == Ready()
    assert "s3cr3t" not in patch_command(manifest, found) + str(found.lines[0])


def test_the_command_is_required_as_it_is() -> None:
    manifest = patched(recorded(KUBEADM[1]))
    config_of(manifest)["postKubeadmCommands"][-1] += " || true"
    assert [line.requirement for line in missing(manifest).lines] == [
        missing(recorded(KUBEADM[1])).lines[-1].requirement
    ]


def test_a_patch_of_the_kubelet_configuration_is_as_good_as_a_flag() -> None:
    manifest = recorded(KUBEADM[1])
    content = f"authentication: {{x509: {{clientCAFile: {CLIENT_CA_FILE}}}}}"
    config = config_of(manifest)
    config["files"].append({"path": "/etc/kubernetes/patches/kubeletconfiguration.yaml", "content": content})
    for part in ("initConfiguration", "joinConfiguration"):
        config[part]["patches"] = {"directory": "/etc/kubernetes/patches"}
    lines = missing(manifest).lines
    assert {line.requirement.component for line in lines if isinstance(line.requirement, RequiredArgument)} == {
        Component.API_SERVER,
        Component.CONTROLLER_MANAGER,
    }
    config["joinConfiguration"]["nodeRegistration"]["kubeletExtraArgs"].append(
        {"name": "client-ca-file", "value": f"{PKI}/ca.crt"}
    )
    assert len(missing(manifest).lines) == len(lines) + 1  # the flag takes precedence


def test_another_certificates_directory_is_unsuitable() -> None:
    manifest = patched(recorded(KUBEADM[1]))
    config_of(manifest)["clusterConfiguration"]["certificatesDir"] = "/srv/pki"
    assert isinstance(judged(manifest), Unsuitable)
    config_of(manifest)["clusterConfiguration"]["certificatesDir"] = f"{PKI}/"
    assert judged(manifest) == Ready()


@pytest.mark.parametrize(
    ("flag", "value", "suitable"),
    [
        ("cluster-signing-cert-file", f"{PKI}/ca.crt", True),
        ("cluster-signing-duration", "24h", True),
        ("cluster-signing-cert-file", "/etc/other/ca.crt", False),
        ("cluster-signing-key-file", "", False),
        ("cluster-signing-kubelet-serving-cert-file", f"{PKI}/ca.crt", False),
    ],
)
def test_a_controller_manager_that_signs_with_another_pair_is_unsuitable(flag: str, value: str, suitable: bool) -> None:
    manifest = patched(recorded(KUBEADM[0]))
    config_of(manifest)["clusterConfiguration"]["controllerManager"]["extraArgs"][flag] = value
    assert isinstance(judged(manifest), Ready if suitable else Unsuitable)


def test_split_signing_needs_its_flags_and_pairs() -> None:
    lines = missing(patched(recorded(KUBEADM[1])), SigningPairs.SPLIT).lines
    flags = {line.requirement.name for line in lines if isinstance(line.requirement, RequiredArgument)}
    files = {line.requirement.path: line.requirement for line in lines if isinstance(line.requirement, RequiredFile)}
    assert len(flags) == 10
    assert {path.rpartition("/")[2] for path in files} == {"client.crt", "client.key", "serving.crt", "serving.key"}
    assert all(one.permissions == "0600" for path, one in files.items() if path.endswith(".key"))
    assert isinstance(
        judged(patched(recorded(KUBEADM[1]), SigningPairs.SPLIT)), Unsuitable
    )  # for the other way of signing


@pytest.mark.parametrize("name", KUBEADM)
def test_the_template_chooses_split_pairs_by_one_flag(name: str) -> None:
    """Then preflight prints the other lines, and both Secrets."""
    manifest = patched(recorded(name))
    assert chosen_pairs(control_plane_template(manifest)) is SigningPairs.ONE_PAIR
    assert chosen_pairs(control_plane_template(patched(recorded(name), SigningPairs.SPLIT))) is SigningPairs.SPLIT
    arguments = config_of(manifest)["clusterConfiguration"]["controllerManager"]["extraArgs"]
    flag, value = "cluster-signing-legacy-unknown-key-file", f"{PKI}/rotation/client.key"
    if isinstance(arguments, dict):
        arguments[flag] = value
    else:
        arguments.append({"name": flag, "value": value})
    assert chosen_pairs(control_plane_template(manifest)) is SigningPairs.SPLIT
    found = missing(manifest, SigningPairs.SPLIT)
    assert len(found.lines) == 9 + 4
    shown = how_to_make_ready(manifest, found, "edge", "")
    assert shown.startswith("When Secret edge-trust and Secret edge-signing exist ")
    assert "edge-signing" not in how_to_make_ready(recorded(name), missing(recorded(name)), "edge", "").splitlines()[0]


# The patch


def test_the_command_for_a_person_is_one_that_a_shell_reads() -> None:
    manifest = recorded(KUBEADM[1])
    words = shlex.split(patch_command(manifest, missing(manifest)))
    assert words[:6] == [
        "kubectl",
        "patch",
        "kubeadmcontrolplanes.v1beta2.controlplane.cluster.x-k8s.io",
        "edge-control-plane",
        "--namespace",
        "fleet",
    ]
    assert words[6:9] == ["--type", "json", "--patch"]
    assert json.loads(words[9]) == template_patch(manifest, missing(manifest))
    assert "edge-trust" in how_to_make_ready(manifest, missing(manifest), "edge", "")


def test_an_entry_that_has_moved_is_not_replaced() -> None:
    manifest = recorded(KUBEADM[1])
    config_of(manifest)["clusterConfiguration"]["apiServer"]["extraArgs"].append(
        {"name": "client-ca-file", "value": f"{PKI}/ca.crt"}
    )
    operations = template_patch(manifest, missing(manifest))
    config_of(manifest)["clusterConfiguration"]["apiServer"]["extraArgs"].pop(0)
    config_of(manifest)["clusterConfiguration"]["apiServer"]["extraArgs"].append({"name": "z", "value": ""})
    with pytest.raises(Exception, match="test"):
        json_patch(manifest, operations)


def test_a_cluster_class_gets_a_patch_that_its_webhook_allows() -> None:
    manifest = recorded(KUBEADM[1])
    config_of(manifest)["clusterConfiguration"]["apiServer"]["extraArgs"].append(
        {"name": "client-ca-file", "value": f"{PKI}/ca.crt"}
    )
    patch = cluster_class_patch(manifest, missing(manifest), "edge")
    operations = json.loads(patch.entry)[0]["definitions"][0]["jsonPatches"]
    assert {one["op"] for one in operations} == {"add"}
    assert all(one["path"].startswith("/spec/template/spec/kubeadmConfigSpec/") for one in operations)
    assert not any(part.isdigit() for one in operations for part in one["path"].split("/"))
    assert [line.requirement for line in patch.by_hand] == [missing(manifest).lines[0].requirement]
    text = how_to_make_ready(manifest, missing(manifest), "edge", "standard")
    assert "ClusterClass standard" in text
    assert "Change in its KubeadmControlPlaneTemplate: clusterConfiguration.apiServer.extraArgs" in text


@pytest.mark.parametrize("cluster", ["edge", "client", "root", "e"])
@pytest.mark.parametrize("name", KUBEADM)
def test_a_patch_of_a_cluster_class_fits_every_cluster(name: str, cluster: str) -> None:
    before = recorded(name)
    found = judged(before, cluster=cluster)
    assert isinstance(found, Missing)
    operations = json.loads(cluster_class_patch(before, found, cluster).entry)[0]["definitions"][0]["jsonPatches"]
    template = {"spec": {"template": copy.deepcopy(before)}}
    for one in operations:
        if "valueFrom" in one:
            one["value"] = json.loads(one.pop("valueFrom")["template"].replace("{{ .builtin.cluster.name }}", "other"))
    json_patch(template, operations)
    assert judged(template["spec"]["template"], cluster="other") == Ready()


# Any template

NAMES = st.sampled_from(["client-ca-file", "client_ca_file", "root-ca-file", "a~b/c", "cloud-provider", "v"])
VALUES = st.sampled_from([CLIENT_CA_FILE, f"{PKI}/ca.crt", "", "external"])
PATHS = st.sampled_from([CLIENT_CA_FILE, LINK_FILE, LINK_FILE.replace("/link", "//link"), "/etc/a", ""])
SECRETS = st.sampled_from(["edge-trust", "other"])
KEYS = st.sampled_from(["client-ca.crt", "link.crt", "server-ca.crt"])
FILES = st.lists(
    st.fixed_dictionaries(
        {
            "path": PATHS,
            "contentFrom": st.fixed_dictionaries({"secret": st.fixed_dictionaries({"name": SECRETS, "key": KEYS})}),
        }
    )
    | st.fixed_dictionaries({"path": PATHS, "content": st.text(max_size=4)}),
    max_size=6,
)


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object with some of the fields, or none."""
    return st.none() | st.fixed_dictionaries({}, optional=fields)


def configs(arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    program = optional(extraArgs=st.none() | arguments)
    kubelet = optional(nodeRegistration=optional(kubeletExtraArgs=st.none() | arguments))
    return st.fixed_dictionaries(
        {},
        optional={
            "clusterConfiguration": optional(apiServer=program, controllerManager=program),
            "initConfiguration": kubelet,
            "joinConfiguration": kubelet,
            "files": st.none() | FILES,
            "postKubeadmCommands": st.none() | st.lists(st.sampled_from(["true", LINK_COMMAND]), max_size=3),
        },
    )


OLDER = configs(st.dictionaries(NAMES, VALUES, max_size=4))
NEWER = configs(st.lists(st.fixed_dictionaries({"name": NAMES, "value": VALUES}), max_size=4))


@given(st.tuples(st.just(KUBEADM[0]), OLDER) | st.tuples(st.just(KUBEADM[1]), NEWER), st.sampled_from(SigningPairs))
def test_whatever_the_template_the_patch_makes_it_ready(made: tuple[str, Any], signing: SigningPairs) -> None:
    name, config = made
    manifest = recorded(name)
    manifest["spec"]["kubeadmConfigSpec"] = config
    try:
        found = judged(manifest, signing)
    except InvalidTemplate:
        return
    if isinstance(found, Missing):
        kept = copy.deepcopy(manifest)
        assert judged(patched(manifest, signing), signing) == Ready()
        assert manifest == kept


# The command


def run_link_command(folder: Path) -> None:
    command = LINK_COMMAND.replace(PKI, str(folder))
    subprocess.run(["/bin/sh", "-ec", command], check=True)


def test_the_command_appends_the_link_certificate(tmp_path: Path) -> None:
    (tmp_path / "rotation").mkdir()
    serving = tmp_path / "apiserver.crt"
    serving.write_text("leaf\n")
    serving.chmod(0o644)
    before = serving.stat().st_ino
    (tmp_path / "rotation/link.crt").write_text("link\n")
    run_link_command(tmp_path)
    assert serving.read_text() == "leaf\nlink\n"
    assert serving.stat().st_ino != before  # renamed into place, never written in part
    assert serving.stat().st_mode & 0o777 == 0o644
    assert sorted(one.name for one in tmp_path.iterdir()) == ["apiserver.crt", "rotation"]


@pytest.mark.parametrize("link", ["empty", "absent"])
def test_without_a_link_certificate_the_command_changes_nothing(tmp_path: Path, link: str) -> None:
    (tmp_path / "rotation").mkdir()
    (tmp_path / "apiserver.crt").write_text("leaf\n")
    if link == "empty":
        (tmp_path / "rotation/link.crt").touch()
    before = (tmp_path / "apiserver.crt").stat().st_ino
    run_link_command(tmp_path)
    assert (tmp_path / "apiserver.crt").stat().st_ino == before
