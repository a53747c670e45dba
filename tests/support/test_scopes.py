"""Which tests run on one worker, one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.conftest import scope_of

TESTS: Final = Path(__file__).parents[1]


def test_a_file_stays_on_one_worker() -> None:
    here = "tests/e2e/test_ipv6.py"
    assert scope_of(here) == here
    assert scope_of("tests/no_such_file.py") == "tests/no_such_file.py"


def test_files_that_use_the_real_control_plane_stay_together() -> None:
    files = ["tests/e2e/test_tpm.py", "tests/support/test_hollow_node.py", "tests/conformance/test_watches.py"]
    assert {scope_of(file) for file in files} == {"real_control_plane"}


@pytest.mark.parametrize("folder", ["kubeadm", "containers"])
def test_a_folder_of_nodes_stays_on_one_worker(folder: str) -> None:
    """Two kubelets would want the same ports; two nodes would wait for tests."""
    files = sorted(TESTS.glob(f"e2e/{folder}/test_*.py"))
    assert len(files) >= 2
    assert len({scope_of(str(file.relative_to(TESTS.parent))) for file in files}) == 1
