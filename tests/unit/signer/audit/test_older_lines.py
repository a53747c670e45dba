from __future__ import annotations

from typing import Any

import pytest

from signer.audit.older_lines import with_present_fields


def line(policy: Any) -> dict[str, Any]:
    return {"cluster": "a/b", "decision_inputs": {"snapshot": {"policy": policy, "now": "x"}, "token": {}}}


def test_the_single_source_of_node_names() -> None:
    given = line({"mode": "Observe", "node_name_source": "MachineName"})
    rules = {"sources": ["MachineName"], "domains": []}
    assert with_present_fields(given) == line({"mode": "Observe", "node_names": rules})
    assert given == line({"mode": "Observe", "node_name_source": "MachineName"})


@pytest.mark.parametrize(
    "policy", [{}, {"node_names": {}}, {"node_name_source": "MachineName", "node_names": {}}, None, "x", []]
)
def test_what_is_left_alone(policy: Any) -> None:
    """A line with both fields is no line that a controller wrote; reading it fails."""
    assert with_present_fields(line(policy)) == line(policy)


@pytest.mark.parametrize("content", [{}, {"decision_inputs": None}, {"decision_inputs": {"snapshot": {}}}])
def test_what_is_no_whole_line(content: dict[str, Any]) -> None:
    assert with_present_fields(content) == content
