"""Where the resources of a Bastion are: what its status records, and whether the present settings look there. Pure.

A provider under other settings finds nothing, and answers that nothing exists. The status therefore holds a digest of
each setting that says where resources are, written before the first of them is made. The values are no secrets; tenants
read the status, and need not read the operator's names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from node_access.bastions.contract import Place, Scope
from signer.kube.client import JsonObject
from signer.model.fields import items_of, mapping_of, text_of

OWNER: Final = "owner"
_DIGEST_CHARACTERS: Final = 32
_SETTING: Final = re.compile(r"[A-Za-z]{1,40}", re.ASCII)
_DIGEST: Final = re.compile(rf"[0-9a-f]{{{_DIGEST_CHARACTERS}}}", re.ASCII)


@dataclass(frozen=True, slots=True)
class PlaceDigests:
    """A digest of each setting's value, by the setting's name."""

    by_setting: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class NotRecorded:
    """The status records no place, or one that this program does not write."""


RecordedPlace: TypeAlias = PlaceDigests | NotRecorded


def digests_of(place: Place, scope: Scope) -> PlaceDigests:
    """Of a place, and of the owner, by whose name resources are found."""
    values = (*place.settings, (OWNER, scope.owner))
    return PlaceDigests(tuple(sorted((setting, _digest(value)) for setting, value in values)))


def recorded_place(manifest: Mapping[str, Any]) -> RecordedPlace:
    """What ``status.place`` of a Bastion says, which may be invalid otherwise."""
    found: dict[str, str] = {}
    for item in items_of(mapping_of(manifest, "status"), "place"):
        setting, digest = (text_of(item, name) if isinstance(item, Mapping) else "" for name in ("setting", "digest"))
        if _SETTING.fullmatch(setting) is None or _DIGEST.fullmatch(digest) is None or setting in found:
            return NotRecorded()
        found[setting] = digest
    return PlaceDigests(tuple(sorted(found.items()))) if OWNER in found else NotRecorded()


def changed_settings(recorded: PlaceDigests, present: PlaceDigests) -> tuple[str, ...]:
    """The settings whose values differ, sorted; none: it is the same place."""
    return tuple(sorted({setting for setting, _ in {*recorded.by_setting} ^ {*present.by_setting}}))


def place_patch(manifest: Mapping[str, Any], place: PlaceDigests) -> JsonObject:
    """The merge patch for the subresource ``status``, which replaces the list as a whole."""
    version = text_of(mapping_of(manifest, "metadata"), "resourceVersion")
    listed = [{"setting": setting, "digest": digest} for setting, digest in place.by_setting]
    return {"metadata": {"resourceVersion": version}, "status": {"place": listed}}


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()[:_DIGEST_CHARACTERS]
