"""The tables of ``docs/compatibility.md`` that list what the providers' worlds are taken from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tests.integration.providers.control_planes import WORLDS as CONTROL_PLANES
from tests.integration.providers.infrastructure import WORLDS as INFRASTRUCTURE
from tests.integration.providers.world import Shown

INFRASTRUCTURE_HEADING: Final = ("provider", "world", "policy", "read in")
CONTROL_PLANE_HEADING: Final = ("provider", "world", "kind", "read in")
_SHOWN: Final = {Shown.BEFORE_JOIN: "", Shown.AFTER_JOIN: " (after)"}


def infrastructure_worlds() -> Iterator[Sequence[str]]:
    """For each world of an infrastructure provider: what its policy needs, and where its values are from."""
    for world in INFRASTRUCTURE:
        yield (world.provider, f"`{world.name}`{_SHOWN[world.shown]}", _policy(world.policy), world.source)


def control_plane_worlds() -> Iterator[Sequence[str]]:
    """For each world of a control plane provider: the kind that its Secrets are known by, and where they are from."""
    for world in CONTROL_PLANES:
        yield (world.provider, f"`{world.name}`", f"`{world.kind}`", world.source)


def _policy(fields: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """The policy's fields, with the default left out."""
    stated = (
        f"`{field}.{name}: {value if isinstance(value, str) else '[' + ', '.join(value) + ']'}`"
        for field, values in fields
        for name, value in values.items()
    )
    return ", ".join(stated) or "default"
