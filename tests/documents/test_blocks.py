"""Every fenced block is what its language says: commands exist, YAML is accepted, Python compiles."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION
from authenticator import commands as authenticator_commands
from authenticator.configuration import KIND, Given, configure
from node_access.bastions.contract import SettingsDocuments
from node_access.bastions.registry import BastionRegistry
from node_access.client import cli as client
from signer import cli
from signer.bastions.configuration import read_bastion_configuration
from signer.cli.configuration import DEPLOYMENT_VARIABLE
from signer.cli.parsers.arguments import CONFIG_VARIABLE
from signer.configuration import ConfigurationFile, read_configuration_file
from signer.crds import custom_resource_definitions
from signer.model.cluster import WATCH_FILTER_LABEL
from signer.rotation.operations import OPERATION_ANNOTATION, SKIP_GATES_ANNOTATION
from signer.testing.api import EmbeddedAPI
from tests.deploy.clusterctl import variables_of
from tests.deploy.packages import COMPONENTS, MANAGEMENT, PROVIDER_LABEL
from tests.documents.markdown import ROOT, Block, blocks, documents
from tests.playground.__main__ import DEFAULT_FOLDER
from tests.playground.stage import ENVIRONMENT, THEFTS
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.helm import render_chart
from tests.support.yaml_documents import safe_load, safe_load_all

KNOWN_LANGUAGES = {"", "console", "json", "python", "text", "toml", "yaml"}
BLOCKS = [block for document in documents() for block in blocks(document)]
KUBECTL_COMMANDS = {
    *("annotate", "apply", "create", "delete", "describe", "exec", "get", "label", "patch", "replace", "scale", "wait")
}
HELM_COMMANDS = {"install", "uninstall", "upgrade"}
RUN_ELSEWHERE = {
    *("openssl", "sha256sum"),
    *("tpm2_createak", "tpm2_createek", "tpm2_nvread", "tpm2_quote", "tpm2_readpublic"),
}
"""By ``test_tpm``, on a software TPM; in that document alone."""
ANNOTATIONS = {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION, OPERATION_ANNOTATION, SKIP_GATES_ANNOTATION}
LABELS = {WATCH_FILTER_LABEL, "pod-security.kubernetes.io/enforce"}
BUILT_IN = {
    *("cluster", "csr", "namespace", "lease", "machine", "machinedeployment", "machines", "events"),
    *("kubeadmcontrolplane", "validatingadmissionpolicy", "validatingadmissionpolicybinding"),
    *("secret", "secrets", "configmap", "configmaps", "deployment", "pod", "baremetalhost", "clusterrolebindings"),
}


def in_language(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


def commands() -> list[tuple[Block, list[str]]]:
    """Every command of every console block; the parts of a pipe are commands of their own."""
    found = []
    for block in in_language("console"):
        for line in block.text.splitlines():
            words: list[str] = []
            for word in [*shlex.split(line, comments=True), "|"]:
                if word != "|":
                    words.append(word)
                elif words:
                    found.append((block, words))
                    words = []
    return found


@pytest.fixture(scope="module")
def api() -> Iterator[EmbeddedAPI]:
    with EmbeddedAPI() as embedded:
        for text in custom_resource_definitions():
            embedded.apply_yaml(text)
        yield embedded


def our_resources() -> set[str]:
    names: set[str] = set()
    for text in custom_resource_definitions():
        spoken = safe_load(text)["spec"]["names"]
        names |= {spoken["plural"], spoken["singular"], *spoken.get("shortNames", ())}
    return names


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_the_language_is_one_that_is_checked(block: Block) -> None:
    assert block.language in KNOWN_LANGUAGES


@pytest.mark.parametrize("block", in_language("python"), ids=str)
def test_python_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("block", in_language("json"), ids=str)
def test_json_is_accepted(block: Block, tmp_path: Path) -> None:
    content = json.loads(block.text)
    if content.get("kind") == KIND:
        file = tmp_path / "kubelet-authenticator.json"
        file.write_text(block.text)
        assert configure(Given(config=str(file)), {}).provider


@pytest.mark.parametrize("block", in_language("toml"), ids=str)
def test_toml_is_read(block: Block) -> None:
    tomllib.loads(block.text)


@pytest.mark.parametrize("block", in_language("yaml"), ids=str)
def test_yaml_is_accepted(block: Block, api: EmbeddedAPI, tmp_path: Path) -> None:
    for document in safe_load_all(block.text):
        if document.get("kind") == "KubeadmControlPlane":
            assert_approves_nothing(document)
        elif document.get("kind") in ("AdmissionConfiguration", "Config"):
            pass  # files of kube-apiserver: tests/e2e/test_access_webhook_clients.py starts one with them
        elif "kind" in document:
            assert_applies(api, document)
        elif block.document.name in ("install.md", "first-cluster.md", "first-login.md") or "networkPolicy" in document:
            assert_configures_installation(document)
        elif block.document.name == "bastions.md":
            assert_configures_bastions(block.text, tmp_path / "bastions.yaml")
        else:
            file = tmp_path / "configuration.yaml"
            file.write_text(block.text)
            assert read_configuration_file(file) != ConfigurationFile()


def assert_configures_bastions(text: str, file: Path) -> None:
    """The bastion controller's configuration file, with settings that each provider takes."""
    file.write_text(text)
    configuration, registry = read_bastion_configuration(file), BastionRegistry()
    assert configuration.providers
    for name, allowed in configuration.providers.items():
        for settings in allowed.every_settings():
            registry.load(name).settings(SettingsDocuments(settings))


def assert_configures_installation(document: dict[str, Any]) -> None:
    """Values of the chart, which helm takes; or clusterctl's configuration file."""
    if "providers" not in document:
        try:
            assert render_chart(document)
        except MissingPart as missing:
            skip_or_fail(missing)
        return
    [provider] = document.pop("providers")
    assert f"addon-{provider['name']}" == PROVIDER_LABEL[1]
    assert provider["url"].endswith(f"/{PROVIDER_LABEL[1]}/v0.2.0/{COMPONENTS.name}")
    assert set(document) <= variables_of(COMPONENTS.read_text(encoding="utf-8"))


def assert_approves_nothing(control_plane: dict[str, Any]) -> None:
    """Cluster API's own kind, whose definition is not ours to install: its extra arguments have its version's form."""
    group, version = control_plane["apiVersion"].split("/")
    assert group == "controlplane.cluster.x-k8s.io"
    configuration = control_plane["spec"]["kubeadmConfigSpec"]["clusterConfiguration"]
    arguments = configuration["controllerManager"]["extraArgs"]
    if version == "v1beta2":
        arguments = {argument["name"]: argument["value"] for argument in arguments}
    # What kubeadm writes by itself, and without the approver.
    assert arguments == {"controllers": "*,bootstrapsigner,tokencleaner,-csrapproving"}


def assert_applies(api: EmbeddedAPI, manifest: dict[str, Any]) -> None:
    """Accepted by the API server, and nothing of it pruned as unknown."""
    stored = api.apply(manifest)
    assert _is_part_of(manifest, stored)


def _is_part_of(wanted: Any, stored: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(stored, dict) and all(
            key in stored and _is_part_of(value, stored[key]) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(stored, list)
            and len(wanted) == len(stored)
            and all(_is_part_of(one, other) for one, other in zip(wanted, stored, strict=True))
        )
    return bool(wanted == stored)


def test_a_misspelt_field_is_noticed(api: EmbeddedAPI) -> None:
    """The schema prunes it silently, as a real API server does: the check above would miss it without comparing."""
    manifest = {
        "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
        "kind": "NodeAttestationPolicy",
        "metadata": {"name": "misspelt", "namespace": "default"},
        "spec": {"authorizedAttestors": [{"name": "keyed-mac"}], "nodenamesource": "MachineName"},
    }
    with pytest.raises(AssertionError):
        assert_applies(api, manifest)


def test_there_are_commands() -> None:
    assert {words[0] for _, words in commands()} >= {"make", "kubectl", "node-attestation-controller"}


@pytest.mark.parametrize(
    ("block", "words"), commands(), ids=lambda value: None if isinstance(value, Block) else str(value)
)
def test_the_command_exists(block: Block, words: list[str]) -> None:
    program, *arguments = words
    if arguments[-2:-1] == [">"]:
        del arguments[-2:]
    match program:
        case "make":
            targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
            assert set(arguments) <= set(targets), block
        case "node-attestation-controller":
            assert isinstance(cli._parser().parse_args(arguments), argparse.Namespace)
        case "kubelet-authenticator":
            assert isinstance(authenticator_commands.parser().parse_args(arguments), argparse.Namespace)
        case "kubectl":
            check_kubectl(arguments)
        case "helm":
            assert arguments[0] in HELM_COMMANDS, block
            assert all((ROOT / word / "Chart.yaml").exists() for word in arguments if "/" in word), block
        case "clusterctl" if block.document.name == "install.md":
            assert arguments == ["init", "--addon", "node-attestation"], block
        case "podman":
            assert arguments[0] in ("build", "push"), block
            assert arguments[0] == "push" or (ROOT / arguments[-1] / "Containerfile").exists(), block
        case "python" if arguments[0].endswith(".py"):  # a file that the page shows
            assert f"`{arguments[0]}`:" in block.document.read_text(encoding="utf-8"), block
        case "python":
            assert arguments[0] == "-m", block
            assert importlib.util.find_spec(arguments[1]) is not None, block
        case _ if program in RUN_ELSEWHERE:
            assert block.document.name in ("tpm.md", "rotation.md"), block
        case "node-access-sessions" | "node-access-containers":
            assert arguments[0] in ("list", "run"), block
        case "node-access":
            given, _ = client.command_words(arguments)
            assert isinstance(client.parser().parse_args(given), argparse.Namespace)
        case "ssh" | "rsync" if block.document.name == "node-access.md":
            assert any(word.startswith("worker-1.production") for word in arguments), block
        case "ssh" | "scp" | "ssh-keygen" | "tee":
            assert block.document.name == "ssh.md", block
        case ".":
            assert arguments == [f"{DEFAULT_FOLDER}/{ENVIRONMENT}"], block
        case "sed":
            assert block.document.parent.name == "monitoring", block
        case "gcloud":
            assert block.document.name == "gcp.md", block
        case "kind" | "docker" | "clusterctl" | "helm" | "env":
            assert block.document.name == "quickstart-kind.md", block
        case "pip":
            assert arguments[0] == "install", block
            extras = re.fullmatch(r"(?:\.|/src)(?:\[([a-z,]+)\])?", arguments[1])
            assert extras is not None, block
            assert set((extras[1] or "").split(",")) - {""} <= set(project_extras()), block
        case _:
            pytest.fail(f"{block}: nobody checks {program}")


def project_extras() -> dict[str, Any]:
    extras: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return extras


def check_kubectl(arguments: list[str]) -> None:
    command, *rest = arguments
    assert command in KUBECTL_COMMANDS
    if command == "exec":
        check_exec(rest)
    elif rest[0] == "rolebinding":
        check_binding(dict(zip(rest[2::2], rest[3::2], strict=True)))
    elif command == "create" and rest[0] in ("namespace", "configmap"):
        assert rest[1]
        assert not rest[1].startswith("-")
    elif command in ("apply", "create", "replace"):
        assert rest[0] in ("-f", "--filename", "-k")
        in_playground = rest[1].removeprefix(f"{DEFAULT_FOLDER}/") in {f"{name}.yaml" for name in THEFTS}
        has_reader_write_it = any(one.text.startswith(f"# {rest[1]}\n") for one in in_language("yaml"))
        assert rest[1] == "-" or in_playground or has_reader_write_it or (ROOT / rest[1]).exists()
    else:
        assert rest[0] in our_resources() | BUILT_IN
    if command == "annotate":
        written = {word.partition("=")[0] for word in rest if "=" in word and not word.startswith("-")}
        assert written
        assert written <= ANNOTATIONS
    if command == "label":
        assert {word.partition("=")[0] for word in rest if "=" in word} <= LABELS


def check_exec(arguments: list[str]) -> None:
    """In the Pod of the chart, with the configuration file that is mounted there."""
    before, after = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    objects = list(safe_load_all(COMPONENTS.read_text(encoding="utf-8")))
    [deployment] = [one for one in objects if one["kind"] == "Deployment"]
    assert before == ["--namespace", "node-attestation-system", f"deployment/{deployment['metadata']['name']}"]
    assert after[0] == "node-attestation-controller"
    options = cli._parser().parse_args(after[1:])
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    environment = {one["name"]: one.get("value") for one in container["env"]}
    assert f"--config={options.config or environment[CONFIG_VARIABLE]}" in container["args"]
    assert environment[DEPLOYMENT_VARIABLE] == deployment["metadata"]["name"]


def check_binding(flags: dict[str, str]) -> None:
    """It binds a role that is there to the controller."""
    objects = list(safe_load_all(MANAGEMENT.read_text(encoding="utf-8")))
    found = {(one["kind"], one["metadata"]["name"]) for one in objects}
    namespace, account = flags["--serviceaccount"].split(":")
    assert {("ClusterRole", flags["--clusterrole"]), ("Namespace", namespace), ("ServiceAccount", account)} <= found


@pytest.mark.parametrize(
    "arguments",
    [
        ["get", "attestednode-s"],
        ["apply", "-f", "deploy/nowhere.yaml"],
        ["approve", "csr"],
        ["annotate", "machine", "worker-1", "tpm-endorsement-key=sha256:00"],
        ["label", "cluster", "production", "watch-filter=blue"],
    ],
    ids=["resource", "file", "command", "annotation", "label"],
)
def test_a_wrong_kubectl_command_is_noticed(arguments: list[str]) -> None:
    with pytest.raises(AssertionError):
        check_kubectl(arguments)
