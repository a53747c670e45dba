"""Images and releases get files with recorded hashes only: pip refuses a file with another one, or with none."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.supply_chain.dependencies import (
    CONSTRAINTS,
    PRODUCT,
    RUNTIME_EXTRAS,
    NotInstalled,
    requirements_here,
    runtime_packages,
)
from tests.supply_chain.hashes import FOLDER, MalformedHashes, hashed_requirements, read

PYPROJECT: Final = tomllib.loads((CONSTRAINTS.parent / "pyproject.toml").read_text(encoding="utf-8"))
HASH: Final = "0" * 64


def version_in(line: str) -> str:
    """Name and version, without the marker: an extra may need a package on fewer platforms than all of them."""
    return line.partition(" ; ")[0]


def test_there_is_one_file_for_each_extra_one_for_nodes_and_one_for_builds() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == {"build", "node", *RUNTIME_EXTRAS}


@pytest.mark.parametrize("name", ["build", "node", *RUNTIME_EXTRAS])
def test_its_versions_are_the_tested_ones(name: str) -> None:
    tested = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    assert {version_in(line) for line in read(name)} <= {version_in(line) for line in tested}


def test_they_are_all_that_the_product_brings_along() -> None:
    try:
        packages = set(runtime_packages()) - {PRODUCT}
    except NotInstalled as missing:
        pytest.skip(str(missing))
    lines = {line for name in ("node", *RUNTIME_EXTRAS) for line in read(name)}
    assert {canonicalize_name(each.name) for each in requirements_here(lines)} == packages


def test_build_has_every_build_tool() -> None:
    """Also those of tpm2-pytss, which pip must not fetch by itself: the group names them."""
    named = {canonicalize_name(Requirement(line).name) for line in PYPROJECT["dependency-groups"]["build"]}
    hashed = {canonicalize_name(Requirement(line).name) for line in read("build")}
    needed = {canonicalize_name(Requirement(line).name) for line in PYPROJECT["build-system"]["requires"]}
    assert needed <= named <= hashed


@pytest.mark.parametrize(
    "text",
    [
        "a==1\n",
        f"a==1 \\\n    --hash=sha1:{'0' * 40}\n",
        f"a==1 \\\n    --hash=sha256:{HASH[1:]}\n",
        f"a>=1 \\\n    --hash=sha256:{HASH}\n",
        f"a @ https://packages.example/a.whl \\\n    --hash=sha256:{HASH}\n",
        "--index-url https://packages.example/simple\n",
        f"a==1 \\\n    --hash=sha256:{HASH}\na==1 \\\n    --hash=sha256:{HASH}\n",
        f"a==1 \\\n    --hash=sha256:{HASH}\nb==1\n",
        "",
    ],
    ids=["no hash", "weak hash", "short hash", "no version", "address", "index", "twice", "second without", "empty"],
)
def test_what_is_no_list_of_hashes(text: str) -> None:
    with pytest.raises(MalformedHashes):
        hashed_requirements(text)


BACKEND: Final = """\
from wheels import write

def build_wheel(folder, config_settings=None, metadata_directory=None):
    return write(folder, "product", "Requires-Dist: dependency")
"""
WHEELS: Final = """\
import zipfile

def write(folder, name, *lines):
    metadata = "\\n".join(["Metadata-Version: 2.1", f"Name: {name}", "Version: 1", *lines, ""])
    info, file = f"{name}-1.dist-info", f"{name}-1-py3-none-any.whl"
    form = "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    with zipfile.ZipFile(f"{folder}/{file}", "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(f"{info}/WHEEL", form)
        wheel.writestr(f"{info}/RECORD", f"{name}.py,,\\n{info}/METADATA,,\\n{info}/WHEEL,,\\n{info}/RECORD,,\\n")
    return file
"""


@dataclass(frozen=True)
class Project:
    """A project whose dependency and build tool are wheels in a folder, and its environment."""

    folder: Path

    @property
    def wheels(self) -> Path:
        return self.folder / "wheels"

    @property
    def hashes(self) -> Path:
        return self.folder / "project/requirements"

    def require(self, file: str, name: str, *options: str) -> None:
        (self.hashes / f"{file}.txt").write_text(" \\\n    ".join([f"{name}==1", *options]) + "\n")

    def hash_of(self, name: str) -> str:
        content = (self.wheels / f"{name}-1-py3-none-any.whl").read_bytes()
        return f"--hash=sha256:{hashlib.sha256(content).hexdigest()}"

    def change(self, name: str) -> None:
        """As a package index with another file under the same name would serve it."""
        with zipfile.ZipFile(self.wheels / f"{name}-1-py3-none-any.whl", "a") as wheel:
            wheel.comment = b"changed"

    def install(self, *extras: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_CACHE_DIR": "1",
        }
        command = [str(self.hashes / "install.sh"), sys.executable, str(self.folder / "environment"), *extras]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)

    def installed(self) -> set[str]:
        return {path.name.partition("-")[0] for path in self.folder.glob("environment/lib/*/site-packages/*.dist-info")}


@pytest.fixture
def offline(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    shutil.copytree(FOLDER, made.hashes)
    made.wheels.mkdir()
    project = made.hashes.parent
    (project / "wheels.py").write_text(WHEELS)
    (project / "backend.py").write_text(BACKEND)
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["tool"]\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    for name in ("tool", "dependency"):
        write = f"import wheels; wheels.write({str(made.wheels)!r}, {name!r})"
        subprocess.run([sys.executable, "-c", write], cwd=project, check=True)
    made.require("build", "tool", made.hash_of("tool"))
    made.require("node", "dependency", made.hash_of("dependency"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "environment"], check=True)
    return made


@pytest.mark.slow
def test_files_with_their_hashes_are_installed(offline: Project) -> None:
    done = offline.install()
    assert done.returncode == 0, done.stderr
    assert offline.installed() == {"dependency", "product"}


@pytest.mark.slow
def test_a_changed_file_is_refused(offline: Project) -> None:
    offline.change("dependency")
    done = offline.install()
    assert (done.returncode != 0, "DO NOT MATCH THE HASHES" in done.stderr) == (True, True), done.stderr
    assert offline.installed() == set()


@pytest.mark.slow
@pytest.mark.parametrize(("file", "name"), [("build", "tool"), ("node", "dependency")])
def test_a_file_without_a_hash_is_refused(offline: Project, file: str, name: str) -> None:
    offline.require(file, name)
    done = offline.install()
    assert (done.returncode != 0, "Hashes are required" in done.stderr) == (True, True), done.stderr
    assert offline.installed() == set()


@pytest.mark.slow
def test_an_extra_without_hashes_is_refused(offline: Project) -> None:
    done = offline.install("controller,unheard-of")
    assert (done.returncode, "no hashes for the extra unheard-of" in done.stderr) == (2, True), done.stderr
    assert offline.installed() == set()
