"""Digests of places in the status."""

from __future__ import annotations

from typing import Any, Final

import pytest

from node_access.bastions.contract import Place, Scope
from signer.bastions.places import NotRecorded, changed_settings, digests_of, place_patch, recorded_place
from tests.support.access_objects import bastion_object

NORTH: Final = digests_of(Place((("region", "north"), ("roleARN", ""))), Scope("blue"))


def test_what_is_recorded_is_read_again() -> None:
    patch = place_patch(bastion_object(), NORTH)
    assert recorded_place(patch) == NORTH
    assert changed_settings(NORTH, NORTH) == ()
    assert "north" not in str(patch)


@pytest.mark.parametrize(
    ("place", "owner", "changed"),
    [
        (Place((("region", "south"), ("roleARN", ""))), "blue", ("region",)),
        (Place((("region", "north"), ("roleARN", ""))), "green", ("owner",)),
        (Place((("region", "north"),)), "blue", ("roleARN",)),
        (Place((("region", "north"), ("roleARN", ""), ("cell", "a"))), "blue", ("cell",)),
    ],
)
def test_what_differs_is_named(place: Place, owner: str, changed: tuple[str, ...]) -> None:
    assert changed_settings(NORTH, digests_of(place, Scope(owner))) == changed


@pytest.mark.parametrize(
    "place",
    [
        None,
        [],
        "all",
        [{"setting": "region", "digest": "0" * 32}],
        [{"setting": "owner", "digest": "0" * 32}, {"setting": "owner", "digest": "1" * 32}],
        [{"setting": "owner", "digest": "short"}],
        [{"setting": "owner"}],
        ["owner"],
    ],
    ids=["none", "empty", "a text", "no owner", "twice", "no digest", "half", "texts"],
)
def test_what_is_no_record(place: Any) -> None:
    """None that could pass for a place where everything is the same."""
    assert recorded_place({"status": {"place": place}}) == NotRecorded()
