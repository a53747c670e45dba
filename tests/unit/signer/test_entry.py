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
from signer.entry import main
sys.argv[1:] = ["crds"]
sys.exit(main())
"""


def run_without(module: str) -> subprocess.CompletedProcess[str]:
    code = HIDE_AND_RUN.format(hidden=module)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("module", ["aiohttp", "msgspec"])
def test_says_which_extra_to_install(module: str) -> None:
    ran = run_without(module)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        f"node-attestation-controller: {module} is not installed: pip install 'capi-node-attestation[controller]'\n"
    )


@pytest.mark.slow
def test_a_library_of_the_node_that_is_missing_is_no_matter_of_the_extra() -> None:
    ran = run_without("cryptography")
    assert ran.returncode == 1
    assert "No module named 'cryptography'" in ran.stderr


def test_the_extra_is_what_the_entry_point_takes_for_it() -> None:
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    named = {
        requirement.partition(">")[0].replace("-", "_")
        for requirement in project["optional-dependencies"]["controller"]
    }
    assert named == _EXTRA
