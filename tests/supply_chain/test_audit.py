"""An audit that could not ask is told from one that found nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.supply_chain.audit import EXIT_FOUND, EXIT_NOT_ASKED, EXIT_USAGE, main

SOUND = {"name": "one", "version": "1", "vulns": []}
FAULTY = {"name": "two", "version": "2", "vulns": [{"id": "PYSEC-2026-1", "fix_versions": ["3"]}]}
SILENT = {"name": "three", "skip_reason": "Dependency not found on PyPI and could not be audited"}


def program(folder: Path, output: str, code: int = 0) -> str:
    """A pip-audit that says this."""
    (folder / "output").write_text(output)
    file = folder / "pip-audit"
    file.write_text(f"#!/bin/sh\ncat {folder}/output\necho told at the end >&2\nexit {code}\n")
    file.chmod(0o755)
    return str(file)


def answer(*packages: object) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


def test_nothing_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([program(tmp_path, answer(SOUND))]) == 0
    assert capsys.readouterr().out == "0 known faults in 1 packages\n"


def test_a_fault_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([program(tmp_path, answer(SOUND, FAULTY, SILENT), 1)]) == EXIT_FOUND
    assert "two 2: PYSEC-2026-1, mended in 3" in capsys.readouterr().out


def test_a_package_of_which_nothing_is_said_is_not_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([program(tmp_path, answer(SOUND, SILENT))]) == EXIT_NOT_ASKED
    assert "not audited: 1 packages of which the database says nothing (three" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["", "{}", "[]", answer()], ids=["nothing", "empty", "list", "about nothing"])
def test_no_answer_is_not_a_good_one(tmp_path: Path, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([program(tmp_path, output, 1)]) == EXIT_NOT_ASKED
    assert "not audited: pip-audit" in capsys.readouterr().err


def test_no_pip_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "missing")]) == EXIT_NOT_ASKED
    assert "did not run" in capsys.readouterr().err
    assert main([]) == EXIT_USAGE
