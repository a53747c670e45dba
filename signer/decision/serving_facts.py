"""Gathers the facts about the alternative names of a serving request."""

from __future__ import annotations

from signer.model.addresses import canonical
from signer.model.certificate_request import CertificateRequest
from signer.model.cluster import MachineView
from signer.model.policy import Policy
from signer.model.serving_facts import ServingFacts
from signer.store.caches import Caches
from signer.store.records import possibly_conflicting_names


def serving_facts(caches: Caches, policy: Policy, machine: MachineView, request: CertificateRequest) -> ServingFacts:
    """The current facts about the names in ``request``, which is for the node of ``machine``."""
    return ServingFacts(
        possibly_conflicting_names(caches, machine, request.dns_names, request.ip_addresses),
        _names_of_shared_hosts(caches, policy, machine, request),
    )


def _names_of_shared_hosts(
    caches: Caches, policy: Policy, machine: MachineView, request: CertificateRequest
) -> frozenset[str]:
    if not policy.node_names.domains:
        return frozenset()  # no name is derived
    names = frozenset(map(canonical, request.dns_names))
    return frozenset(name for name in names if caches.names.other_machines_with_host(machine, name))
