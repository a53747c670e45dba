"""The page on releases lists every name that a stranger could take before the first upload."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from packaging.utils import canonicalize_name

from tests.supply_chain.dependencies import CONSTRAINTS
from tests.support.yaml_documents import safe_load, safe_load_all

ROOT: Final = CONSTRAINTS.parent
CHART: Final = ROOT / "deploy/helm/capi-node-attestation"


def project(name: str) -> Any:
    return tomllib.loads((ROOT / name).read_text(encoding="utf-8"))


def document(path: Path) -> Any:
    return safe_load(path.read_text(encoding="utf-8"))


def listed() -> set[str]:
    page = (ROOT / "docs/development/releasing.md").read_text(encoding="utf-8")
    section = page.partition("## Before the first upload\n")[2].partition("\n## ")[0]
    return set(re.findall(r"`([^`]+)`", section))


def test_every_name_is_listed() -> None:
    product = project("pyproject.toml")
    distributions = {product["project"]["name"], project("signer/testing/pyproject.toml")["project"]["name"]}
    programs = set(product["project"]["scripts"])
    packages = set(product["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    images = {document(CHART / "values.yaml")["image"]["repository"], document(CHART / "Chart.yaml")["name"]}
    assert distributions | programs | packages | images <= listed()
    assert {canonicalize_name(program) for program in programs} <= listed()


def test_the_name_of_the_provider_is_that_of_the_package() -> None:
    components = safe_load_all((ROOT / "deploy/clusterctl/addon-components.yaml").read_text(encoding="utf-8"))
    providers = {one["metadata"]["labels"].get("cluster.x-k8s.io/provider") for one in components if one is not None}
    [label] = providers - {None}
    assert {label, label.removeprefix("addon-")} <= listed()
