from __future__ import annotations

import pytest

from signer.model.flow import Flow, PriorityLevel, requester_of


@pytest.mark.parametrize(
    ("priority_level", "path"),
    [
        (PriorityLevel.PLAUSIBLE, ("token", "machine", "key")),
        (PriorityLevel.UNFILTERED, ("token", "machine")),
        (PriorityLevel.UNKNOWN_MACHINE, ("token",)),
        (PriorityLevel.REFUSED, ("token", "machine")),
    ],
)
def test_only_what_was_found_out_tells_flows_apart(priority_level: PriorityLevel, path: tuple[str, ...]) -> None:
    """Whoever invents evidence invents keys, too; what was not looked at has only its requester and its claim."""
    assert Flow(priority_level, "token", "machine", "key").path == path


def test_claims_that_no_machine_has_stand_in_one_flow() -> None:
    paths = {Flow(PriorityLevel.UNKNOWN_MACHINE, "token", claim, "key").path for claim in ("one", "another")}
    assert len(paths) == 1


def test_best_first() -> None:
    assert sorted(PriorityLevel) == [
        PriorityLevel.PLAUSIBLE,
        PriorityLevel.UNFILTERED,
        PriorityLevel.UNKNOWN_MACHINE,
        PriorityLevel.REFUSED,
    ]


def test_of_a_requester_no_more_is_kept_than_a_node_can_have() -> None:
    """Requests are packed, and their flows are not: a hostile API server's names would take gigabytes."""
    node = "system:node:" + "n" * 253
    assert requester_of({"spec": {"username": node}}) == node
    assert requester_of({"spec": {"username": node + "n" * 200_000}}) == node
