"""``node-attestation-controller`` where the controller's libraries are not installed."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from signer.entry import _EXTRA

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"
HIDE_AND_RUN = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
{program}
"""
CONTROLLER = """
from signer.entry import main
sys.argv[1:] = {arguments!r}
sys.exit(main())
"""
EMBEDDED_API = """
from signer.testing.opening import open_management_cluster
with open_management_cluster():
    pass
"""


def run_without(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_hiding(module, CONTROLLER.format(arguments=list(arguments)))


def run_hiding(module: str, program: str) -> subprocess.CompletedProcess[str]:
    code = HIDE_AND_RUN.format(hidden=module, program=program)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("module", ["aiohttp", "msgspec"])
def test_says_which_extra_to_install(module: str) -> None:
    ran = run_without(module, "status")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        f"node-attestation-controller: {module} is not installed: pip install 'capi-node-attestation[controller]'\n"
    )


@pytest.mark.slow
def test_says_so_of_a_library_that_is_imported_late() -> None:
    ran = run_without("kubernetes", "status")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        "node-attestation-controller: kubernetes is not installed: pip install 'capi-node-attestation[controller]'\n"
    )


@pytest.mark.slow
def test_the_embedded_api_says_which_distribution_to_install() -> None:
    """An attestor's author has a checkout of the project, with the main distribution installed from it alone."""
    ran = run_hiding("aiohttp", EMBEDDED_API)
    last = "ModuleNotFoundError: aiohttp is not installed: pip install 'capi-node-attestation-testing'"
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (1, last)


@pytest.mark.slow
def test_the_embedded_api_says_nothing_of_it_where_another_library_is_missing() -> None:
    ran = run_hiding("yaml", EMBEDDED_API)
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (1, "ModuleNotFoundError: No module named 'yaml'")


@pytest.mark.slow
def test_a_library_of_the_node_that_is_missing_is_no_matter_of_the_extra() -> None:
    ran = run_without("cryptography", "status")
    assert ran.returncode == 1
    assert "No module named 'cryptography'" in ran.stderr


def test_the_extra_is_what_the_entry_point_takes_for_it() -> None:
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    named = {
        requirement.partition(">")[0].replace("-", "_")
        for requirement in project["optional-dependencies"]["controller"]
    }
    assert named == _EXTRA
