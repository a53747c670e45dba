"""The attestor of ``docs/writing-an-attestor.md`` is built from that page alone, and found by the controller.

It is given another name first: nothing of the example that is installed for the other tests can stand in for it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.documents.markdown import ROOT

pytestmark = pytest.mark.slow

PAGE: Final = ROOT / "docs/writing-an-attestor.md"
FILE: Final = re.compile(r"^`(?P<name>[\w/.]+)`:\n\n```\w+\n(?P<content>.*?)^```$", re.MULTILINE | re.DOTALL)
TESTS: Final = "test_keyed_mac.py"


def another_name(text: str) -> str:
    return text.replace("keyed-mac", "readers-own").replace("keyed_mac", "readers_own")


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    """The files that the page shows, under another name."""
    text = PAGE.read_text(encoding="utf-8")
    return {another_name(match["name"]): another_name(match["content"]) for match in FILE.finditer(text)}


@pytest.fixture(scope="module")
def package(files: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a reader makes of them."""
    folder = tmp_path_factory.mktemp("attestor")
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(content, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def installed(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has put it; no registry is asked."""
    target = tmp_path_factory.mktemp("installed")
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(target)]
    run(package, [sys.executable, "-m", "pip", "install", *options, str(package)])
    return target


def run(folder: Path, command: list[str], path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHONPATH"))}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done


def test_the_page_has_every_file_of_the_example(files: Mapping[str, str]) -> None:
    example = ROOT / "tests/attestor_plugin"
    wanted = {str(path.relative_to(example)) for path in example.rglob("*.py")} | {"pyproject.toml"}
    assert set(files) == {another_name(name) for name in wanted | {TESTS}}


def test_the_controller_finds_it_and_its_tests_pass(package: Path, installed: Path) -> None:
    """The page's own tests start the real controller, which knows the attestor by its entry point alone."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", another_name(TESTS)]
    done = run(package, command, installed)
    assert "5 passed" in done.stdout, done.stdout


def test_its_types_are_checked_against_ours(package: Path, installed: Path, tmp_path: Path) -> None:
    """Also those of :mod:`signer.testing`, which its tests use."""
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        str(tmp_path),
        "readers_own",
        another_name(TESTS),
    ]
    assert "Success" in run(package, command, installed).stdout


@pytest.mark.parametrize(
    "mistake", [("def pre_filter(", "def look_at("), ("async def verify_serving(", "def verify_serving(")]
)
def test_a_type_checker_sees_what_a_half_lacks(package: Path, tmp_path: Path, mistake: tuple[str, str]) -> None:
    written = tmp_path / "readers_own"
    shutil.copytree(package / "readers_own", written)
    plugin = written / "controller.py"
    text = plugin.read_text(encoding="utf-8")
    assert mistake[0] in text
    plugin.write_text(text.replace(*mistake), encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "readers_own"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert 'variable has type "Attestor"' in done.stdout, done.stdout


def test_the_node_program_finds_it(installed: Path, tmp_path: Path) -> None:
    program = "from attestors.registry import Registry; print(Registry().load('readers-own').description.provider)"
    assert run(tmp_path, [sys.executable, "-c", program], installed).stdout == "readers-own\n"


def test_without_it_nothing_is_found(tmp_path: Path) -> None:
    program = "from attestors.registry import Registry; print('readers-own' in Registry().providers)"
    assert run(tmp_path, [sys.executable, "-c", program]).stdout == "False\n"
