"""What ``docs/audit.md`` says of lines and flags is what the code writes and takes."""

from __future__ import annotations

import dataclasses
import re

from signer.audit.account import Account
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
    assert set(fields_between("A decision has besides", "The stages of `account`")) == fields


def test_every_stage_is_explained_in_its_order() -> None:
    stages = [field.name for field in dataclasses.fields(Account)]
    assert fields_between("The stages of `account`", "No private key") == stages


def test_the_recorded_log_verifies_for_ever() -> None:
    assert main(["audit", "verify", str(RECORDED / "audit.log"), "--config", str(RECORDED / "config.yaml")]) == 0
