"""Facts about the alternative names of one serving request that come from neither the request nor its Machine."""

from __future__ import annotations

from dataclasses import dataclass

from signer.model.service_networks import NOT_REPORTED, ReportedServices
from signer.model.serving_networks import IPNetwork


@dataclass(frozen=True, slots=True)
class ServingFacts:
    """Each field's default is that of an audit line that was written before the field existed."""

    possibly_conflicting_names: frozenset[str] = frozenset()
    """The requested names and addresses that an address of another Machine may be, if that address cannot be read.

    In canonical form; for addresses, their equivalent addresses.
    """
    names_of_shared_hosts: frozenset[str] = frozenset()
    """The requested names, in canonical form, whose host another Machine has too, in any domain. Empty if the policy
    names no domains.
    """
    networks: tuple[IPNetwork, ...] = ()
    """The policy's networks that the operator allows: nodes may have their addresses."""
    reported_services: ReportedServices = NOT_REPORTED
    """What the workload cluster reports about the networks of its Services."""
    control_plane_names: frozenset[str] = frozenset()
    """The requested names, and equivalents of the requested addresses, that the API servers' certificates or kubeadm's
    configuration have.
    """
    control_plane_unknown: str = ""
    """Why these names are unknown; empty if they are known."""
    reserved_names: frozenset[str] = frozenset()
    """The requested names that the operator reserves, in canonical form."""
