"""``docs/audit.md`` describes the lines that the code writes."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from signer.audit.access_line import EndLine, IssuanceLine
from signer.audit.canary_line import CanaryLine
from signer.audit.decision_inputs import DecisionInputs
from signer.audit.decision_line import DecisionLine
from signer.cli import main
from tests.documents.markdown import ROOT

DOCUMENT = (ROOT / "docs/audit.md").read_text(encoding="utf-8")
RECORDED = ROOT / "fixtures/audit/v1"


def fields_between(first: str, last: str) -> list[str]:
    """Names in the first column of the table between two texts."""
    part = DOCUMENT[DOCUMENT.index(first) : DOCUMENT.index(last)]
    rows = re.findall(r"^\| (`[^|]+) \|", part, re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


def test_every_field_is_explained() -> None:
    fields = {field.name for field in dataclasses.fields(DecisionLine)}
    assert set(fields_between("A decision also has", "A canary is the one certificate")) == fields
    canarys = {field.name for field in dataclasses.fields(CanaryLine)}
    assert set(fields_between("A canary is the one certificate", "`AccessIssued` has the certificates")) == canarys
    issuances = {field.name for field in dataclasses.fields(IssuanceLine)}
    assert set(fields_between("`AccessIssued` has the certificates", "The stages of `decision_inputs`")) == issuances
    ends = DOCUMENT[DOCUMENT.index("`AccessEnded` has") : DOCUMENT.index("The stages of `decision_inputs`")]
    assert set(re.findall(r"`([a-z_]+)`", ends)) == {field.name for field in dataclasses.fields(EndLine)}


def test_every_stage_is_explained_in_its_order() -> None:
    stages = [field.name for field in dataclasses.fields(DecisionInputs)]
    assert fields_between("The stages of `decision_inputs`", "No private key") == stages


def test_the_recorded_log_verifies_for_ever() -> None:
    assert main(["audit", "verify", str(RECORDED / "audit.log"), "--config", str(RECORDED / "config.yaml")]) == 0


def test_lines_are_told_from_those_of_a_containers_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [beginning] = re.findall(r"take the lines that begin with `([^`]+)`", DOCUMENT)
    recorded = (RECORDED / "audit.log").read_text(encoding="utf-8").splitlines(keepends=True)
    logged = json.dumps({"time": "2026-11-22T08:03:35Z", "level": "info", "message": "decided"})
    collected = "".join(f"{logged}\n{line}" for line in [*recorded, ""]).splitlines(keepends=True)
    taken = tmp_path / "taken.log"
    for lines, code in ((collected, 1), ([line for line in collected if line.startswith(beginning)], 0)):
        taken.write_text("".join(lines), encoding="utf-8")
        assert main(["audit", "verify", str(taken), "--config", str(RECORDED / "config.yaml")]) == code
    assert "The chain is intact; 3 decisions" in capsys.readouterr().out
