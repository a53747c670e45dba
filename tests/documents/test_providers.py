"""``docs/compatibility.md`` has rows for each provider, and says when its Machines show the provider ID."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.documents.markdown import ROOT
from tests.integration.providers.control_planes import WORLDS as CONTROL_PLANES
from tests.integration.providers.control_planes import ControlPlaneWorld
from tests.integration.providers.infrastructure import WORLDS as INFRASTRUCTURE
from tests.integration.providers.world import Shown

TEXT = (ROOT / "docs/compatibility.md").read_text(encoding="utf-8")
WORDS = {Shown.BEFORE_JOIN: "before", Shown.AFTER_JOIN: "after"}
WITHOUT_WORLD = {("Docker", "after")}
"""What cannot be served, and has tests of its own."""


def rows_of(heading: str) -> Iterator[list[str]]:
    """The rows of the first table under that heading; an empty first cell repeats the one above."""
    _, _, behind = TEXT.partition(f"\n{heading}\n")
    table = behind[behind.index("\n|") + 1 :].partition("\n\n")[0]
    first = ""
    for line in table.splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        first = cells[0] or first
        yield [first, *cells[1:]]


def test_when_the_provider_id_is_shown() -> None:
    documented = {(row[0], row[2]) for row in rows_of("### On the controller's side")}
    imitated = {(world.provider, WORDS[world.shown]) for world in INFRASTRUCTURE}
    assert documented == imitated | WITHOUT_WORLD


def test_each_infrastructure_provider_has_a_node_side() -> None:
    documented = {row[0] for row in rows_of("### On the node's side")}
    assert documented == {world.provider for world in INFRASTRUCTURE}


@pytest.mark.parametrize("world", CONTROL_PLANES, ids=lambda world: world.name)
def test_cas_of_control_planes(world: ControlPlaneWorld) -> None:
    (row,) = [row for row in rows_of("## Control plane providers") if world.provider in row[0].replace(",", "").split()]
    assert row[1:3] == [f"`<cluster>-{world.client}`", f"`<cluster>-{world.serving}`"]


def test_provider_ids_have_the_documented_schemes() -> None:
    """The scheme of a world's provider ID is one that the provider's rows name."""
    schemes: defaultdict[str, str] = defaultdict(str)
    for row in rows_of("### On the controller's side"):
        schemes[row[0]] += row[1]
    for world in INFRASTRUCTURE:
        assert f"{world.provider_id.partition('://')[0]}://" in schemes[world.provider], world.name
