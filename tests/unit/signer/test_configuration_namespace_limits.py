"""Section ``namespaceLimits`` of the configuration file."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from signer.configuration import InvalidConfiguration, read_configuration_file
from signer.model.namespace_limits import DEFAULT_NAMESPACE_LIMITS, NamespaceLimits
from tests.support.yaml_documents import safe_load

VALUES = Path("deploy/helm/capi-node-attestation/values.yaml")


def read(folder: Path, limits: str) -> NamespaceLimits:
    path = folder / "config.yaml"
    path.write_text(f"namespaceLimits: {limits}\n")
    return read_configuration_file(path).namespace_limits


@pytest.mark.parametrize("limits", ["", "null", "{}"])
def test_the_defaults(tmp_path: Path, limits: str) -> None:
    assert read(tmp_path, limits) == DEFAULT_NAMESPACE_LIMITS


def test_one_kind(tmp_path: Path) -> None:
    assert read(tmp_path, "{machines: 10}") == replace(DEFAULT_NAMESPACE_LIMITS, machines=10)


def test_every_kind(tmp_path: Path) -> None:
    nodes = "clusters: 1, machines: 2, machinePools: 3, kubeadmConfigs: 4, attestedNodes: 5, policies: 6"
    access = "accessGrants: 7, accessApprovals: 8, bastions: 9"
    assert read(tmp_path, f"{{{nodes}, {access}}}") == NamespaceLimits(1, 2, 3, 4, 5, 6, 7, 8, 9)


def test_the_chart_and_the_documents_state_the_defaults(tmp_path: Path) -> None:
    chart = safe_load(VALUES.read_text())["config"]["namespaceLimits"]
    assert read(tmp_path, yaml.safe_dump(chart, default_flow_style=True).strip()) == DEFAULT_NAMESPACE_LIMITS
    section = Path("docs/operating.md").read_text().partition("\n## Namespace limits\n")[2].partition("\n## ")[0]
    stated = re.findall(r"^\| `(\w+)` \| ([\d,]+) \|$", section, re.MULTILINE)
    assert {kind: int(limit.replace(",", "")) for kind, limit in stated} == chart


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ("5", "namespaceLimits must be an object"),
        ("{nodes: 5}", "and not 'nodes'"),
        ("{machines: 0}", "namespaceLimits.machines must be a whole number from 1 to 1000000"),
        ("{machines: 1000001}", "whole number"),
        ("{machines: -1}", "whole number"),
        ("{machines: true}", "whole number"),
        ("{machines: 1.5}", "whole number"),
        ("{machines: '5'}", "whole number"),
        ("{machines: null}", "whole number"),
    ],
)
def test_refused(tmp_path: Path, limits: str, expected: str) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        read(tmp_path, limits)
    assert expected in str(refused.value)
