"""Each command in the documents is run by a test, or a reason says why it is not; and no such entry is stale."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.documents.command_runs import TABLE, Entry, NotRun, RunBy, handling_of
from tests.documents.markdown import ROOT, Block
from tests.documents.test_blocks import commands

COMMANDS = commands()


@pytest.mark.parametrize(
    ("block", "command"), COMMANDS, ids=lambda value: str(value) if isinstance(value, Block) else value[0]
)
def test_it_is_run_or_a_reason_says_why_not(block: Block, command: list[str]) -> None:
    handling = handling_of(block.document, command)
    assert handling is not None, "add it to tests/documents/command_runs.py: the test that runs it, or why none does"


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: f"{entry.document} {entry.words}")
def test_no_entry_is_stale(entry: Entry) -> None:
    counted = [
        command
        for block, command in COMMANDS
        if next((one for one in TABLE if one.fits(block.document, command)), None) is entry
    ]
    assert counted, "no command of the documents needs it"


@pytest.mark.parametrize("test", sorted({one.handling.test for one in TABLE if isinstance(one.handling, RunBy)}))
def test_the_test_is_there(test: str) -> None:
    path, _, name = test.partition("::")
    module = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    names = {node.name for node in module.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in names


def test_every_reason_is_a_sentence() -> None:
    for entry in TABLE:
        if isinstance(entry.handling, NotRun):
            assert len(entry.handling.reason.split()) > 3


def test_a_command_that_nobody_knows_is_noticed() -> None:
    assert handling_of(ROOT / "docs/operating.md", ["kubectl", "delete", "namespace"]) is None
    assert handling_of(Path(ROOT / "docs/elsewhere.md"), ["kubectl", "get"]) is None
