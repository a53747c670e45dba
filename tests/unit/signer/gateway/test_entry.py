"""The gateway's command line: what is wrong is said, with the flag, before anything runs."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from signer.gateway.entry import main
from tests.support.openssh import ssh_keygen


@pytest.fixture
def host_key(tmp_path: Path) -> Path:
    ssh_keygen("-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key").check_returncode()
    return tmp_path / "key"


def refused(capsys: pytest.CaptureFixture[str], key: Path, *arguments: str) -> str:
    assert main(["run", f"--host-key={key}", *arguments]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize("name", ["", "X", "a/../b", "a" * 64, "a.b"])
def test_a_namespace_that_is_none(name: str, host_key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--namespace must be a namespace" in refused(capsys, host_key, f"--namespace={name}")


def test_a_key_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"--host-key {tmp_path}/no: No such file" in refused(capsys, tmp_path / "no", "--namespace=a")


def test_an_address_that_is_none(host_key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--listen must be HOST:PORT" in refused(capsys, host_key, "--namespace=a", "--listen=22")


def test_an_address_in_use(host_key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing else is taken for it."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        where = [f"--listen=127.0.0.1:{port}", "--health-addr=", "--diagnostics-address="]
        said = refused(capsys, host_key, "--namespace=a", f"--kubeconfig={kubeconfig}", *where)
    assert f"--listen: cannot listen at 127.0.0.1:{port}: " in said
    assert "in use" in said


def test_a_missing_kubeconfig(host_key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no such file" in refused(capsys, host_key, "--namespace=a", "--kubeconfig=/nonexistent")


KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: a, user: {token: t}}]
"""
