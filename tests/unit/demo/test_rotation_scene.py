"""The scene of ``make demo-rotation``: what it prints of a recorded run, and its exit code."""

from __future__ import annotations

import io
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from rich.console import Console

from signer.rotation.phases import WITHOUT_SPLIT
from signer.rotation.plan import TITLES
from tests.demo.rotation import __main__ as scene
from tests.demo.rotation.ending import Ending, Server, show
from tests.demo.rotation.steps import Requests, Steps
from tests.demo.terminal import Terminal, run_on_terminal
from tests.support.binaries import ASSETS_VARIABLE

RECORDED: Final = Path(__file__).parent / "recorded_watch.jsonl"
"""``rotate … status --watch --output json`` of both phases, of a whole run."""
NO_FAILURE: Final = Requests(1200, 0, ())
GOOD: Final = Ending("Completed", NO_FAILURE, (Server("a", True, True), Server("b", True, True)), "deleted")


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=80, highlight=False)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def play(console: Console) -> Steps:
    steps = Steps(console, lambda: NO_FAILURE, lambda: 42.0)
    for line in RECORDED.read_text("utf-8").splitlines():
        steps.take(line)
    return steps


def test_a_recorded_run_shows_every_step_once_and_in_order(console: Console) -> None:
    steps = play(console)
    lines = printed(console).splitlines()
    proven = [line.removeprefix("  ✓ ") for line in lines if line.startswith("  ✓ ")]
    assert proven == [TITLES[step] for step in WITHOUT_SPLIT]
    assert lines.count("    after 42 s; 1200 requests so far, 0 failed") == len(proven)
    assert any(line.startswith("    waits: API servers that ") for line in lines), "what lags is named"
    assert steps.current


def test_what_an_earlier_step_waited_for_is_not_shown_for_the_next_one(console: Console) -> None:
    play(console)
    lines = printed(console).splitlines()
    waiting = {line: lines[at + 1].strip() for at, line in enumerate(lines) if line.startswith("  → ")}
    assert list(waiting.values()) == [
        "waits: API servers that refuse client certificates of the new CA:",
        "waits: nodes whose newest client certificate is by the old CA: worker-1,",
        "waits: API servers that do not present a certificate of the new CA:",
        "waits: nodes whose newest serving certificate is by the old CA: worker-1,",
        "waits: API servers that still accept client certificates of the old CA:",
    ]


def test_it_fits_into_eighty_columns_without_colours(console: Console) -> None:
    play(console)
    show(replace(GOOD, requests=Requests(1200, 3, ("x" * 200,))), console, 100.0)
    assert max(map(len, printed(console).splitlines())) <= 80
    assert "\x1b" not in printed(console)


def test_all_is_well(console: Console) -> None:
    assert show(GOOD, console, 100.0) == 0
    text = printed(console)
    assert "✔ Requests made    1200\n" in text
    assert "✔ Requests failed  0\n" in text
    assert "✔ Old CA refused   at 2 of 2 API servers\n" in text
    assert "✔ Old CA's key     deleted\n" in text
    assert "✘" not in text


def test_one_failed_request_is_named_and_makes_the_exit_code_non_zero(console: Console) -> None:
    failed = Requests(1200, 0, ("12:00:00 Switch: worker-1 401",))
    assert show(replace(GOOD, requests=failed), console, 100.0) == 1
    assert "✘ Requests failed  1\n" in printed(console)
    assert "12:00:00 Switch: worker-1 401" in printed(console)


@pytest.mark.parametrize(
    "ending",
    [
        replace(GOOD, phase="Completing"),
        replace(GOOD, requests=Requests(0, 0, ())),
        replace(GOOD, servers=()),
        replace(GOOD, servers=(*GOOD.servers, Server("c", False, True))),
        replace(GOOD, servers=(*GOOD.servers, Server("c", True, False))),
        replace(GOOD, old_key="still in its Secret"),
        replace(GOOD, unexpected=("rotate default/blue preflight has ended with exit code 3, not 0",)),
    ],
)
def test_anything_else_that_is_wrong_does_too(ending: Ending, console: Console) -> None:
    assert show(ending, console, 100.0) == 1
    assert "✘" in printed(console)
    assert "NOT as expected" in printed(console)


def test_without_real_parts_it_says_how_to_install_them(
    console: Console, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(ASSETS_VARIABLE, str(tmp_path))
    assert scene.main(console) == 2
    assert "kube-apiserver is not in" in printed(console)
    assert "make provision" in printed(console)


def test_a_program_sees_a_terminal_and_its_question_is_answered_once() -> None:
    asks = (
        "import os, sys; print(os.isatty(1), os.get_terminal_size().columns);"
        "sys.stderr.write('Go on? [y/N] '); sys.stderr.flush();"
        "print(repr(sys.stdin.readline())); sys.exit(5)"
    )
    code, output = run_on_terminal([sys.executable, "-c", asks], 66, {})
    assert code == 5
    assert output.splitlines()[0] == "True 66"
    assert output.splitlines()[-1] == "'y\\n'"


def test_the_command_stands_above_its_output(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Terminal(console, {}).run("rotate", "--help") == 0
    assert printed(console).startswith("$ node-attestation-controller rotate --help\nusage: ")
    assert os.environ.get("TERM") is None or "\x1b" not in printed(console)
