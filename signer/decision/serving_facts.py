"""Gathers the facts about the alternative names of a serving request."""

from __future__ import annotations

from attestors.contract import IPAddress
from signer.model.cluster import MachineView
from signer.model.serving_facts import ServingFacts
from signer.store.caches import Caches
from signer.store.records import possibly_conflicting_names


def serving_facts(
    caches: Caches, machine: MachineView, dns_names: tuple[str, ...], ip_addresses: tuple[IPAddress, ...]
) -> ServingFacts:
    """The current facts about these names, requested for ``machine``."""
    return ServingFacts(possibly_conflicting_names(caches, machine, dns_names, ip_addresses))
