"""What is installed is what was tested, once each, and nothing names where it came from."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.supply_chain.dependencies import (
    CONSTRAINTS,
    PRODUCT,
    RUNTIME_EXTRAS,
    MalformedConstraint,
    NotInstalled,
    Package,
    constrained_versions,
    runtime_packages,
)
from tests.supply_chain.licences import LicenceUnknown, is_allowed, licence_of

TOO_OLD: Final = {
    "aiohttp": ("3.14.3", "has no bound for empty messages of a WebSocket: test_empty_messages_are_bounded"),
    "asyncssh": ("2.24.0", "has no bound for packets, also before authentication"),
    "boto3": ("1.40.76", "has no GetWebIdentityToken: attestors.aws.node.web_identity"),
    "prometheus-client": ("0.23.1", "has no remove_by_labels: signer.controller.telemetry.metrics"),
    "requests": ("2.32.1", "was withdrawn by those who made it"),
    "rich": ("14.2.0", "makes wider columns than docs/explain.md shows: test_generated"),
}
"""The newest versions that are known not to do, and why."""
PYPROJECT = tomllib.loads((CONSTRAINTS.parent / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def packages() -> dict[str, Package]:
    try:
        return dict(runtime_packages())
    except NotInstalled as missing:
        pytest.skip(str(missing))


def test_every_runtime_extra_is_known() -> None:
    assert set(PYPROJECT["project"]["optional-dependencies"]) == set(RUNTIME_EXTRAS)


@pytest.mark.parametrize("name", TOO_OLD)
def test_no_bound_lets_in_what_is_too_old(name: str) -> None:
    """Who installs without constraints.txt, as a distribution does, has the bounds alone."""
    extras = PYPROJECT["project"]["optional-dependencies"].values()
    bounds = [Requirement(line).specifier for lines in extras for line in lines if Requirement(line).name == name]
    version, why = TOO_OLD[name]
    assert bounds, name
    assert not any(each.contains(version) for each in bounds), f"{name} {version} {why}"


def test_every_declared_dependency_is_among_them(packages: dict[str, Package]) -> None:
    extras = PYPROJECT["project"]["optional-dependencies"]
    declared = PYPROJECT["project"]["dependencies"] + [line for name in RUNTIME_EXTRAS for line in extras[name]]
    assert {canonicalize_name(Requirement(line).name) for line in declared} <= set(packages)


def test_everything_installed_is_constrained_to_its_version(packages: dict[str, Package]) -> None:
    versions = constrained_versions(CONSTRAINTS.read_text(encoding="utf-8"))
    installed = {name: package.version for name, package in packages.items() if name != PRODUCT}
    assert installed == {name: versions.get(name) for name in installed}


@pytest.mark.parametrize("group", ["dev", "cel"])
def test_what_the_tests_need_is_constrained_too(group: str) -> None:
    versions = constrained_versions(CONSTRAINTS.read_text(encoding="utf-8"))
    for line in PYPROJECT["dependency-groups"][group]:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate():
            assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)])


@pytest.mark.parametrize(
    "text",
    [
        "a==1\na==2\n",
        "a>=1\n",
        "a\n",
        "a==1.*\n",
        "a @ https://packages.example/a.whl\n",
        "--index-url https://packages.example/simple\n",
        "a==1\n    # via b\n",
        "a==1\n\n",
    ],
    ids=["twice", "no version", "bare", "any", "address", "index", "note", "empty line"],
)
def test_what_is_no_list_of_versions(text: str) -> None:
    with pytest.raises(MalformedConstraint):
        constrained_versions(text)


def test_a_line_of_another_platform_does_not_count() -> None:
    lines = "a==1 ; sys_platform == 'nowhere'\na==2 ; sys_platform != 'nowhere'\n"
    assert constrained_versions(lines) == {"a": "2"}


def test_licences_may_be_shipped(packages: dict[str, Package]) -> None:
    refused = {name: licence_of(package) for name, package in packages.items() if not is_allowed(licence_of(package))}
    assert refused == {}


@pytest.mark.parametrize("expression", ["GPL-3.0-only", "MIT AND AGPL-3.0-only", "(MIT OR LGPL-2.1-only)"])
def test_licences_that_may_not(expression: str) -> None:
    assert not is_allowed(expression)


def test_a_licence_that_nobody_says(tmp_path: Path) -> None:
    (tmp_path / "METADATA").write_text("Metadata-Version: 2.1\nName: silent\nVersion: 1\n")
    metadata = importlib.metadata.PathDistribution(tmp_path).metadata
    with pytest.raises(LicenceUnknown, match="silent"):
        licence_of(Package("silent", "1", metadata, frozenset()))
