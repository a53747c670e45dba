"""``node-access-bastions run`` as a process, with real sshd: what survives its SIGKILL, and what does not."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from attestors.wire.ssh.signatures import public_key_of
from signer.bastions.host_keys import HostKeySecret
from signer.model.access.bastion import FINALIZER
from signer.testing.api import EmbeddedAPI
from tests.support.access_objects import bastion_object
from tests.support.bastions.definition import BASTION_DEFINITION
from tests.support.bastions.local_cloud import LocalCloud
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.closing import ClosedAtTheEnd
from tests.support.openssh import ssh_keygen
from tests.support.processes import Program, Programs, free_port, wait_until

NAMESPACE: Final = "team-a"
PLURAL: Final = "bastions.access.cluster.x-k8s.io"
SECRET: Final = b"s" * 32
WHOLE: Final = os.environ.get("NODE_ATTESTATION_ACCESS") == "1"


class Controllers(ClosedAtTheEnd):
    """An embedded API, this machine as cloud, and controllers one after the other."""

    def __init__(self) -> None:
        """Raises ``MissingPart``."""
        self.cloud = LocalCloud()
        self.api = EmbeddedAPI()
        self.api.__enter__()
        self._programs = Programs("node-access-bastions-run-")
        self.api.create(BASTION_DEFINITION)
        self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        folder = self._programs.folder
        self._kubeconfig, self._secret, self._configuration = (folder / name for name in ("kube", "secret", "config"))
        self._kubeconfig.write_text(self.api.kubeconfig())
        self._secret.write_bytes(SECRET)
        local = {"namespaces": [NAMESPACE], "settings": dict(self.cloud.settings)}
        # JSON is YAML. The owner is the one that the fake looks for.
        self._configuration.write_text(json.dumps({"owner": "suite", "providers": {"local": local}}))

    def start(self) -> Program:
        """Start one, and wait until it is ready."""
        port = free_port()
        program = self._programs.start(
            f"controller-{port}",
            [
                *(sys.executable, "-m", "signer.bastions.entry", "run"),
                f"--kubeconfig={self._kubeconfig}",
                f"--config={self._configuration}",
                f"--host-key-secret={self._secret}",
                f"--diagnostics-address=127.0.0.1:{port}",
                "--insecure-diagnostics",
            ],
        )
        program.wait_ready(lambda: _ask(port, "readyz") == "ok")
        self.port = port
        return program

    def make(self) -> str:
        """Make a Bastion; returns its UID."""
        end = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        manifest = bastion_object(ingress=[{"ipBlock": {"cidr": "127.0.0.1/32"}}], notAfter=end)
        manifest["metadata"] = {"name": "repair", "namespace": NAMESPACE}
        return str(self.api.create(manifest)["metadata"]["uid"])

    def bastion(self) -> dict[str, Any]:
        """The object."""
        return self.api.get(PLURAL, "repair", NAMESPACE)

    def is_ready(self) -> bool:
        """Whether the status says so."""
        conditions = self.bastion().get("status", {}).get("conditions") or [{}]
        return bool(conditions[0].get("status") == "True")

    def close(self) -> None:
        """End everything."""
        self._programs.close()
        self.api.__exit__(None, None, None)
        self.cloud.close()


def _ask(port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


@pytest.fixture
def controllers() -> Iterator[Controllers]:
    try:
        made = Controllers()
    except MissingPart as missing:
        skip_or_fail(missing)
    with made:
        yield made


def test_a_bastion_from_object_to_nothing(controllers: Controllers) -> None:
    program = controllers.start()
    uid = controllers.make()
    wait_until(controllers.is_ready, "the bastion is ready")
    status = controllers.bastion()["status"]
    key = public_key_of(HostKeySecret(SECRET).key_of(uid).private_key())
    assert key.fingerprint in _fingerprint(status["hostKeys"][0])
    with socket.create_connection((status["ingress"]["ip"], status["ingress"]["port"]), timeout=10) as connection:
        assert connection.recv(4) == b"SSH-"
    assert "node_access_bastions 1.0" in _ask(controllers.port, "metrics")

    # A SIGKILL ends no bastion, and the next process finds it.
    os.kill(program.process.pid, signal.SIGKILL)
    program.process.wait(10)
    before = sorted(controllers.cloud.resources(uid))
    assert len(before) == controllers.cloud.complete()
    second = controllers.start()
    # Its look at the port is a connection, which is one process more for a moment.
    wait_until(lambda: sorted(controllers.cloud.resources(uid)) == before, "the bastion is as it was")

    controllers.api.delete(PLURAL, "repair", NAMESPACE)
    wait_until(lambda: not controllers.cloud.resources(uid), "nothing is left")
    second.stop()
    assert second.process.returncode == 0, second.log_tail()


@pytest.mark.parametrize("milliseconds", [1, 20, 60, 150] if WHOLE else [20])
def test_a_kill_at_any_time_leaks_nothing(controllers: Controllers, milliseconds: int) -> None:
    program = controllers.start()
    uid = controllers.make()
    wait_until(lambda: FINALIZER in controllers.bastion()["metadata"].get("finalizers", []), "the finalizer")
    # At a moment that depends on the machine: whichever it is, what follows must be right.
    with pytest.raises(subprocess.TimeoutExpired):
        program.process.wait(milliseconds / 1000)
    os.kill(program.process.pid, signal.SIGKILL)
    program.process.wait(10)
    controllers.api.delete(PLURAL, "repair", NAMESPACE)
    controllers.start()
    wait_until(lambda: not controllers.cloud.resources(uid), "nothing is left")
    wait_until(lambda: not _names(controllers.api), "the object has gone")


def _names(api: EmbeddedAPI) -> list[str]:
    return [one["metadata"]["name"] for one in api.objects(PLURAL)]


def _fingerprint(line: str) -> str:
    return ssh_keygen("-l", "-f", "-", standard_input=line.encode()).stdout


def test_an_unknown_setting_ends_the_program(controllers: Controllers, tmp_path: Path) -> None:
    configuration = tmp_path / "config"
    configuration.write_text("owner: suite\nproviders: {local: {settings: {address: 127.0.0.1, pasword: hunter2}}}\n")
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "signer.bastions.entry", "run"),
            f"--kubeconfig={controllers._kubeconfig}",
            f"--config={configuration}",
            f"--host-key-secret={controllers._secret}",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 2
    assert "there is no setting 'pasword'" in ran.stderr
    assert "hunter2" not in ran.stderr
