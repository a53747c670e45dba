"""What ``docs/testing.md`` says is there for the test suites of others; its example is a test of its own."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from typing import Final

import pytest

from tests.documents.markdown import ROOT

PAGE: Final = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
MODULES: Final = re.findall(r"`((?:signer|attestors)\.[a-z_.]+)`", PAGE.partition("## What else is public")[2])
WITHOUT_PYTEST: Final = "import sys; sys.modules['pytest'] = None; "


def run(program: str) -> str:
    command = [sys.executable, "-W", "error", "-c", WITHOUT_PYTEST + program]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.slow
def test_a_join_without_pytest() -> None:
    path = ROOT / "tests/documents/example_without_pytest.py"
    assert run(f"import runpy; runpy.run_path({str(path)!r})") == "AssertedInsecurely\n"


@pytest.mark.slow
def test_only_the_fixtures_need_pytest() -> None:
    others = [module for module in MODULES if module != "signer.testing.fixtures"]
    assert len(others) >= 10
    run(f"import importlib; [importlib.import_module(module) for module in {others!r}]")


@pytest.mark.slow
def test_the_page_names_what_is_there() -> None:
    """The names in the table's second column, each in its row's module."""
    rows = re.findall(r"^\| `(signer\.[a-z_.]+)` \| (.+) \|$", PAGE, re.MULTILINE)
    named = [(module, name) for module, what in rows for name in re.findall(r"`([A-Za-z_]{4,})(?:\(\w*\))?`", what)]
    # ``faults`` and ``requests`` are attributes of EmbeddedAPI, and ``attestation_controller`` is a fixture.
    wanted = [(module, name) for module, name in named if name not in {"faults", "requests", "attestation_controller"}]
    assert len(wanted) >= 12
    assert [(module, name) for module, name in wanted if not hasattr(importlib.import_module(module), name)] == []
