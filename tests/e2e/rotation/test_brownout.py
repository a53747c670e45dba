"""T15: clients of the old CA that nobody knows of, found by the commands of docs/rotation.md on a real API server."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from signer.testing.api.kubeconfig import kubeconfig_of
from tests.documents.markdown import ROOT, blocks
from tests.support.api_servers import ApiServer, ReplicatedControlPlane
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.certificates import CertificateAuthority
from tests.support.kubectl import find_kubectl
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.skipif(
        "NODE_ATTESTATION_ROTATION" not in os.environ, reason="an API server reads its file twice: make rotation"
    ),
]
RELOAD_SECONDS: Final = 90.0
"""Kubernetes 1.20 looks at its files once a minute, newer versions at once."""
ROTATION: Final = "/etc/kubernetes/pki/rotation"
COUNTED: Final = 'authentication_attempts{result="error"}'


@pytest.fixture
def control_plane() -> Iterator[ReplicatedControlPlane]:
    """As it is in step SignServing: API servers present the new CA's certificates, and accept both CAs' clients."""
    old, new = CertificateAuthority.like_cluster_api(), CertificateAuthority.like_cluster_api()
    try:
        started = ReplicatedControlPlane(old, new)
    except MissingPart as missing:
        skip_or_fail(missing)
    with started:
        for server in started.servers:
            server.accept(old, new)
            server.present(new)
            server.restart()
        yield started


class Operator:
    """Runs the document's commands: those on the Machine in the API server's folder, and kubectl with a kubeconfig."""

    def __init__(self, control_plane: ReplicatedControlPlane, server: ApiServer, folder: Path) -> None:
        self._server = server
        authority = folder / "ca.crt"
        authority.write_bytes(control_plane.new.certificate_pem)
        connection = replace(
            control_plane.connection(control_plane.new), certificate_authority=control_plane.new.certificate_pem
        )
        self._kubeconfig = folder / "kubeconfig"
        self._kubeconfig.touch(mode=0o600)
        self._kubeconfig.write_text(kubeconfig_of(connection, "workload"), encoding="utf-8")
        self._places = {
            ROTATION: str(server.folder),
            "/etc/kubernetes/pki/ca.crt": str(authority),
            "https://ADDRESS:6443": server.server,
        }
        found = [block.text for block in blocks(ROOT / "docs/rotation.md")]
        self._blocks = [text for text in found if ROTATION in text or "/debug/flags/v" in text]

    def run(self, holding: str) -> str:
        """Run the block with that text; returns what it prints."""
        [commands] = [text for text in self._blocks if holding in text]
        for place, here in self._places.items():
            commands = commands.replace(place, here)
        environment = {
            "PATH": f"{find_kubectl().parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(self._kubeconfig),
            "HOME": str(self._kubeconfig.parent),
        }
        done = subprocess.run(
            ["/bin/sh", "-c", commands], capture_output=True, text=True, check=False, timeout=60, env=environment
        )
        assert not done.stderr, done.stderr
        return done.stdout

    def count(self) -> int:
        """What the document has the operator count."""
        line = next((line for line in self.run("/metrics").splitlines() if line.startswith(COUNTED)), "")
        return int(line.removeprefix(COUNTED) or 0)


def test_a_client_of_the_old_authority_shows_up(control_plane: ReplicatedControlPlane, tmp_path: Path) -> None:
    one, other = control_plane.servers
    operator = Operator(control_plane, one, tmp_path)
    log = control_plane.folder / "kube-apiserver-a.log"
    by_old = [
        RawClient(control_plane.connection(user="nobody-knows", groups=(), server=server.server))
        for server in (one, other)
    ]
    exchanged = RawClient(control_plane.connection(control_plane.new, user="known", groups=(), server=one.server))
    with by_old[0] as unknown, by_old[1] as elsewhere, exchanged:
        assert unknown.get("/version").status == 200
        before = operator.count()
        assert "resp=401" not in log.read_text(errors="replace")

        operator.run("client-ca.crt.new")
        wait_until(lambda: unknown.get("/version").status == 401, "the API server has read its file", RELOAD_SECONDS)
        assert elsewhere.get("/version").status == 200
        assert exchanged.get("/version").status == 200
        counted = operator.count()
        assert counted > before
        assert unknown.get("/version").status == 401
        assert operator.count() == counted + 1
        refused = [line for line in log.read_text(errors="replace").splitlines() if "resp=401" in line]
        assert refused
        assert all('srcIP="127.0.0.1:' in line and "userAgent=" in line for line in refused)

        operator.run(f"mv -f {ROTATION}/client-ca.crt.both")
        wait_until(lambda: unknown.get("/version").status == 200, "the old CA is accepted again", RELOAD_SECONDS)
        assert exchanged.get("/version").status == 200
    assert not (one.folder / "client-ca.crt.both").exists()
