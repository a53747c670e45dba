"""The hosted pipeline's files call make targets, with actions pinned by commit and without rights or secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.supply_chain.dependencies import CONSTRAINTS
from tests.support.yaml_documents import safe_load

ROOT: Final = CONSTRAINTS.parent
FOLDER: Final = ROOT / ".github/workflows"
WORKFLOWS: Final = sorted(FOLDER.glob("*"))
ACTIONS: Final = frozenset({"actions/checkout", "actions/setup-python", "actions/upload-artifact"})
USES: Final = re.compile(
    r"- uses: (?P<action>[\w/-]+)@(?P<commit>[0-9a-f]{40}) # (?P<version>v\d+\.\d+\.\d+)", re.ASCII
)
TARGETS: Final = set(re.findall(r"^([a-z-]+):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
OWN_RUNNER: Final = "self-hosted"


def problems(text: str) -> Iterator[str]:
    """Everything in a workflow that is against the rules."""
    workflow: Mapping[Any, Any] = safe_load(text)
    events = workflow[True]  # YAML 1.1 reads `on` as true
    if not set(events) <= {"pull_request", "push", "schedule", "workflow_dispatch"}:
        yield f"events {sorted(events)}"
    if workflow.get("permissions") != {}:
        yield "permissions of the workflow"
    if "secrets." in text:
        yield "secrets"
    if [line for line in text.splitlines() if "uses:" in line and USES.fullmatch(line.strip()) is None]:
        yield "an action that is not pinned"
    for name, job in workflow["jobs"].items():
        if set(job) - {"if", "runs-on", "timeout-minutes", "permissions", "env", "strategy", "steps"}:
            yield f"{name}: settings"
        if job.get("permissions") != {"contents": "read"} or "timeout-minutes" not in job:
            yield f"{name}: permissions or time limit"
        guarded = job.get("if") == "github.event_name != 'pull_request'"
        if OWN_RUNNER in job["runs-on"] and "pull_request" in events and not guarded:
            yield f"{name}: code of others on a runner of one's own"
        for step in job["steps"]:
            yield from (f"{name}: {problem}" for problem in step_problems(step))


def step_problems(step: Mapping[str, Any]) -> Iterator[str]:
    """Of one step: an action of :data:`ACTIONS`, or one make target."""
    if set(step) == {"run"}:
        words = str(step["run"]).split(" ")
        if words[0] != "make" or len(words) != 2 or words[1] not in TARGETS:
            yield f"not one make target: {step['run']!r}"
        return
    action = str(step.get("uses", "")).partition("@")[0]
    if action not in ACTIONS or not set(step) <= {"uses", "with"}:
        yield f"not an action that is known: {step!r}"
    if action == "actions/checkout" and step.get("with") != {"persist-credentials": False}:
        yield "the token stays in the working tree"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_each_workflow(path: Path) -> None:
    assert list(problems(path.read_text(encoding="utf-8"))) == []


def test_there_are_those_that_the_documents_name() -> None:
    page = (ROOT / "docs/development/releasing.md").read_text(encoding="utf-8")
    assert {path.name for path in WORKFLOWS} == set(re.findall(r"`\.github/workflows/([\w.-]+)`", page))


def test_one_action_has_one_commit() -> None:
    pins = {USES.search(line) for path in WORKFLOWS for line in path.read_text(encoding="utf-8").splitlines()}
    found = {(pin["action"], pin["commit"], pin["version"]) for pin in pins if pin is not None}
    assert {action for action, _, _ in found} == ACTIONS
    assert len(found) == len(ACTIONS)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("permissions: {}", "permissions: write-all", "permissions of the workflow"),
        ("contents: read", "contents: write", "permissions or time limit"),
        ("  pull_request:", "  pull_request_target:", "events"),
        ("# v7.0.1", "", "not pinned"),
        ("@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1", "@v7", "not pinned"),
        ("actions/checkout", "others/checkout", "not an action that is known"),
        ("          persist-credentials: false", "          persist-credentials: true", "the token stays"),
        ("make fast", "make fast && make release", "not one make target"),
        ("make fast", "make no-such-target", "not one make target"),
        ("make fast", "pip install .", "not one make target"),
        ("    if: github.event_name != 'pull_request'\n", "", "code of others"),
        ("    timeout-minutes: 15\n", "", "permissions or time limit"),
        ('"1"', "${{ secrets.KEY }}", "secrets"),
        ("      - run: make fast", "      - run: make fast\n        shell: sh", "not an action that is known"),
        ("    runs-on: ubuntu-24.04", "    runs-on: ubuntu-24.04\n    container: debian", "settings"),
    ],
)
def test_what_no_workflow_may_have(old: str, new: str, problem: str) -> None:
    text = (FOLDER / "test.yml").read_text(encoding="utf-8")
    assert old in text
    assert any(problem in each for each in problems(text.replace(old, new, 1)))


def test_dependabot_knows_every_folder_with_versions() -> None:
    updates = safe_load((ROOT / ".github/dependabot.yml").read_text(encoding="utf-8"))["updates"]
    folders = {one["package-ecosystem"]: one.get("directories", [one.get("directory")]) for one in updates}
    assert set(folders) == {"github-actions", "pip"}
    for folder in folders["pip"]:
        assert list((ROOT / folder.removeprefix("/")).glob("*.toml")) + list((ROOT / folder[1:]).glob("*.txt"))
