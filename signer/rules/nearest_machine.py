"""The Machine that a claimed provider ID nearly names, and what differs: for the message when no Machine has the ID.

Providers write one machine's ID in several forms: with a region or without, with a resource group in another case, with
more slashes. A node that was told another form than its Machine has waits for ever, and the message has to say why. No
decision depends on the result.

Sources: the ``ProviderID`` of each infrastructure and cloud provider, for example ``openstack:///<server>`` and
``openstack://<region>/<server>`` (cloud-provider-openstack), ``azure:///subscriptions/<id>/resourceGroups/<name>/...``
(cloud-provider-azure), ``aws:///<zone>/<instance>`` (cloud-provider-aws), ``gce://<project>/<zone>/<name>``
(cloud-provider-gcp), ``metal3://<namespace>/<host>/<Metal3Machine>`` (cluster-api-provider-metal3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from types import MappingProxyType
from typing import Final

from signer.model.cluster import MachineView
from signer.model.decision import printable

MOST_CANDIDATES: Final = 8
"""Maximum number of Machines that are compared; if more end alike, none is the nearest."""
_MOST_DIFFERENCES: Final = 2
"""IDs that differ in more parts are those of different machines."""
_MOST_CHARACTERS: Final = 64
"""Of each part in a message: the requester chooses its own."""
_MOST_CHARACTERS_OF_AN_ID: Final = 200

_PARTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "aws": ("instance ID", "availability zone"),
        "docker": ("container",),
        "gce": ("instance name", "zone", "project"),
        "ibmpowervs": ("instance ID", "service instance", "zone", "region"),
        "kind": ("container", "cluster", "container runtime"),
        "maas": ("system ID", "zone"),
        "metal3": ("Metal3Machine", "BareMetalHost", "namespace"),
        "nutanix": ("UUID",),
        "openstack": ("server ID", "region"),
        "proxmox": ("UUID",),
        "vsphere": ("UUID",),
    }
)
"""The names of the parts by scheme, from the last."""
_AZURE_PARTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "subscriptions": "subscription",
        "resourcegroups": "resource group",
        "providers": "resource provider",
        "virtualmachines": "virtual machine",
        "virtualmachinescalesets": "scale set",
    }
)
"""By the part before it, in lower case: Azure compares resource IDs without case."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One part in which two provider IDs differ; an empty text stands for a part that is missing."""

    part: str
    claimed: str
    actual: str

    def __str__(self) -> str:
        case = " (upper and lower case differ)" if self.claimed.lower() == self.actual.lower() else ""
        return (
            f"the {self.part} is {_shown(self.claimed)} in the request and {_shown(self.actual)} in the Machine{case}"
        )


@dataclass(frozen=True, slots=True)
class FarApart:
    """Two provider IDs are those of different machines."""


@dataclass(frozen=True, slots=True)
class NearMachine:
    """The one Machine whose provider ID is nearest."""

    machine: MachineView
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        what = ", and ".join(map(str, self.differences))
        provider_id = _shortened(self.machine.provider_id, _MOST_CHARACTERS_OF_AN_ID)
        return f"the nearest is {self.machine} with {provider_id}: {what}"


@dataclass(frozen=True, slots=True)
class NoneNear:
    """No Machine is near, or several are equally near."""


def parts_to_look_up(provider_id: str) -> tuple[str, ...]:
    """The parts of a claimed ID with which the ID of a near Machine may end: the last two, the last first."""
    _, parts = _split(provider_id)
    return tuple(dict.fromkeys(reversed(parts[-2:])))


def nearest_of(claimed: str, machines: Iterable[MachineView]) -> NearMachine | NoneNear:
    """The Machine whose provider ID is nearest to the claimed one."""
    found = [
        NearMachine(machine, different)
        for machine in machines
        if machine.provider_id and not isinstance(different := differences(claimed, machine.provider_id), FarApart)
    ]
    fewest = min((len(near.differences) for near in found), default=0)
    best = [near for near in found if len(near.differences) == fewest]
    return best[0] if len(best) == 1 else NoneNear()


def differences(claimed: str, actual: str) -> tuple[Difference, ...] | FarApart:
    """What differs between two provider IDs that are not equal, the last part first.

    The last part names the machine: it must be equal, apart from case, as in ``vsphere://`` IDs.
    """
    (claimed_scheme, ours), (actual_scheme, theirs) = _split(claimed), _split(actual)
    found: list[Difference] = []
    if claimed_scheme != actual_scheme:
        found.append(Difference("scheme", claimed_scheme, actual_scheme))
    if not _end_alike(ours, theirs):
        if _end_alike(ours[:-1], theirs):
            found.append(Difference("trailing part", ours.pop(), ""))
        elif _end_alike(ours, theirs[:-1]):
            found.append(Difference("trailing part", "", theirs.pop()))
        else:
            return FarApart()
    for number, (one, other) in enumerate(zip_longest(reversed(ours), reversed(theirs), fillvalue="")):
        if one != other:
            found.append(
                Difference(_name(actual_scheme or claimed_scheme, theirs if other else ours, number), one, other)
            )
    if len(found) > _MOST_DIFFERENCES:
        return FarApart()
    return tuple(found) or (Difference("number of slashes", claimed, actual),)


def _end_alike(parts: list[str], others: list[str]) -> bool:
    """Whether the last parts are equal, apart from case."""
    return bool(parts and others) and parts[-1].lower() == others[-1].lower()


def _name(scheme: str, parts: list[str], number: int) -> str:
    """The name of the part with that number, from the last, which is 0."""
    if scheme == "azure":
        before = parts[-number - 2].lower() if number + 2 <= len(parts) else ""
        return _AZURE_PARTS.get(before, "path")
    names = _PARTS.get(scheme, ())
    if number < len(names):
        return names[number]
    return ("last part", "part before the last")[number] if number < 2 else f"part number {number + 1} from the end"


def _split(provider_id: str) -> tuple[str, list[str]]:
    """The scheme, empty without one, and the parts between slashes that are not empty."""
    scheme, found, rest = provider_id.partition("://")
    if not found:
        scheme, rest = "", provider_id
    return scheme, [part for part in rest.split("/") if part]


def _shown(part: str) -> str:
    return _shortened(part, _MOST_CHARACTERS) if part else "none"


def _shortened(text: str, most: int) -> str:
    return printable(text if len(text) <= most else f"{text[: most - 3]}...")
