"""The chart's values in documents: the table in its README, and the comparison with other charts."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from tests.documents.markdown import ROOT
from tests.support.helm import CHART

PAGE: Final = ROOT / "docs/chart-comparison.md"
README: Final = CHART / "README.md"
OF_THIS_PROGRAM_ALONE: Final = frozenset(
    {
        *("access", "auditLog", "config", "containers", "createNamespace", "insecureAttestor", "providerIDOIDs"),
        *("rbac", "rotation", "shards", "ssh", "watch", "workersPerCluster"),
    }
)
"""Values that no other chart can have."""
_CODE: Final = re.compile(r"`([^`]+)`")


def values() -> dict[str, Any]:
    """The schema of every value and of every group of values, by its path."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = {}

    def add(above: str, one: dict[str, Any]) -> None:
        for name, inner in one.get("properties", {}).items():
            found[f"{above}{name}"] = inner
            add(f"{above}{name}.", inner)

    add("", schema)
    return found


def rows(columns: int) -> list[list[str]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]
    return [one for one in cells if len(one) == columns and one[0] not in ("purpose", "chart")]


def test_the_readme_has_every_value() -> None:
    text = README.read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE))
    assert named == {path for path, one in values().items() if "properties" not in one and path != "global"}


def test_the_values_that_are_compared_exist_here() -> None:
    named = {span for row in rows(5) for span in _CODE.findall(row[3])}
    assert len(rows(5)) > 60
    assert named - set(values()) == set()


def test_every_value_of_a_general_kind_is_compared() -> None:
    named = {span for row in rows(5) for cell in row[3:] for span in _CODE.findall(cell)}
    general = {
        path
        for path, one in values().items()
        if path.split(".")[0] not in OF_THIS_PROGRAM_ALONE and "properties" not in one and path != "global"
    }
    # As the row of PodMonitor says, its values are those of ServiceMonitor.
    missing = {path for path in general - named if not path.startswith("monitoring.podMonitor.")}
    assert missing == set()
