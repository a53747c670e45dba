"""How often large objects count toward the limits of namespaces, so that the limits bound memory, too.

The parsers bound the strings and lists of one object, but generously: Cluster API lets a MachinePool list ten thousand
instances, and some infrastructure providers write many addresses.
"""

from __future__ import annotations

from typing import Final

from signer.model.addresses import UnreadableAddress
from signer.model.cluster import MachineView
from signer.model.machine_pool import MachinePoolView
from signer.model.policy import Policy, settings_bytes
from signer.model.possible_addresses import MAXIMUM_READINGS

INSTANCES: Final = 100
"""A MachinePool counts once more for each so many instances."""
ADDRESSES: Final = 16
"""A Machine counts once more for each so many addresses, and for each ``CHARACTERS`` of addresses and annotations. One
without a reading counts as the readings that the index keeps of it.
"""
CHARACTERS: Final = 4096
MOST_READINGS: Final = 256
"""Of all addresses of one Machine without a reading, in the index."""
SETTINGS_BYTES: Final = 16 * 1024
"""A policy counts once more for so many bytes of its attestors' settings, as JSON."""
POLICIES_COUNT: Final = " (one with large settings counts several times)"
POOLS_COUNT: Final = f" (one with many instances counts once more for each {INSTANCES})"
MACHINES_COUNT: Final = " (one with many or long addresses or annotations counts several times)"


def pool_times(pool: MachinePoolView) -> int:
    """How often a MachinePool counts."""
    return 1 + len(pool.provider_ids) // INSTANCES


def policy_times(policy: object) -> int:
    """How often a policy counts. One that cannot be read counts once: its settings are not kept."""
    if not isinstance(policy, Policy):
        return 1
    return 1 + settings_bytes(policy.authorized_attestors) // SETTINGS_BYTES


def machine_times(machine: MachineView) -> int:
    """How often a Machine counts."""
    possible = characters = 0
    for one in machine.addresses:
        possible += MAXIMUM_READINGS if isinstance(one.reading, UnreadableAddress) else 0
        characters += len(one.address)
    for _, text in machine.annotations:
        characters += len(text)
    readings = len(machine.addresses) + min(possible, MOST_READINGS)
    return 1 + readings // ADDRESSES + characters // CHARACTERS


__all__ = [
    "ADDRESSES",
    "CHARACTERS",
    "INSTANCES",
    "MACHINES_COUNT",
    "MOST_READINGS",
    "POLICIES_COUNT",
    "POOLS_COUNT",
    "SETTINGS_BYTES",
    "machine_times",
    "policy_times",
    "pool_times",
]
