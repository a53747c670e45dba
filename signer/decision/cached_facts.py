"""Gathers facts from the caches: the Machine that a request claims, and what else concerns its alternative names.

The rules are in :mod:`signer.rules.machine_match` and :mod:`signer.rules.serving`. Nothing here makes a call.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from attestors.contract import AttestorDescription, IPAddress
from signer.model.addresses import canonical
from signer.model.bootstrap_token import TokenAsks, TracedTo
from signer.model.cluster import MACHINE_KIND, ClusterKey, MachineView
from signer.model.control_plane_names import ControlPlaneReport, ReservedNames
from signer.model.policy import Policy
from signer.model.record import record_name
from signer.model.service_networks import ServicesReport
from signer.model.serving_facts import ServingFacts
from signer.model.serving_networks import IPNetwork, OperatorNetworks
from signer.rules.machine import MachineGone, NoRecord
from signer.rules.machine_match import Lead, MatchFacts, NotConsidered, OtherLead, considers_leads
from signer.rules.serving import equivalent_addresses
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.caches import Caches
from signer.store.records import possibly_conflicting_names


@dataclass(frozen=True, slots=True)
class MachineSearch:
    """Looks up Machines of one Cluster."""

    key: ClusterKey
    caches: Caches
    tokens: BootstrapTokens

    def facts(
        self, username: str, node_name: str, provider_id: str, policy: Policy, attestor: AttestorDescription
    ) -> MatchFacts:
        """The facts that lead from a claimed provider ID, a requester and a node name to a Machine.

        Raises:
            Refused: the requester is neither a node nor a bootstrap token.
            Deferred: the controller key is not available, or a newer one must be read first.
        """
        machines = self.caches.matching(self.key, provider_id)
        asks = self.tokens.asks(self.key, username)
        lead: Lead = NotConsidered()
        if not machines and considers_leads(policy, attestor):
            lead = (
                self._of_token(asks, provider_id)
                if isinstance(asks, TokenAsks)
                else self._of_node(node_name, provider_id)
            )
        return MatchFacts(provider_id, node_name, self.key, machines, asks, lead)

    def _of_token(self, asks: TokenAsks, provider_id: str) -> OtherLead:
        machine: MachineView | MachineGone = MachineGone()
        if isinstance(asks.trace, TracedTo) and len(asks.trace.owners) == 1:
            (owner,) = asks.trace.owners
            if owner.kind == MACHINE_KIND:
                machine = self._machine_named(owner.name)
        return OtherLead(machine, NoRecord(), self._holders(provider_id, machine))

    def _of_node(self, node_name: str, provider_id: str) -> OtherLead:
        record = self.caches.authentic.get(self.key.namespace, record_name(self.key, node_name))
        machine: MachineView | MachineGone = MachineGone()
        if not isinstance(record, NoRecord) and record.machine.is_claimed:
            machine = self._machine_named(record.machine.name)
        return OtherLead(machine, record, self._holders(provider_id, machine))

    def _machine_named(self, name: str) -> MachineView | MachineGone:
        return self.caches.machines.get(self.key.namespace, name) or MachineGone()

    def _holders(self, provider_id: str, machine: MachineView | MachineGone) -> tuple[str, ...]:
        return () if isinstance(machine, MachineGone) else self.caches.holders(provider_id, machine)


class Names(Protocol):
    """Names and addresses, of a request or of a host."""

    @property
    def dns_names(self) -> tuple[str, ...]:
        """DNS names."""

    @property
    def ip_addresses(self) -> tuple[IPAddress, ...]:
        """IP addresses."""


class ServingFactsSource:
    """Gathers the facts about alternative names, for the requests of one cluster."""

    def __init__(
        self,
        caches: Caches,
        operator_networks: OperatorNetworks,
        services_report: ServicesReport,
        control_plane: ControlPlaneReport,
        reserved_names: ReservedNames,
    ) -> None:
        self._caches = caches
        self._control_plane = control_plane
        self._reserved_names = reserved_names
        self._services_report = services_report
        self._operator_networks = operator_networks

    def facts(self, policy: Policy, machine: MachineView, request: Names) -> ServingFacts:
        """The current facts about the names in ``request``, which is for the node of ``machine``."""
        return ServingFacts(
            possibly_conflicting_names(self._caches, machine, request.dns_names, request.ip_addresses),
            self._names_of_shared_hosts(policy, machine, request),
            self._networks(policy),
            self._services_report.reported,
            self._control_plane_names(request),
            self._control_plane.unknown,
            frozenset(filter(self._reserved_names.has, map(canonical, request.dns_names))),
        )

    def _control_plane_names(self, request: Names) -> frozenset[str]:
        equivalents = chain.from_iterable(map(equivalent_addresses, request.ip_addresses))
        return self._control_plane.names_among((*map(canonical, request.dns_names), *map(str, equivalents)))

    def _networks(self, policy: Policy) -> tuple[IPNetwork, ...]:
        named = policy.serving_networks
        return self._operator_networks.allowed(named, policy.cluster.namespace) if named else ()

    def _names_of_shared_hosts(self, policy: Policy, machine: MachineView, request: Names) -> frozenset[str]:
        if not policy.node_names.domains:
            return frozenset()  # no name is derived
        index = self._caches.names
        return frozenset(
            name
            for name in map(canonical, request.dns_names)
            if index.other_machines_with_host(machine, name) or index.other_instances_with_host(machine, name)
        )
