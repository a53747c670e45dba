from __future__ import annotations

import pytest

from signer.model.flow import Lane, Screening


@pytest.mark.parametrize(
    ("screening", "path"),
    [
        (Screening.PLAUSIBLE, ("token", "machine", "key")),
        (Screening.UNSCREENED, ("token", "machine")),
        (Screening.UNKNOWN_MACHINE, ("token",)),
        (Screening.REFUSED, ("token", "machine")),
    ],
)
def test_only_what_was_found_out_tells_lanes_apart(screening: Screening, path: tuple[str, ...]) -> None:
    """Whoever invents evidence invents keys, too; what was not looked at has only its requester and its claim."""
    assert Lane(screening, "token", "machine", "key").path == path


def test_claims_that_no_machine_has_stand_in_one_lane() -> None:
    paths = {Lane(Screening.UNKNOWN_MACHINE, "token", claim, "key").path for claim in ("one", "another")}
    assert len(paths) == 1


def test_best_first() -> None:
    assert sorted(Screening) == [
        Screening.PLAUSIBLE,
        Screening.UNSCREENED,
        Screening.UNKNOWN_MACHINE,
        Screening.REFUSED,
    ]
