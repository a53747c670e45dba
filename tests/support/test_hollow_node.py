"""A real kubelet registers its Node with a credential plugin's certificate."""

from __future__ import annotations

import base64
import json
import re
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.binaries import ControlPlaneBinaries, MissingPart, skip_or_fail
from tests.support.control_plane import ControlPlane
from tests.support.exec_kubeconfig import EXEC_API_VERSION, exec_kubeconfig
from tests.support.hollow_node import HollowNode
from tests.support.processes import ProgramFailed
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.real, pytest.mark.slow]

# Records its input, then prints the prepared answer, or fails without one.
PLUGIN = """
import json, os, sys
from pathlib import Path

calls, answer = Path(sys.argv[1]), Path(sys.argv[2])
call = {
    "info": json.loads(os.environ["KUBERNETES_EXEC_INFO"]),
    "standard input": sys.stdin.read(),
    "folder": os.getcwd(),
    "of the kubeconfig": os.environ.get("OF_THE_KUBECONFIG"),
    "of the kubelet": os.environ.get("OF_THE_KUBELET"),
}
with calls.open("a") as file:
    file.write(json.dumps(call) + "\\n")
if not answer.exists():
    sys.exit("This machine has nothing to show.")
print(answer.read_text())
"""
SINCE_INTERACTIVE = (1, 22)
REFUSAL = "This machine has nothing to show."


class Plugin:
    """The plugin of one node, in a test's folder."""

    def __init__(self, folder: Path, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane
        self._script = folder / "plugin.py"
        self._script.write_text(PLUGIN)
        self._calls = folder / "calls"
        self._answer = folder / "answer"

    def answer_with_certificate(self, node_name: str) -> None:
        """Make the plugin print a certificate of the cluster CA, without an expiration."""
        certificate, key = self._control_plane.ca.issue_client(f"system:node:{node_name}", ["system:nodes"])
        status = {"clientCertificateData": certificate.decode(), "clientKeyData": key.decode()}
        document = {"apiVersion": EXEC_API_VERSION, "kind": "ExecCredential", "status": status}
        self._answer.write_text(json.dumps(document))

    def kubeconfig(self, *, provide_cluster_info: bool = True) -> str:
        return exec_kubeconfig(
            self._control_plane.server,
            self._control_plane.ca_certificate_pem,
            sys.executable,
            [self._script, self._calls, self._answer],
            {"OF_THE_KUBECONFIG": "1"},
            provide_cluster_info=provide_cluster_info,
        )

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The input of each call, the oldest first."""
        return [json.loads(line) for line in self._calls.read_text().splitlines()] if self._calls.exists() else []


@pytest.fixture
def kubemark(real_control_plane: ControlPlane) -> Path:
    try:
        return real_control_plane.binaries.kubemark()
    except MissingPart as missing:
        skip_or_fail(missing)


@pytest.fixture
def admin(real_control_plane: ControlPlane) -> Iterator[RawClient]:
    with RawClient(real_control_plane.connection()) as client:
        yield client


@pytest.fixture
def node_name() -> str:
    return f"hollow-{secrets.token_hex(4)}"


@pytest.fixture
def plugin(real_control_plane: ControlPlane, tmp_path: Path) -> Plugin:
    return Plugin(tmp_path, real_control_plane)


def not_interactive(control_plane: ControlPlane) -> dict[str, Any]:
    """The field ``interactive``, which newer kubelets send to the plugin."""
    return {"interactive": False} if control_plane.binaries.kubernetes() >= SINCE_INTERACTIVE else {}


def test_kubelet_is_ready_with_the_plugins_certificate(
    real_control_plane: ControlPlane, kubemark: Path, admin: RawClient, node_name: str, plugin: Plugin
) -> None:
    plugin.answer_with_certificate(node_name)
    with HollowNode(node_name, plugin.kubeconfig(), environment={"OF_THE_KUBELET": "1"}, binary=kubemark) as node:
        registered = node.wait_registered(admin)
        assert registered["spec"]["providerID"] == f"kubemark://{node_name}"
        ready = node.wait_ready(admin)
        assert ready["metadata"]["uid"] == registered["metadata"]["uid"]
        folder = str(node.folder)
        node.remove_from(admin)
    assert admin.get(f"/api/v1/nodes/{node_name}").status == 404
    # One call for all clients and requests: the credential has no expiration, and the API server never answered 401.
    assert plugin.calls == [
        {
            "info": {
                "apiVersion": EXEC_API_VERSION,
                "kind": "ExecCredential",
                "spec": {
                    "cluster": {
                        "server": real_control_plane.server,
                        "certificate-authority-data": base64.b64encode(real_control_plane.ca_certificate_pem).decode(),
                        "config": None,
                    },
                    **not_interactive(real_control_plane),
                },
            },
            "standard input": "",
            "folder": folder,
            "of the kubeconfig": "1",
            "of the kubelet": "1",
        }
    ]


def test_kubelet_without_a_credential_does_not_register_and_logs_the_plugins_output(
    real_control_plane: ControlPlane, kubemark: Path, admin: RawClient, node_name: str, plugin: Plugin
) -> None:
    kubeconfig = plugin.kubeconfig(provide_cluster_info=False)
    # The messages of older and of newer versions.
    refused = rf'Unable to register node ("{node_name}" with API server|with API server" .*node="{node_name}")'
    with HollowNode(node_name, kubeconfig, binary=kubemark) as node:
        node.wait_until(
            lambda: re.search(refused, node.log) is not None,
            "the kubelet has tried to register",
        )
        assert f"{REFUSAL}\n" in node.log
        assert f"getting credentials: exec: executable {sys.executable} failed with exit code 1" in node.log
        assert admin.get(f"/api/v1/nodes/{node_name}").status == 404
        # It retries, and the plugin may succeed later.
        plugin.answer_with_certificate(node_name)
        node.wait_ready(admin)
        node.remove_from(admin)
    # The variable is set even without provideClusterInfo.
    assert len(plugin.calls) > 1
    told = json.dumps(not_interactive(real_control_plane))
    assert {json.dumps(call["info"]["spec"]) for call in plugin.calls} == {told}


def test_kubelet_that_does_not_start_is_reported_with_the_reason(
    kubemark: Path, node_name: str, plugin: Plugin
) -> None:
    kubeconfig = plugin.kubeconfig().replace(EXEC_API_VERSION, "client.authentication.k8s.io/v0")
    with pytest.raises(ProgramFailed, match=r'invalid apiVersion \\?"client.authentication.k8s.io/v0\\?"'):
        HollowNode(node_name, kubeconfig, binary=kubemark)


def test_missing_kubemark_is_reported_in_one_line(tmp_path: Path) -> None:
    binaries = ControlPlaneBinaries(Path("/bin/true"), Path("/bin/true"), tmp_path)
    with pytest.raises(MissingPart, match=r"^kubemark is not in .*provision.sh.*$"):
        binaries.kubemark()
