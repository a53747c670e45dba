"""Runs ``kubelet-authenticator`` as on a node, with a folder for its files.

The program runs in a process of its own, as with client-go.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cryptography import x509

from signer.testing.api.kubeconfig import kubeconfig_of
from signer.testing.nodes import SimulatedNode
from signer.testing.world import WorldCluster
from tests.support.processes import wait_until

V1: Final = "client.authentication.k8s.io/v1"
V1BETA1: Final = "client.authentication.k8s.io/v1beta1"
PROGRAM: Final = Path(sys.executable).with_name("kubelet-authenticator")
RUN_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Ran:
    """The result of a run."""

    exit_code: int
    output: str
    log: str

    def certificate(self) -> x509.Certificate:
        """The certificate printed for client-go."""
        assert self.exit_code == 0, self.log
        return x509.load_pem_x509_certificate(json.loads(self.output)["status"]["clientCertificateData"].encode())


@dataclass
class NodeProgram:
    """One node's files in a test's folder."""

    folder: Path
    node: SimulatedNode
    """The node's name, provider ID and attestor."""
    timeout: float = 20.0
    extra: Mapping[str, Any] = field(default_factory=dict)
    """More keys of the configuration file."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.configure()

    @property
    def store(self) -> Path:
        """The folder of the node's keys and certificates."""
        return self.folder / "pki"

    @property
    def client_pair(self) -> Path:
        """The client certificate and its key."""
        return self.store / "kubelet-authenticator-client.pem"

    @property
    def serving_pair(self) -> Path:
        """The serving certificate and its key."""
        return self.store / "kubelet-authenticator-serving.pem"

    @property
    def configuration(self) -> Path:
        """The configuration file."""
        return self.folder / "kubelet-authenticator.json"

    @property
    def bootstrap_kubeconfig(self) -> Path:
        """The bootstrap kubeconfig, as from kubeadm."""
        return self.folder / "bootstrap-kubelet.conf"

    @property
    def kubeconfig(self) -> Path:
        """The kubelet's kubeconfig."""
        return self.folder / "kubelet.conf"

    def configure(self, **changes: Any) -> None:
        """Write the configuration file."""
        content = {
            "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
            "kind": "KubeletAuthenticatorConfiguration",
            "provider": self.node.provider,
            "settings": dict(self.node.settings),
            "nodeName": self.node.node_name,
            "providerID": self.node.provider_id,
            "bootstrapKubeconfig": str(self.bootstrap_kubeconfig),
            "kubeconfig": str(self.kubeconfig),
            "store": str(self.store),
            "timeoutSeconds": self.timeout,
            **self.extra,
            **changes,
        }
        self.configuration.write_text(json.dumps(content))

    def supply_bootstrap(self, cluster: WorldCluster, token: str | None = None) -> str:
        """Write the bootstrap kubeconfig as kubeadm does; returns the token."""
        given = token or cluster.api.bootstrap_token()
        self.bootstrap_kubeconfig.write_text(kubeconfig_of(cluster.api.token_connection(given), cluster.name))
        self.bootstrap_kubeconfig.chmod(0o600)
        return given

    def run(
        self,
        command: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        seconds: float = RUN_SECONDS,
    ) -> Ran:
        """Run one command of the program to its end."""
        done = subprocess.run(
            self.command_line(command, *arguments),
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            env=self.environment(environment),
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def start(
        self, command: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start one command of the program; the caller must end it."""
        return subprocess.Popen(
            self.command_line(command, *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(environment),
        )

    def credential(self, api_version: str = V1, cluster: Mapping[str, Any] | None = None, **options: Any) -> Ran:
        """Run the plugin as client-go does."""
        return self.run("credential", environment=exec_info(api_version, cluster), **options)

    def renewed(self) -> Ran:
        """Run the plugin repeatedly, as a kubelet does, until it prints another certificate than the stored one.

        On a busy machine a renewal takes longer than a kubelet waits. It continues in the background, and writes to the
        log.
        """
        former = x509.load_pem_x509_certificate(self.client_pair.read_bytes())
        log = self.folder / "renewal.log"
        runs: list[Ran] = []

        def came() -> bool:
            with log.open("a") as file:
                done = subprocess.run(
                    self.command_line("credential"),
                    stdout=subprocess.PIPE,
                    stderr=file,
                    text=True,
                    check=False,
                    timeout=RUN_SECONDS,
                    env=self.environment(exec_info()),
                )
            runs.append(Ran(done.returncode, done.stdout, log.read_text()))
            return runs[-1].certificate() != former

        wait_until(came, "the next certificate is printed", timeout=RUN_SECONDS)
        return runs[-1]

    def command_line(self, command: str, *arguments: str) -> Sequence[str]:
        """The program with this node's configuration."""
        return [str(PROGRAM), command, "--config", str(self.configuration), *arguments]

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """An environment with only PATH from the test's own, and ``more``."""
        return {"PATH": f"{PROGRAM.parent}:{os.environ.get('PATH', '')}", "HOME": str(self.folder), **(more or {})}


def exec_info(api_version: str = V1, cluster: Mapping[str, Any] | None = None) -> dict[str, str]:
    """The environment that client-go gives its plugins."""
    spec: dict[str, Any] = {"interactive": False}
    if cluster is not None:
        spec["cluster"] = dict(cluster)
    return {"KUBERNETES_EXEC_INFO": json.dumps({"kind": "ExecCredential", "apiVersion": api_version, "spec": spec})}
