"""What is changed, and which tests meet it: a change that is not made, or meets no test, would go unnoticed unseen."""

from __future__ import annotations

import importlib.util
import runpy
from pathlib import Path

import pytest

from tests.mutation import __main__ as run
from tests.mutation import reach
from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.reach import Recorder, function_key
from tests.mutation.runner import TESTS, _Changed, _function_code, _package

SOURCE = '''
from typing import overload

__all__ = ["judge"]

LIMIT = 4 * 1024


@overload
def judge(value: int) -> int: ...


def judge(value):
    """Of a number."""
    if value > LIMIT:
        raise ValueError("too large")
    return value


async def later(reader):
    number = reader.integer(2, "type")
    _LOG.info("read a number", extra={"number": 1})
    return number + 1
'''


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "module.py"
    path.write_text(SOURCE, "utf-8")
    return path


def changes(module: Path) -> dict[str, set[str]]:
    """By function, what each mutant has instead of what."""
    found: dict[str, set[str]] = {}
    for mutant in mutants_of(module):
        found.setdefault(mutant.function, set()).add(mutant.key.partition(" => ")[2])
    return found


def test_changes_are_those_of_the_function_that_they_are_in(module: Path) -> None:
    assert changes(module) == {
        "": {"LIMIT = (4 * 1024 + 1)", "LIMIT = (4 * 1024 - 1)"},
        "judge": {"if (not value > LIMIT):", "if (value >= LIMIT):", "pass"},
        "later": {
            "return (number - 1)",
            "return number + 2",
            "return number + (0)",
            'number = reader.integer(3, "type")',
            'number = reader.integer((1), "type")',
        },
    }


def test_the_code_that_is_replaced_is_not_an_overloads(module: Path) -> None:
    code = _function_code(compile(SOURCE, str(module), "exec"), "judge")
    assert "too large" in code.co_consts


def test_a_mutant_is_imported_as_if_it_stood_in_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that asks where a module stands would seem to notice each of its mutants."""
    monkeypatch.chdir(Path(__file__).parents[2])
    spec = _Changed(Mutant(Path("tests/mutation/reach.py"), "", "", "LIMIT = 1")).find_spec(reach.__name__, None)
    assert spec is not None
    assert spec.loader is not None
    changed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(changed)
    assert changed.LIMIT == 1
    assert (changed.__file__, changed.__name__, changed.__package__) == (
        reach.__file__,
        reach.__name__,
        reach.__package__,
    )


def test_tests_are_known_by_the_functions_that_they_run(module: Path) -> None:
    judge = runpy.run_path(str(module))["judge"]
    recorder = Recorder([module])
    recorder.run(3, lambda: judge(1))
    recorder.run(4, lambda: None)
    recorder.run(5, lambda: judge(2))
    assert recorder.reach == {function_key(module, "judge"): [3, 5]}


def test_every_target_is_there_and_has_tests() -> None:
    root = Path(__file__).parents[2]
    assert len(set(run.TARGETS)) == len(run.TARGETS)
    for target in run.TARGETS:
        assert (root / target).is_file()
        for place in TESTS[_package(Mutant(Path(target), "", "", ""))]:
            assert (root / place.rpartition("=")[2].partition("::")[0]).exists()


def test_what_is_listed_as_equivalent_has_a_reason() -> None:
    listed = run.equivalent()
    assert all(listed.values())
    assert {key.partition(": ")[0] for key in listed} <= set(run.TARGETS)


@pytest.mark.slow
def test_what_is_listed_as_equivalent_is_still_a_change_that_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of code that is gone it would fail a run that takes an hour, at its end."""
    monkeypatch.chdir(Path(__file__).parents[2])
    listed = run.equivalent()
    paths = {Path(key.partition(": ")[0]) for key in listed}
    assert set(listed) - {mutant.key for path in paths for mutant in mutants_of(path)} == set()
