"""``node-access`` without the controller's packages: as a package, and as a zipapp beside cryptography alone."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from node_access.client.archive import main
from tests.support.access_client import ROOT
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.kubectl import find_kubectl

pytestmark = pytest.mark.slow

NEEDED: Final = ("cryptography", "cffi", "_cffi_backend", "pycparser", "typing_extensions")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cryptography and what it needs, and nothing else that is installed."""
    folder = tmp_path_factory.mktemp("libraries")
    for name in NEEDED:
        found = importlib.util.find_spec(name)
        if found is not None and found.origin is not None:
            origin = Path(found.origin)
            source = origin.parent if origin.name == "__init__.py" else origin
            (folder / source.name).symlink_to(source)
    return folder


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zipapp that docs/node-access.md describes."""
    made = tmp_path_factory.mktemp("zipapp") / "node-access.pyz"
    assert main([str(made)]) == 0
    return made


def run(libraries: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Python without its own site-packages: only the standard library and those libraries."""
    return subprocess.run(
        [sys.executable, "-S", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PYTHONPATH": str(libraries), "PATH": os.environ["PATH"], "HOME": str(libraries)},
        cwd=libraries,
    )


def test_the_zipapp_needs_cryptography_alone(program: Path, libraries: Path) -> None:
    assert run(libraries, "-c", "import yaml").returncode != 0
    helped = run(libraries, program, "--help")
    assert helped.returncode == 0, helped.stderr
    assert "doctor" in helped.stdout
    listed = run(libraries, program, "grant", "list", "--kubectl", "no-such-kubectl", "--context", "x")
    assert listed.returncode == 1
    assert "no-such-kubectl is not installed" in listed.stderr


def test_the_zipapp_starts_its_background_process_from_itself(program: Path, libraries: Path) -> None:
    own = "from node_access.client.access import own_command; print(*own_command())"
    words = run(libraries, "-c", f"import sys; sys.path.insert(0, {str(program)!r}); {own}").stdout.split()
    assert words == [sys.executable, str(program)]
    again = run(libraries, *words[1:], "agent", "nowhere")
    assert again.returncode == 2
    assert "no live grant" in again.stderr


def test_the_package_needs_no_extra(libraries: Path, tmp_path: Path) -> None:
    for name in ("attestors", "node_access"):
        (tmp_path / name).symlink_to(ROOT / name)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from node_access.client import cli; cli.main(['--help'])"
    )
    assert run(libraries, "-c", code).returncode == 0


def test_it_is_installed_as_a_plugin_of_kubectl(libraries: Path) -> None:
    try:
        kubectl = find_kubectl()
    except MissingPart as missing:
        skip_or_fail(missing)
    for name in ("node-access", "kubectl-node_access"):
        script = Path(sys.prefix) / "bin" / name
        if not script.exists():
            pytest.skip(f"{name} is not installed: make again installs it")
        helped = subprocess.run([script, "--help"], capture_output=True, text=True, check=False)
        assert helped.returncode == 0
        assert helped.stdout.startswith(f"usage: {'kubectl node-access' if '_' in name else 'node-access'} ")
    environment = {"PATH": str(Path(sys.prefix) / "bin"), "HOME": str(libraries)}
    plugin = subprocess.run(
        [kubectl, "node-access", "grant", "list", "--help"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert plugin.stdout.startswith("usage: kubectl node-access grant list "), plugin.stderr
