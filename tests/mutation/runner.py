"""Runs the fast tests against mutants, some at a time, each in a process of its own, forked with everything loaded.

A change inside a function replaces the code of that very function, and the tests that run it are run (``reach``). A
change outside (a list of checks, a set, a regular expression) may have been copied anywhere, so the module is imported
anew, with the tests, from the changed source: those that mirror it first, then all.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import pytest

from tests.mutation.mutants import Mutant
from tests.mutation.reach import Reach, Recorder, function_key

TESTS: Final = {
    "signer": ("tests/unit/signer/rules", "tests/unit/signer/model"),
    "signer/store": ("tests/unit/signer/store",),
    "signer/audit": ("tests/unit/signer/audit",),
    "signer/kube/http": ("tests/unit/signer/kube/http",),
    "authenticator": ("tests/unit/authenticator/model",),
    "node_access": (
        "tests/unit/node_access",
        "tests/deploy/test_ssh_image.py",
        # A program of its own, which no mutant reaches.
        "--ignore=tests/unit/node_access/test_command.py",
    ),
    "attestors/verdict.py": ("tests/unit/attestors/test_verdict.py",),
    "attestors/wire": ("tests/unit/attestors/wire",),
    "attestors/tpm": (
        "tests/unit/attestors/tpm",
        "--ignore=tests/unit/attestors/tpm/node",
        # They tell of time: on a busy machine of nothing else.
        "--deselect=tests/unit/attestors/tpm/endorsement_key_sources/test_listing.py::test_a_large_one_is_read_fast",
        "--deselect=tests/unit/attestors/tpm/endorsement_key_sources/test_fingerprint.py::test_one_made_to_be_slow_is_not",
    ),
}
"""The fast tests of each package: of several that a module is in, the innermost counts."""
_OPTIONS: Final = (
    # Our own pytest plugin makes pytest import all of signer through its rewriting hook, past the mutant.
    "--assert=plain",
    *("-s", "-x", "-o", "addopts=", "-W", "ignore::pytest.PytestAssertRewriteWarning"),
    *("-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:hypothesispytest"),
    *("-m", "not slow and not serial"),
    # Random: what only they notice would come and go.
    "--ignore-glob=*_properties.py",
)
_PROCESSOR_SECONDS: Final = 40
"""An endless loop has been noticed too."""
_SECONDS: Final = 300
"""And who waits for ever; a busy machine is no reason."""
_SURVIVED, _KILLED, _BROKEN = 0, 1, 2


class TestsFailUnchanged(Exception):
    """The tests fail without any change: there is nothing to measure."""


def survivors(mutants: Sequence[Mutant], processes: int, tell: Callable[[Mutant], None]) -> list[Mutant]:
    """The mutants that no test notices; ``tell`` hears of each at once.

    Raises:
        TestsFailUnchanged: see there.
    """
    outside = [mutant for mutant in mutants if not mutant.function]
    packages = dict.fromkeys(_package(mutant) for mutant in mutants)
    # First those that need a process without the modules: afterwards they are loaded here.
    for package in packages:
        originals = {mutant.path: mutant.original for mutant in outside if _package(mutant) == package}
        # All at once: that they are imported from elsewhere must be nothing that a test notices.
        unchanged = [Mutant(path, "", original, original) for path, original in originals.items()]
        if len(_run_all(unchanged[:1], 1, lambda _, unchanged=unchanged: _run_fresh(*unchanged))) != len(unchanged[:1]):
            raise TestsFailUnchanged
    found = _run_all(outside, processes, _run_fresh, tell)
    for package in packages:
        inside = [mutant for mutant in mutants if mutant.function and _package(mutant) == package]
        loop = _Loop(inside, processes, tell)
        pytest.main([*_OPTIONS, *TESTS[package]], plugins=[loop])
        if loop.failed_unchanged:
            raise TestsFailUnchanged
        if not loop.finished:
            raise RuntimeError(f"mutants of {package} could not be run")
        found += loop.survivors
    alive = {id(mutant) for mutant in found}
    return [mutant for mutant in mutants if id(mutant) in alive]


def _package(mutant: Mutant) -> str:
    return max((package for package in TESTS if mutant.path.is_relative_to(package)), key=len)


class _Loop:
    """In place of pytest's own loop: the collected tests, run once per mutant."""

    def __init__(self, mutants: Sequence[Mutant], processes: int, tell: Callable[[Mutant], None]) -> None:
        self._mutants = mutants
        self._processes = processes
        self._tell = tell
        self.failed_unchanged = True
        self.finished = False
        self.survivors: list[Mutant] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed or not session.items:
            return True
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as noted:
            self.failed_unchanged = _run_all([None], 1, lambda _: self._run_noting(session, Path(noted.name))) == []
            if self.failed_unchanged:
                return True
            reach = json.load(noted)

        def run(mutant: Mutant) -> int:
            return _run_swapped(session, mutant, reach)

        self.survivors = _run_all(self._mutants, self._processes, run, self._tell)
        self.finished = True
        return True

    def _run_noting(self, session: pytest.Session, noted: Path) -> int:
        recorder = Recorder({mutant.path for mutant in self._mutants})
        result = _run_items(session, list(enumerate(session.items)), recorder)
        noted.write_text(json.dumps(recorder.reach), "utf-8")
        return result


def _run_all(
    mutants: Iterable[Any], processes: int, run: Any, tell: Callable[[Any], object] = lambda _: None
) -> list[Any]:
    """Fork ``run(mutant)`` for each; those whose tests all passed."""
    running: dict[int, Any] = {}
    found: list[Any] = []
    waiting: Iterator[Any] = iter(mutants)
    exhausted = False
    while running or not exhausted:
        while not exhausted and len(running) < processes:
            try:
                mutant = next(waiting)
            except StopIteration:
                exhausted = True
            else:
                running[_fork(run, mutant)] = mutant
        if running:
            process, status = os.wait()
            mutant = running.pop(process)
            code = os.waitstatus_to_exitcode(status)
            if code == _BROKEN:
                raise RuntimeError(f"could not run {mutant.key}")
            if code == _SURVIVED:
                found.append(mutant)
                tell(mutant)
    return found


def _fork(run: Any, mutant: Any) -> int:
    process = os.fork()
    if process:
        return process
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    signal.alarm(_SECONDS)
    signal.setitimer(signal.ITIMER_PROF, _PROCESSOR_SECONDS)
    code = _BROKEN
    try:
        code = run(mutant)
    finally:
        os._exit(code)


def _run_items(
    session: pytest.Session, items: Sequence[tuple[int, pytest.Item]], recorder: Recorder | None = None
) -> int:
    for index, (number, item) in enumerate(items):
        following = items[index + 1][1] if index + 1 < len(items) else None

        def run(item: pytest.Item = item, following: pytest.Item | None = following) -> None:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)

        if recorder is None:
            run()
        else:
            recorder.run(number, run)
        if session.testsfailed:
            return _KILLED
    return _SURVIVED


def _run_swapped(session: pytest.Session, mutant: Mutant, reach: Reach) -> int:
    module = importlib.import_module(_module_name(mutant.path))
    code = _function_code(
        compile(mutant.source, str(mutant.path.resolve()), "exec", dont_inherit=True), mutant.function
    )
    _function(module, mutant.function).__code__ = code
    mirror = f"test_{mutant.path.stem}"
    reaching = [(number, session.items[number]) for number in reach.get(function_key(mutant.path, mutant.function), ())]
    return _run_items(session, sorted(reaching, key=lambda item: not item[1].path.name.startswith(mirror)))


def _function_code(code: CodeType, name: str) -> CodeType:
    # The last of a name counts: those before it are overloads.
    for constant in reversed(code.co_consts):
        if isinstance(constant, CodeType):
            if constant.co_qualname == name:
                return constant
            if name.startswith(f"{constant.co_qualname}."):
                return _function_code(constant, name)
    raise LookupError(name)


def _function(module: ModuleType, name: str) -> FunctionType:
    *classes, last = name.split(".")
    owner: Any = module
    for part in classes:
        owner = getattr(owner, part)
    found = vars(owner)[last]
    if isinstance(found, classmethod | staticmethod):
        found = found.__func__
    if isinstance(found, property):
        found = found.fget
    found = inspect.unwrap(found)  # from a cache
    assert isinstance(found, FunctionType)
    return found


def _run_fresh(*mutants: Mutant) -> int:
    """All of one package."""
    for mutant in mutants:
        try:
            compile(mutant.source, str(mutant.path), "exec", flags=ast.PyCF_ONLY_AST)
        except SyntaxError:
            return _BROKEN
        sys.meta_path.insert(0, _Changed(mutant))
    mirrors = [
        str(path)
        for mutant in mutants
        for path in Path("tests/unit").joinpath(mutant.path.parent).glob(f"test_{mutant.path.stem}*")
    ]
    # Together: Hypothesis does not let a process collect the same test twice, and a mutant would seem to be noticed.
    if pytest.main([*_OPTIONS, *mirrors, *TESTS[_package(mutants[0])]]) != pytest.ExitCode.OK:
        return _KILLED
    return _SURVIVED


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.ExecutionLoader):
    """Imports one module from a mutant's source, as if it stood in its file: tests may ask where that is."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname != _module_name(self._mutant.path):
            return None
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=self.get_filename(fullname))
        spec.has_location = True
        return spec

    def get_filename(self, fullname: str) -> str:
        return str(self._mutant.path.resolve())

    def get_source(self, fullname: str) -> str:
        return self._mutant.source


def _module_name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts)
