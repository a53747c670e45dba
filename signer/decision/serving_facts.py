"""Gathers the facts about the alternative names of a serving request."""

from __future__ import annotations

from signer.model.addresses import canonical
from signer.model.certificate_request import CertificateRequest
from signer.model.cluster import MachineView
from signer.model.policy import Policy
from signer.model.service_networks import ServicesReport
from signer.model.serving_facts import ServingFacts
from signer.model.serving_networks import IPNetwork, OperatorNetworks
from signer.store.caches import Caches
from signer.store.records import possibly_conflicting_names


class ServingFactsSource:
    """Gathers these facts for the requests of one cluster."""

    def __init__(
        self,
        caches: Caches,
        operator_networks: OperatorNetworks,
        services_report: ServicesReport,
    ) -> None:
        self._caches = caches
        self._services_report = services_report
        self._operator_networks = operator_networks

    def facts(self, policy: Policy, machine: MachineView, request: CertificateRequest) -> ServingFacts:
        """The current facts about the names in ``request``, which is for the node of ``machine``."""
        return ServingFacts(
            possibly_conflicting_names(self._caches, machine, request.dns_names, request.ip_addresses),
            self._names_of_shared_hosts(policy, machine, request),
            self._networks(policy),
            self._services_report.reported,
        )

    def _networks(self, policy: Policy) -> tuple[IPNetwork, ...]:
        named = policy.serving_networks
        return self._operator_networks.allowed(named, policy.cluster.namespace) if named else ()

    def _names_of_shared_hosts(
        self, policy: Policy, machine: MachineView, request: CertificateRequest
    ) -> frozenset[str]:
        if not policy.node_names.domains:
            return frozenset()  # no name is derived
        index = self._caches.names
        return frozenset(
            name
            for name in map(canonical, request.dns_names)
            if index.other_machines_with_host(machine, name) or index.other_instances_with_host(machine, name)
        )
