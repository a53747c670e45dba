"""The archive of the node's programs, in a root file system that has a shell, and neither Python nor a C library."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, node_of
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.node_program import NodeProgram

pytestmark = [pytest.mark.slow]

ROOT: Final = Path(__file__).parents[3]
FREEZE: Final = ROOT / "deploy" / "node" / "archive" / "freeze.py"
PREFIX: Final = "opt/kubelet-authenticator"
PROGRAM: Final = f"/{PREFIX}/bin/kubelet-authenticator"


def run(*words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=check, timeout=300)


def has_tpm_library() -> bool:
    """As in the test's own environment, where it has been built already."""
    return importlib.util.find_spec("tpm2_pytss") is not None


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment as the page makes it, with an attestor of another distribution."""
    folder = tmp_path_factory.mktemp("environment") / "node"
    run(sys.executable, "-m", "venv", folder)
    extras = "tpm" if has_tpm_library() else ""
    run(ROOT / "requirements/install.sh", sys.executable, folder, extras, ROOT / "tests" / "attestor_plugin")
    return folder


@pytest.fixture(scope="module")
def archive(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "node.tar.gz"
    run(environment / "bin" / "python", FREEZE, "--output", path)
    return path


@pytest.fixture(scope="module")
def root(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root file system with busybox and the archive."""
    busybox = shutil.which("busybox")
    if os.geteuid() != 0 or busybox is None:
        skip_or_fail(MissingPart("a root file system without Python needs root, and busybox-static"))
    folder = tmp_path_factory.mktemp("root")
    for name in ("bin", "dev", "etc", "proc", "tmp"):
        (folder / name).mkdir()
    shutil.copy(busybox, folder / "bin" / "busybox")
    (folder / "bin" / "sh").symlink_to("busybox")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="tar")
    return folder


@dataclass
class InRoot(NodeProgram):
    """Runs the archive's program inside the root file system, where the folder has the same path as outside."""

    root: Path = Path("/")

    def command_line(self, command: str, *arguments: str) -> Sequence[str]:
        return ["chroot", str(self.root), PROGRAM, command, "--config", str(self.configuration), *arguments]


@pytest.fixture
def program(root: Path, tmp_path: Path, harness: Harness) -> tuple[InRoot, WorldCluster]:
    cluster = harness.cluster()
    cluster.add_machine("frozen", provider_id="test:///frozen", addresses=[("Hostname", "frozen")])
    harness.run()
    outside = tmp_path / "node"
    inside = root / outside.relative_to("/")
    inside.mkdir(parents=True)
    outside.symlink_to(inside)
    return InRoot(outside, node_of(cluster, "frozen"), root=root), cluster


def test_a_node_without_python_joins(program: tuple[InRoot, WorldCluster]) -> None:
    node, cluster = program
    node.supply_bootstrap(cluster)
    assert node.run("prepare").exit_code == 0
    certificate = node.credential().certificate()
    assert certificate.subject.rfc4514_string() == "CN=system:node:frozen,O=system:nodes"
    assert node.credential().certificate() == certificate, "the stored one"
    status = node.run("status")
    assert (status.exit_code, "system:node:frozen" in status.output) == (0, True), status.log


IMPORTS: Final = "import _ctypes, _ssl, cryptography.x509, sys, yaml; print('ready', flush=True); sys.stdin.read()"
TPM: Final = "import ctypes, tpm2_pytss; ctypes.CDLL('libtss2-tcti-device.so.0')"
"""The second library is found by its name when the node's TPM is opened."""


def test_the_archive_finds_nothing_outside(root: Path) -> None:
    """Each library comes from the archive, the environment is ignored, and nothing is written."""
    if has_tpm_library():
        done = run("chroot", root, f"/{PREFIX}/bin/python3", "-I", "-c", TPM, check=False)
        assert done.returncode == 0, done.stderr
    before = sorted(str(path) for path in root.rglob("*"))
    started = subprocess.Popen(
        ["chroot", root, f"/{PREFIX}/bin/python3", "-I", "-c", IMPORTS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONHOME": "/nowhere", "PYTHONPATH": "/tmp", "LD_LIBRARY_PATH": "/lib", "PATH": os.environ["PATH"]},
    )
    with started:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        lines = Path(f"/proc/{started.pid}/maps").read_text().splitlines()
        started.communicate()
    mapped = {line.split()[-1].removeprefix(str(root)) for line in lines if "/" in line}
    assert any(path.endswith("/libc.so.6") for path in mapped)
    assert {path for path in mapped if not path.startswith(f"/{PREFIX}/")} == set()
    assert sorted(str(path) for path in root.rglob("*")) == before


def test_the_archive_has_the_nodes_half_alone(archive: Path) -> None:
    with tarfile.open(archive) as packed:
        members = packed.getmembers()
        contents = json.load(packed.extractfile(f"{PREFIX}/share/contents.json"))  # type: ignore[arg-type]
    names = [member.name for member in members]
    assert [name for name in names if f"{PREFIX}/" not in f"{name}/"] == []
    programs = {name.rpartition("/")[2] for name in names if name.startswith(f"{PREFIX}/bin/")}
    assert programs == {"python3", "kubelet-authenticator", "node-access-containers", "node-access-sessions"}
    manual = {name.rpartition("/")[2] for name in names if f"{PREFIX}/share/man/man1/" in name}
    assert {f"{program}.1" for program in programs - {"python3"}} <= manual
    assert not {name for name in manual if name.startswith(("node-attestation", "node-access-gateway"))}
    assert [name for name in names if "/site-packages/signer" in name or "/site-packages/pip" in name] == []
    assert {"capi-node-attestation", "cryptography", "PyYAML"} <= set(contents["distributions"])
    assert [member.name for member in members if member.mode & 0o6022 or member.uid or member.gid or member.mtime] == []
    assert [member.name for member in members if not (member.isfile() or member.isdir())] == []


def test_two_runs_write_the_same_bytes(archive: Path, environment: Path, tmp_path: Path) -> None:
    again = tmp_path / "node.tar.gz"
    run(environment / "bin" / "python", FREEZE, "--output", again)
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(archive.read_bytes()).digest()
    assert (
        archive.with_name("node.tar.gz.sha256").read_text().split()[0] == hashlib.sha256(again.read_bytes()).hexdigest()
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--prefix", "opt/x"), "is not an absolute path"),
        (("--prefix", "/opt/a b"), "is not an absolute path"),
        ((), "run it with the interpreter of a virtual environment"),
    ],
)
def test_what_it_refuses(words: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    base = Path(sys._base_executable)  # type: ignore[attr-defined]
    done = run(base, FREEZE, "--output", tmp_path / "node.tar.gz", *words, check=False)
    assert (done.returncode, expected in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "node.tar.gz").exists()
