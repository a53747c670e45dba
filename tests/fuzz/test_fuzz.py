"""Every target keeps its contract: for its whole corpus, and for a number of changed inputs."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fuzz import seeds
from tests.fuzz.mutations import change_document
from tests.fuzz.table import ALL, CORPUS, TARGETS, corpus_of
from tests.fuzz.target import BrokenContract, Target
from tests.support.cpu_time import within_cpu_seconds

SECONDS = 1.0
"""Of CPU for one input, read twice; most take a millisecond."""
RUNS = 1500
"""For each target; a number of inputs and no time, so that a slow machine tries as much."""

targets = pytest.mark.parametrize("target", [pytest.param(target, id=target.name) for target in ALL])


@pytest.mark.slow
@targets
@pytest.mark.filterwarnings("default")  # the library warns of what it reads; how loud it is, is not the contract
def test_the_corpus(target: Target) -> None:
    inputs = corpus_of(target)
    assert inputs
    for file in inputs:
        data = file.read_bytes()
        target.run(data)  # the first one imports much
        within_cpu_seconds(SECONDS, functools.partial(target.run, data), file.name)  # other clusters wait meanwhile


@targets
@pytest.mark.filterwarnings("default")
def test_something_in_the_corpus_is_accepted(target: Target) -> None:
    """Or only refusals would be tried. What a cloud refuses is refused with an outcome."""
    if target.name == "aws-caller-refused":
        return
    for file in corpus_of(target):
        with contextlib.suppress(*target.refusals):
            target.read(file.read_bytes())
            return
    raise AssertionError("every input is refused")


def test_names_are_unique_and_nothing_else_is_in_the_corpus() -> None:
    assert len(TARGETS) == len(ALL)
    assert {folder.name for folder in CORPUS.iterdir() if folder.is_dir()} == set(TARGETS)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_seeds_can_be_made_again_and_replace_nothing(tmp_path: Path) -> None:
    written = seeds.write(tmp_path)
    assert {file.parent.name for file in written} == set(TARGETS)
    written[0].write_bytes(b"found long ago")
    assert seeds.write(tmp_path) == []
    assert written[0].read_bytes() == b"found long ago"


@pytest.mark.slow
def test_changed_inputs(tmp_path: Path) -> None:
    if find_spec("atheris") is None:
        pytest.skip("atheris is not installed (no package for this Python or machine): the corpus alone was read")
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--runs", str(RUNS), "--seed", "1", "--findings", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert [line.split() for line in done.stdout.splitlines()[:-1]] == [[name, "kept"] for name in TARGETS]
    for name in TARGETS:
        ran = re.search(r"Done (\d+) runs", (tmp_path / name / "log").read_text(errors="replace"))
        assert ran is not None, f"{name} ended early"
        assert int(ran[1]) >= RUNS


# The targets themselves: a parser that breaks its contract is found.


def test_another_exception_than_the_declared_ones_comes_through() -> None:
    def read(data: bytes) -> object:
        raise KeyError(data)

    with pytest.raises(KeyError):
        Target("broken", read, (ValueError,)).run(b"x")


@pytest.mark.parametrize("message", ["", "x" * 2000], ids=["says nothing", "without bound"])
def test_a_refusal_that_nobody_can_show(message: str) -> None:
    def read(data: bytes) -> object:
        raise ValueError(message)

    with pytest.raises(BrokenContract, match="refusal"):
        Target("broken", read, (ValueError,)).run(b"x")


def test_a_value_without_bound() -> None:
    with pytest.raises(BrokenContract, match="characters"):
        Target("broken", lambda data: data * 10**6).run(b"x")


def test_a_value_that_is_another_the_second_time() -> None:
    with pytest.raises(BrokenContract, match="twice"):
        Target("broken", lambda data: object()).run(b"x")


def test_documents_are_changed_inside() -> None:
    document = b'{"spec": {"request": "AAAAAAAAAAAAAAAAAAAA", "usages": ["a", "b"]}}'
    changed = {change_document(document, 4096, seed, lambda content, maximum: content[::-1]) for seed in range(100)}
    assert len(changed) > 20
    assert sum(text.startswith(b'{"') for text in changed) > 15


def test_documents_within_documents_are_changed_inside() -> None:
    within = json.dumps({"a": "b", "c": ["d"]})
    document = json.dumps([within]).encode()
    changed = {change_document(document, 4096, seed, lambda content, maximum: b'["x"]') for seed in range(200)}
    lists = [found for text in changed if isinstance(found := json.loads(text), list)]
    assert len({line for found in lists for line in found if str(line).startswith('{"')} - {within}) > 5


@pytest.mark.parametrize("content", [b"no JSON", b"[" * 100_000], ids=["text", "deep"])
def test_what_is_no_document_is_changed_as_bytes(content: bytes) -> None:
    assert change_document(content, 4096, 1, lambda content, maximum: b"changed") == b"changed"
