"""What needs no TPM imports without tpm2-pytss, and what needs it says so."""

from __future__ import annotations

import subprocess
import sys

import pytest

_WITHOUT = "import sys; sys.modules['tpm2_pytss'] = None\n"


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT + program], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("module", ["challenge", "device", "deadline", "responses", "settings", "templates"])
def test_import(module: str) -> None:
    done = run(f"import attestors.tpm.node.{module}")
    assert (done.returncode, done.stderr) == (0, "")


def test_agent_plugin_names_what_is_missing() -> None:
    done = run("try:\n    import attestors.tpm.node.plugin\nexcept ImportError as error:\n    print(error.name)\n")
    assert (done.stdout, done.stderr) == ("tpm2_pytss\n", "")
