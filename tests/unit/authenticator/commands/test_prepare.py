"""The command's own part: its options, and which program the kubelet is to run."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from authenticator import commands
from authenticator.model.failures import ExitCode
from tests.support.yaml_documents import safe_load
from tests.unit.authenticator.builders import V1, V1BETA1, as_yaml, bootstrap, kubeconfig
from tests.unit.authenticator.commands.conftest import Node


@pytest.fixture
def program(node: Node) -> Path:
    """This program, as it was called."""
    path = node.folder / "bin" / "kubelet-authenticator"
    path.parent.mkdir()
    path.write_text("")
    path.chmod(0o755)
    node.monkeypatch.setattr(sys, "argv", [str(path), "prepare"])
    return path


def stanza(node: Node) -> dict[str, object]:
    """The exec stanza that was written."""
    found: dict[str, object] = safe_load(node.kubeconfig.read_text())["users"][0]["user"]["exec"]
    return found


@pytest.mark.parametrize(
    ("arguments", "version"),
    [([], V1), (["--exec-api-version", V1], V1), (["--exec-api-version", V1BETA1], V1BETA1)],
    ids=["default", "v1", "v1beta1"],
)
@pytest.mark.parametrize("command", ["prepare", "agent"])
def test_the_api_version_of_the_stanza(command: str, arguments: list[str], version: str) -> None:
    assert commands.parser().parse_args([command, *arguments]).exec_api_version == version


def test_without_a_bootstrap_kubeconfig_there_is_nothing_to_do(node: Node, program: Path) -> None:
    with node.unchanged():
        code, output, log = node.run("prepare")
    assert (code, output) == (ExitCode.DONE, "")
    assert log == f"kubelet-authenticator: {node.kubeconfig}: no bootstrap kubeconfig: nothing to do\n"
    assert not node.kubeconfig.exists()


def test_a_bootstrap_kubeconfig_that_cannot_be_examined(node: Node, program: Path) -> None:
    """As in a folder that may not be searched, or under a name that no file system has."""
    path = node.folder / ("x" * 300)
    code, output, log = node.run("prepare", "--bootstrap-kubeconfig", str(path))
    assert (code, output) == (ExitCode.CONFIGURATION, "")
    assert log == f"kubelet-authenticator: bootstrap kubeconfig {path}: File name too long\n"


def test_the_kubelet_runs_this_program_as_it_was_called(node: Node, program: Path) -> None:
    node.bootstrap_kubeconfig.write_bytes(as_yaml(kubeconfig()))
    assert node.run("prepare", "--exec-api-version", V1BETA1)[0] == ExitCode.DONE
    assert stanza(node) == {
        "apiVersion": V1BETA1,
        "command": str(program),
        "args": ["credential", "--config", str(node.folder / "configuration.json")],
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    assert node.store.bootstrap() == bootstrap()
    assert node.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert "is up to date" in node.run("prepare", "--exec-api-version", V1BETA1)[2]


def test_a_link_stays_a_link(node: Node, program: Path) -> None:
    link = node.folder / "kubelet-authenticator"
    link.symlink_to(program)
    node.monkeypatch.setattr(sys, "argv", [str(link)])
    node.bootstrap_kubeconfig.write_bytes(as_yaml(kubeconfig()))
    node.run("prepare")
    assert stanza(node)["command"] == str(link)


@pytest.mark.parametrize("called", ["bin/other", "missing/kubelet-authenticator", "-c"])
def test_called_otherwise_it_is_looked_for_in_the_path(node: Node, program: Path, called: str) -> None:
    node.monkeypatch.setattr(sys, "argv", [str(node.folder / called)])
    node.monkeypatch.setenv("PATH", str(program.parent))
    node.bootstrap_kubeconfig.write_bytes(as_yaml(kubeconfig()))
    node.run("prepare")
    assert stanza(node)["command"] == str(program)


def test_a_program_that_no_kubelet_could_run_is_refused(node: Node, program: Path) -> None:
    program.chmod(0o644)
    node.monkeypatch.setattr(shutil, "which", lambda _name: None)
    node.bootstrap_kubeconfig.write_bytes(as_yaml(kubeconfig()))
    with node.unchanged():
        code, _, log = node.run("prepare")
    assert code == ExitCode.CONFIGURATION
    assert "kubelet-authenticator is not in PATH: a kubelet could not run it" in log


def test_another_programs_kubeconfig_is_left_alone(node: Node, program: Path) -> None:
    node.bootstrap_kubeconfig.write_bytes(as_yaml(kubeconfig()))
    node.kubeconfig.write_bytes(as_yaml(kubeconfig()))
    code, _, log = node.run("prepare")
    assert code == ExitCode.DONE
    assert "left the kubeconfig alone" in log
    assert node.kubeconfig.read_bytes() == as_yaml(kubeconfig())
