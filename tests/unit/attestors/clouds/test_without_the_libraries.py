"""Everything but the calls themselves is there without google-auth and requests."""

from __future__ import annotations

import subprocess
import sys

BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("google", "requests", "urllib3"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""

IMPORTED = """
import attestors.clouds.google, attestors.clouds.google.credentials, attestors.tpm.shielded_vm
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


def test_importing_needs_no_library_of_googles() -> None:
    assert run(BLOCK + IMPORTED + "print('imported')") == "imported"


def test_importing_loads_none_either() -> None:
    found = "print([name for name in sys.modules if name.partition('.')[0] in ('google', 'requests', 'urllib3')])"
    assert run("import sys" + IMPORTED + found) == "[]"


def test_asking_says_what_is_missing() -> None:
    ask = """
from attestors.clouds.google import GoogleAccess, compute_engine
try:
    compute_engine(GoogleAccess())
except ImportError as error:
    print(error.name)
"""
    assert run(BLOCK + ask) in ("google", "requests")
