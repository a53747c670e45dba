"""The product and its test harness are two distributions: what each wheel holds, and both installed together."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement

ROOT: Final = Path(__file__).parents[2]
HARNESS: Final = ROOT / "signer/testing"
PRODUCT: Final = "capi-node-attestation"
PACKAGES: Final = ("signer", "attestors", "authenticator", "node_access")
ATTESTORS_TEST: Final = """
import signer
import signer.testing


def test_a_machine_joins(workload_cluster, make_machine, make_node, attestation_controller):
    workload_cluster.authorize("insecure")
    make_machine("machine-1")
    attestation_controller(insecure_enabled=True, insecure_namespaces=frozenset({"default"}))
    node = make_node("machine-1", "test:///machine-1", "insecure")
    workload_cluster.submit_with_token(node.client_request("csr-1"))
    assert workload_cluster.wait_until_decided("csr-1").reason == "AssertedInsecurely"


def test_nothing_comes_from_the_checkout():
    assert signer.__file__.startswith(FOLDER)
    assert signer.testing.__file__.startswith(FOLDER)
"""
WHERE: Final = """
import importlib.metadata
import importlib.util

try:
    found = importlib.util.find_spec("signer.testing.fixtures")
except ModuleNotFoundError:
    found = None
print(found and found.origin)
"""
PLUGINS: Final = """
import importlib.metadata

for each in importlib.metadata.entry_points(group="pytest11"):
    print(each.dist.name, each.value)
"""


def project(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Wheel:
    """A built wheel."""

    path: Path

    @property
    def files(self) -> set[str]:
        """Without metadata."""
        return {name for name in self.names() if ".dist-info/" not in name}

    @property
    def entry_points(self) -> str:
        return self._metadata("entry_points.txt")

    @property
    def metadata(self) -> Message:
        return Parser().parsestr(self._metadata("METADATA"))

    def names(self) -> list[str]:
        with zipfile.ZipFile(self.path) as archive:
            return archive.namelist()

    def text(self, name: str) -> str:
        with zipfile.ZipFile(self.path) as archive:
            return archive.read(name).decode()

    def _metadata(self, file: str) -> str:
        [name] = [name for name in self.names() if name.endswith(f".dist-info/{file}")]
        return self.text(name)


def run(command: list[str], folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def build(folder: Path, into: Path, hook: str = "build_wheel") -> Path:
    """What pip does, without isolation and so without a registry."""
    program = f"import sys; from hatchling import build; print(build.{hook}(sys.argv[1]))"
    return into / run([sys.executable, "-c", program, str(into)], folder).split()[-1]


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return Wheel(build(ROOT, tmp_path_factory.mktemp("product")))


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return Wheel(build(HARNESS, tmp_path_factory.mktemp("harness")))


@pytest.fixture
def install(tmp_path: Path) -> Callable[..., Path]:
    """Installs wheels into a fresh environment and gives its interpreter.

    The libraries are those of this environment; its path files are not read there, so that the checkout is not found.
    """

    def make(*wheels: Path) -> Path:
        folder = tmp_path / "environment"
        venv.create(folder, symlinks=True)
        python = folder / "bin/python"
        options = ["--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install"]
        run([*pip, *options, *map(str, wheels)], tmp_path)
        [packages] = folder.glob("lib/python3.*/site-packages")
        (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
        return python

    return make


def test_the_two_are_released_together() -> None:
    product, harness = project(ROOT)["project"], project(HARNESS)["project"]
    assert harness["name"] == f"{PRODUCT}-testing"
    for field in ("version", "requires-python", "license"):
        assert harness[field] == product[field]
    assert (HARNESS / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert project(HARNESS)["build-system"] == project(ROOT)["build-system"]


def test_the_harness_requires_the_product_and_not_the_other_way_round() -> None:
    product, harness = project(ROOT), project(HARNESS)["project"]
    needed = {each.name: each for each in map(Requirement, harness["dependencies"])}
    assert set(needed) == {PRODUCT, "pytest"}
    assert str(needed[PRODUCT]) == f"{PRODUCT}[controller]=={product['project']['version']}"
    groups = [*product["project"]["optional-dependencies"].values(), product["project"]["dependencies"]]
    runtime = {Requirement(line).name for lines in groups for line in lines}
    assert not runtime & {PRODUCT, harness["name"], "pytest"}
    # The one that constraints.txt is resolved with.
    tested = {each.name: each for each in map(Requirement, product["dependency-groups"]["dev"])}
    assert tested["pytest"] == needed["pytest"]


@pytest.mark.slow
def test_the_wheel_of_the_product(product: Wheel) -> None:
    assert {name.split("/")[0] for name in product.files} == set(PACKAGES)
    assert {name for name in product.files if name.startswith("signer/testing")} == set()
    assert "pytest" not in product.entry_points
    assert "pytest" not in str(product.metadata.get_all("Requires-Dist"))
    modules = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert {name for name in product.files if name.endswith(".py")} == {
        name for name in modules if not name.startswith("signer/testing/")
    }
    assert {f"{package}/py.typed" for package in PACKAGES} <= product.files


@pytest.mark.slow
def test_nothing_in_it_names_the_harness(product: Wheel) -> None:
    """Imports, which the layers forbid, and modules that are imported by name."""
    modules = [name for name in product.files if name.endswith(".py")]
    assert [name for name in modules if "signer.testing" in product.text(name)] == []


@pytest.mark.slow
def test_the_wheel_of_the_harness(product: Wheel, harness: Wheel) -> None:
    tracked = run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "."], HARNESS).split()
    assert harness.files == {f"signer/testing/{name}" for name in tracked if name not in {"pyproject.toml", "LICENSE"}}
    assert harness.entry_points == "[pytest11]\nnode_attestation = signer.testing.fixtures\n"
    assert not harness.files & product.files
    assert any(name.endswith("/licenses/LICENSE") for name in harness.names())


@pytest.mark.slow
@pytest.mark.parametrize("folder", [ROOT, HARNESS], ids=["product", "harness"])
def test_the_source_archive_gives_the_same_wheel(folder: Path, tmp_path: Path, request: Any) -> None:
    archive = build(folder, tmp_path, "build_sdist")
    run(["tar", "--extract", "--file", archive.name], tmp_path)
    [unpacked] = [path for path in tmp_path.iterdir() if path.is_dir()]
    direct: Wheel = request.getfixturevalue("product" if folder == ROOT else "harness")
    assert sorted(Wheel(build(unpacked, tmp_path)).names()) == sorted(direct.names())


@pytest.mark.slow
def test_the_product_alone_has_no_harness(product: Wheel, install: Callable[..., Path], tmp_path: Path) -> None:
    python = install(product.path)
    assert run([str(python), "-c", WHERE], tmp_path) == "None\n"
    assert (
        run([str(python.parent / "node-attestation-controller"), "--version"], tmp_path).split()[1]
        == (project(ROOT)["project"]["version"])
    )


@pytest.mark.slow
def test_an_attestors_tests_use_both(
    product: Wheel, harness: Wheel, install: Callable[..., Path], tmp_path: Path
) -> None:
    """Its author names the plugin's fixtures and imports nothing."""
    python = install(product.path, harness.path)
    file = tmp_path / "test_attestor.py"
    file.write_text(f"FOLDER = {str(python.parents[1])!r}\n{ATTESTORS_TEST}", encoding="utf-8")
    done = run([str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)], tmp_path)
    assert "2 passed" in done, done


@pytest.mark.slow
def test_both_are_editable_in_one_checkout(install: Callable[..., Path], tmp_path: Path) -> None:
    python = install(*(build(folder, tmp_path, "build_editable") for folder in (ROOT, HARNESS)))
    assert run([str(python), "-c", WHERE], tmp_path) == f"{HARNESS / 'fixtures.py'}\n"
    assert f"{PRODUCT}-testing signer.testing.fixtures" in run([str(python), "-c", PLUGINS], tmp_path).splitlines()
