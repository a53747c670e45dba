"""The kubeconfig that is written, read by the real kubectl: the same client-go that a kubelet has."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from authenticator.model.cluster import Cluster
from authenticator.model.exec_credential import parse_info
from authenticator.model.kubeconfig import cluster_of_exec_info, exec_info_bytes, exec_kubeconfig
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.kubectl import run_kubectl
from tests.unit.authenticator.builders import V1, V1BETA1, cluster, cluster_with_authorities, most_authorities

pytestmark = pytest.mark.slow

CLUSTER = cluster(server="https://192.0.2.1:6443", tls_server_name="kubernetes")
ARGUMENTS = ["credential", "--config", "/etc/kubernetes/a file.json"]


def kubectl(kubeconfig: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return run_kubectl(kubeconfig, arguments)
    except MissingPart as missing:
        skip_or_fail(missing)


def written(
    command: str | Path, api_version: str = V1, authority_file: str | Path = "/ca.crt", of: Cluster = CLUSTER
) -> str:
    return exec_kubeconfig(
        of, authority_file=str(authority_file), command=str(command), arguments=ARGUMENTS, api_version=api_version
    )


def plugin_in(folder: Path) -> Path:
    """A plugin that writes down its arguments and what client-go tells it, and fails."""
    plugin = folder / "kubelet-authenticator"
    info = f'printf %s "$KUBERNETES_EXEC_INFO" > {folder}/info'
    lines = [info, f'printf "%s\\n" "$@" > {folder}/args', "exit 7"]
    plugin.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    plugin.chmod(0o755)
    return plugin


@pytest.mark.parametrize("api_version", [V1, V1BETA1])
def test_kubectl_reads_every_field(api_version: str) -> None:
    done = kubectl(written("/opt/kubelet-authenticator", api_version), "config", "view", "--raw", "--output=json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["current-context"] == "kubelet@workload"
    assert document["clusters"][0]["cluster"] == {
        "server": CLUSTER.server,
        "tls-server-name": "kubernetes",
        "certificate-authority": "/ca.crt",
    }
    plugin = document["users"][0]["user"]["exec"]
    assert {name: value for name, value in plugin.items() if value is not None} == {
        "apiVersion": api_version,
        "command": "/opt/kubelet-authenticator",
        "args": ARGUMENTS,
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }


@pytest.mark.parametrize("api_version", [V1, V1BETA1])
def test_kubectl_runs_the_plugin_and_says_which_cluster_it_is_for(tmp_path: Path, api_version: str) -> None:
    """What it hands over is read back as the very cluster that was written."""
    plugin, authority_file = plugin_in(tmp_path), tmp_path / "ca.crt"
    authority_file.write_text(CLUSTER.certificate_authority)
    done = kubectl(written(plugin, api_version, authority_file), "get", "--raw", "/version")
    assert done.returncode != 0
    assert "failed with exit code 7" in done.stderr
    info = parse_info((tmp_path / "info").read_text())
    assert info.api_version == api_version
    assert info.cluster is not None
    assert cluster_of_exec_info(info.cluster) == CLUSTER
    assert (tmp_path / "args").read_text().splitlines() == ARGUMENTS


@pytest.mark.parametrize("name", ["", "kubernetes"])
@pytest.mark.parametrize(("more", "told"), [(-200, True), (0, True), (1, False), (200, False)])
def test_kubectl_runs_the_plugin_however_large_the_ca_is(tmp_path: Path, name: str, more: int, told: bool) -> None:
    """Its environment is as large as was computed; with one CA certificate more, Linux would start no program."""
    large = cluster_with_authorities(max(most_authorities(name) + more, 1), tls_server_name=name)
    authority_file = tmp_path / "ca.crt"
    authority_file.write_text(large.certificate_authority)
    text = written(plugin_in(tmp_path), V1, authority_file, large)
    assert ("provideClusterInfo: true" in text) is told
    done = kubectl(text, "get", "--raw", "/version")
    assert "failed with exit code 7" in done.stderr
    info = (tmp_path / "info").read_text()
    assert (parse_info(info).cluster is not None) is told
    if told:
        assert len(f"KUBERNETES_EXEC_INFO={info}\0") == exec_info_bytes(large, V1)
        return
    forced = kubectl(text.replace("provideClusterInfo: false", "provideClusterInfo: true"), "get", "--raw", "/version")
    assert "argument list too long" in forced.stderr
