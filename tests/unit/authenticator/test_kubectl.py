"""The kubeconfig that is written, read by the real kubectl: the same client-go that a kubelet has."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from authenticator.model.exec_credential import parse_info
from authenticator.model.kubeconfig import cluster_of_exec_info, exec_kubeconfig
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.kubectl import run_kubectl
from tests.unit.authenticator.builders import V1, V1BETA1, authority, cluster, encoded

pytestmark = pytest.mark.slow

CLUSTER = cluster(server="https://192.0.2.1:6443", tls_server_name="kubernetes")
ARGUMENTS = ["credential", "--config", "/etc/kubernetes/a file.json"]


def kubectl(kubeconfig: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return run_kubectl(kubeconfig, arguments)
    except MissingPart as missing:
        skip_or_fail(missing)


def written(command: str | Path, api_version: str = V1) -> str:
    return exec_kubeconfig(CLUSTER, command=str(command), arguments=ARGUMENTS, api_version=api_version)


@pytest.mark.parametrize("api_version", [V1, V1BETA1])
def test_kubectl_reads_every_field(api_version: str) -> None:
    done = kubectl(written("/opt/kubelet-authenticator", api_version), "config", "view", "--raw", "--output=json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["current-context"] == "kubelet@workload"
    assert document["clusters"][0]["cluster"] == {
        "server": CLUSTER.server,
        "tls-server-name": "kubernetes",
        "certificate-authority-data": encoded(authority()),
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
    plugin = tmp_path / "kubelet-authenticator"
    lines = [f'printf %s "$KUBERNETES_EXEC_INFO" > {tmp_path}/info', f'printf "%s\\n" "$@" > {tmp_path}/args', "exit 7"]
    plugin.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    plugin.chmod(0o755)
    done = kubectl(written(plugin, api_version), "get", "--raw", "/version")
    assert done.returncode != 0
    assert "failed with exit code 7" in done.stderr
    info = parse_info((tmp_path / "info").read_text())
    assert info.api_version == api_version
    assert info.cluster is not None
    assert cluster_of_exec_info(info.cluster) == CLUSTER
    assert (tmp_path / "args").read_text().splitlines() == ARGUMENTS
