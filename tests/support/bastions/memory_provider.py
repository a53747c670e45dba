"""A provider whose cloud is a dictionary, and whose answers a test chooses."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from ipaddress import ip_address, ip_network
from typing import Any, Final

from node_access.bastions.contract import (
    Bastion,
    BastionReference,
    Deadline,
    Deleted,
    Endpoint,
    Ensured,
    Gone,
    InvalidSettings,
    OwnedResources,
    Place,
    Ready,
    Scope,
    SettingsDocuments,
    Surroundings,
    host_keys,
)
from node_access.bastions.registry import ENTRY_POINT_GROUP, BastionRegistry

NAME: Final = "memory"


@dataclass
class Memory:
    """The cloud. Each test clears it."""

    made: dict[str, Bastion] = field(default_factory=dict)
    regions: dict[str, str] = field(default_factory=dict)
    """Where each was made."""
    leaked: list[OwnedResources] = field(default_factory=list)
    ensured: list[Bastion] = field(default_factory=list)
    deleted: list[BastionReference] = field(default_factory=list)
    settings: list[SettingsDocuments] = field(default_factory=list)
    ensure: Callable[[Bastion], Ensured] | None = None
    delete: Callable[[BastionReference], Deleted] | None = None
    region: str = "north"
    """Where the provider looks. What was made elsewhere is not found."""
    age: timedelta = timedelta(hours=1)


MEMORY: Final = Memory()


class MemoryBastions:
    """See :class:`node_access.bastions.contract.BastionResources`."""

    def ensure(self, bastion: Bastion, deadline: Deadline) -> Ensured:
        MEMORY.ensured.append(bastion)
        if MEMORY.ensure is not None:
            return MEMORY.ensure(bastion)
        MEMORY.made[bastion.reference.uid] = bastion
        MEMORY.regions.setdefault(bastion.reference.uid, MEMORY.region)
        endpoint = Endpoint(22, ip_address("203.0.113.5"))
        return Ready(endpoint, host_keys(bastion), (ip_network("10.9.0.7/32"),))

    def delete(self, reference: BastionReference, deadline: Deadline) -> Deleted:
        MEMORY.deleted.append(reference)
        if MEMORY.delete is not None:
            return MEMORY.delete(reference)
        if MEMORY.regions.get(reference.uid) == MEMORY.region:
            MEMORY.made.pop(reference.uid, None)
        MEMORY.leaked[:] = [one for one in MEMORY.leaked if one.reference.uid != reference.uid]
        return Gone()

    def list(self, scope: Scope, deadline: Deadline) -> tuple[OwnedResources, ...]:
        own = [
            OwnedResources(one.reference, MEMORY.age, ("thing",))
            for uid, one in MEMORY.made.items()
            if MEMORY.regions[uid] == MEMORY.region
        ]
        return (*own, *MEMORY.leaked)


class MemoryProvider:
    """The provider. The operator lists ``sizes``, and a policy chooses one."""

    name: str = NAME

    def settings(self, documents: SettingsDocuments) -> str:
        unknown = (documents.operator.keys() - {"sizes", "token"}) | (documents.policy.keys() - {"size"})
        if unknown:
            raise InvalidSettings(f"there is no setting {min(unknown)}")
        sizes = documents.operator.get("sizes", ["small"])
        size = documents.policy.get("size", sizes[0])
        if size not in sizes:
            raise InvalidSettings(f"size: the operator does not allow {size}")
        MEMORY.settings.append(documents)
        return str(size)

    def place(self, settings: Any) -> Place:
        return Place((("region", MEMORY.region),))

    def open(self, settings: Any, surroundings: Surroundings) -> MemoryBastions:
        return MemoryBastions()


provider: Final = MemoryProvider()


def memory_registry() -> BastionRegistry:
    """A registry with this provider alone."""
    value = f"{__name__}:provider"
    return BastionRegistry([importlib.metadata.EntryPoint(NAME, value, ENTRY_POINT_GROUP)])


def forget() -> None:
    """An empty cloud, which answers as it should."""
    fresh = Memory()
    for name in vars(fresh):
        setattr(MEMORY, name, getattr(replace(fresh), name))
