"""The offline commands load nothing of Kubernetes, and run where the controller's libraries are not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from signer.entry import _EXTRA
from signer.offline import COMMANDS
from signer.offline.main import _parser

pytestmark = pytest.mark.slow

WATCHED = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
sys.argv[1:] = {arguments!r}
from signer.entry import main
try:
    code = main()
finally:
    print(*sorted(sys.modules), file=sys.stderr)
sys.exit(code)
"""
FORBIDDEN = {
    *("aiohttp", "asyncio", "http", "kubernetes", "msgspec", "prometheus_client", "rich", "ssl"),
    *("signer.cli", "signer.configuration", "signer.controller", "signer.kube", "signer.store", "signer.model.record"),
}
SIGN = ("ssh-sign", "--master-secret", "master.json")


def run(*arguments: str) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    code = WATCHED.format(hidden=sorted(_EXTRA), arguments=list(arguments))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    return done, set(done.stderr.splitlines()[-1].split())


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "arguments",
    [
        (*SIGN, "ca"),
        (*SIGN, "ed25519.pub"),
        ("ssh-sign", "--authority", "authority.yaml", "ed25519.pub"),
        ("krl", "revoke", "7", "--file", "revoked.krl"),
    ],
    ids=["ca", "ssh-sign", "authority", "krl"],
)
def test_it_loads_nothing_of_kubernetes(arguments: tuple[str, ...]) -> None:
    done, modules = run(*arguments)
    assert (done.returncode, bool(done.stdout)) == (0, True), done.stderr
    assert "signer.offline.main" in modules
    assert modules & FORBIDDEN == set()


@pytest.mark.usefixtures("folder")
def test_ssh_by_exec_loads_nothing_of_kubernetes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "ssh").write_text("#!/bin/sh\nexit 7\n")
    (folder / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    done, modules = run(*SIGN, "--exec", "worker-1")
    assert done.returncode == 7, done.stderr
    assert modules & FORBIDDEN == set()


def test_the_entry_point_knows_every_offline_command() -> None:
    actions = [action for action in _parser()._actions if action.choices is not None]
    assert set(actions[0].choices or ()) == set(COMMANDS)


def test_other_commands_still_need_the_extra() -> None:
    done, _ = run("version", "--client")
    assert done.returncode == 2
