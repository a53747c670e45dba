"""A world for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.access.world import World, new_world


@pytest.fixture
def world() -> Iterator[World]:
    with new_world(World) as made:
        yield made
