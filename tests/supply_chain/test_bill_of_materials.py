"""The bill of materials names what is shipped, and only that."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.supply_chain import bill_of_materials as module
from tests.supply_chain.bill_of_materials import EXIT_NOT_WRITTEN, EXIT_USAGE, bill_of_materials, main
from tests.supply_chain.dependencies import CONSTRAINTS, PRODUCT, NotInstalled, constrained_versions
from tests.supply_chain.licences import is_allowed

PYPROJECT = tomllib.loads((CONSTRAINTS.parent / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def text() -> str:
    try:
        return bill_of_materials()
    except NotInstalled as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def document(text: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(text)
    return read


def test_it_has_every_runtime_dependency_at_its_version(document: dict[str, Any]) -> None:
    versions = constrained_versions(CONSTRAINTS.read_text(encoding="utf-8"))
    listed = {each["name"]: each["version"] for each in document["components"]}
    project = PYPROJECT["project"]
    for line in (
        *project["dependencies"],
        *(line for lines in project["optional-dependencies"].values() for line in lines),
    ):
        name = canonicalize_name(Requirement(line).name)
        if name not in (PRODUCT, "pytest"):
            assert listed[name] == versions[name]
    assert document["metadata"]["component"]["name"] == PRODUCT
    assert document["metadata"]["component"]["version"] == project["version"]


def test_it_has_no_development_tool(document: dict[str, Any]) -> None:
    listed = {each["name"] for each in document["components"]}
    tools = {canonicalize_name(Requirement(line).name) for line in PYPROJECT["dependency-groups"]["dev"]}
    assert listed.isdisjoint(tools)


def test_every_package_has_a_licence_and_an_address_by_name(document: dict[str, Any]) -> None:
    for each in document["components"]:
        assert each["purl"] == f"pkg:pypi/{each['name']}@{each['version']}"
        (licence,) = each["licenses"]
        assert is_allowed(licence.get("expression") or licence["license"]["id"])


def test_of_a_choice_all_licences_are_allowed_or_one_is_chosen() -> None:
    assert is_allowed("Apache-2.0 OR BSD-3-Clause")
    assert is_allowed("EPL-2.0 OR GPL-2.0-or-later")
    assert not is_allowed("GPL-2.0-or-later")
    assert not is_allowed("EPL-2.0 AND GPL-2.0-or-later")
    assert not is_allowed("MIT OR GPL-2.0-or-later")


def test_who_brings_what(document: dict[str, Any]) -> None:
    brings = {each["ref"]: set(each.get("dependsOn", ())) for each in document["dependencies"]}
    assert {"cryptography", "pyyaml", "boto3", "google-auth", "tpm2-pytss", "aiohttp"} <= brings[PRODUCT]
    assert "botocore" in brings["boto3"]
    assert set(brings) == {PRODUCT, *(each["name"] for each in document["components"])}


def test_the_same_packages_give_the_same_bytes(text: str) -> None:
    assert bill_of_materials() == text
    assert "serialNumber" not in text
    assert "timestamp" not in text
    assert str(Path.cwd()) not in text


def test_nothing_says_where_it_was_made(document: dict[str, Any]) -> None:
    own = json.dumps({**document, "$schema": "", "metadata": {**document["metadata"], "tools": {}}})
    assert re.findall(r"[a-z]+://[^\"]*|/(?:root|home|tmp|opt)/[^\"]*", own) == []


def test_it_is_of_the_published_form(text: str) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_another_version_than_the_tested_one_is_no_bill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = re.sub(r"(?m)^cryptography==.*$", "cryptography==1.0", CONSTRAINTS.read_text(encoding="utf-8"))
    (tmp_path / "constraints.txt").write_text(changed)
    monkeypatch.setattr(module, "CONSTRAINTS", tmp_path / "constraints.txt")
    assert main([str(tmp_path / "bill.json")]) == EXIT_NOT_WRITTEN
    assert not (tmp_path / "bill.json").exists()


def test_it_is_written(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "bill.json")]) == 0
    assert (tmp_path / "bill.json").read_text() == text
    assert "packages beside" in capsys.readouterr().out
    assert main([]) == EXIT_USAGE
