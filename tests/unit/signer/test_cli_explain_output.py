"""``explain`` as people read it: the verdict and what stopped the request come first."""

from __future__ import annotations

from tests.documents.explain_example import explained

FAILING = "the node name is that of the Machine"
PASSED = "the Cluster is not paused"
NOT_REACHED = "the Machine is not recorded as another node"


def squeezed(text: str) -> str:
    return " ".join(text.split())


def test_the_verdict_and_the_failing_check_come_first() -> None:
    lines = explained().splitlines()
    assert lines[0] == "CSR node-1-client of Cluster default/production would be denied (NodeNameMismatch)"
    assert [line.split()[0] for line in lines[:5]] == ["CSR", "Check", "Found", "Expected", "What"]
    assert lines[1:4] == [
        f"Check    ✗ 29 {FAILING}",
        "Found    node-1",
        "Expected node-7 (nodeNames: Automatic)",
    ]


def test_other_checks_are_shown_on_demand() -> None:
    shown = squeezed(explained())
    assert [text for text in (PASSED, NOT_REACHED) if text in shown] == []
    assert "39 of 53 checks and steps passed, 13 were not reached; --all lists them." in shown
    everything = squeezed(explained(every_check=True))
    assert [text for text in (FAILING, PASSED, NOT_REACHED) if text not in everything] == []
    assert "--all" not in everything
    assert everything.startswith(shown.partition(" 39 of 53")[0])
