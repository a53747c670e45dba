"""What an infrastructure provider writes about a Machine, and when."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final

from signer.kube.client import JsonObject
from signer.testing.world import WorldCluster

FIRST: Final = 11
"""The number of the Machine whose node asks; others have the numbers after it."""
_INFRASTRUCTURE: Final = "infrastructure.cluster.x-k8s.io"


class Shown(enum.Enum):
    """When a Machine shows its provider ID and addresses.

    Cluster API copies both from the InfraMachine at once, when that is provisioned (``machine_controller_phases.go``).
    """

    BEFORE_JOIN = "before the node joins"
    """Nothing that the provider waits for needs the node: at the latest when the machine runs or has an address."""
    AFTER_JOIN = "after the node joined"
    """The provider waits for the Node, or for the end of the bootstrap data, which runs ``kubeadm join``."""


class Answer(enum.Enum):
    """The outcome of a request for a name that is another node's."""

    DENIED = enum.auto()
    WAITS = enum.auto()
    """The Machine's addresses do not rule the name out."""


@dataclass(frozen=True, slots=True)
class ProviderMachine:
    """One Machine, as its provider describes it."""

    name: str
    infrastructure_name: str
    provider_id: str
    node_name: str
    addresses: tuple[tuple[str, str], ...]
    serving: tuple[str, ...]
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderWorld:
    """A provider in one configuration. In all texts ``{n}`` stands for the Machine's number, of two digits."""

    name: str
    """Also the namespace of its Cluster."""
    provider: str
    """The provider's row in ``docs/compatibility.md``."""
    source: str
    """Repository, version and files that this is taken from."""
    kind: str
    """Of the InfraMachine."""
    provider_id: str
    """As the provider writes it, and as the node must claim it."""
    node_name: str
    """What the provider's template or image calls the kubelet."""
    addresses: tuple[tuple[str, str], ...] = ()
    """``status.addresses``, in the provider's order."""
    serving: tuple[str, ...] = ()
    """Names and IP addresses, besides the node's name, that a serving certificate may have."""
    machine: str = "prod-md-0-{n}"
    infrastructure_machine: str = "prod-md-0-{n}"
    shown: Shown = Shown.BEFORE_JOIN
    policy: tuple[tuple[str, Any], ...] = ()
    """Fields of the policy that this provider needs."""
    another_name: Answer = Answer.DENIED
    """As the node's name. It waits where the provider writes no Hostname address: until there is one, the node's name
    is a guess."""
    another_alternative_name: Answer = Answer.DENIED
    """In a serving certificate. It waits where the Machine has an address that cannot be read, or none at all."""
    host: str = ""
    """The BareMetalHost, for Metal3, whose annotation names the chip; the ByoHost, for BYOH, whose chip is in an
    inventory."""

    def at(self, number: int) -> ProviderMachine:
        """The Machine of that number."""

        def filled(text: str) -> str:
            return text.replace("{n}", str(number))

        return ProviderMachine(
            filled(self.machine),
            filled(self.infrastructure_machine),
            filled(self.provider_id),
            filled(self.node_name),
            tuple((kind, filled(address)) for kind, address in self.addresses),
            tuple(map(filled, self.serving)),
            filled(self.host),
        )

    def create(self, cluster: WorldCluster, machine: ProviderMachine) -> JsonObject:
        """The Machine before its provider has written anything: it has bootstrap data and an InfraMachine."""
        created = cluster.add_machine(machine.name)
        cluster.set_machine_status(created, {"addresses": []})
        reference = {"apiGroup": _INFRASTRUCTURE, "kind": self.kind, "name": machine.infrastructure_name}
        return cluster.patch_machine(machine.name, {"spec": {"infrastructureRef": reference}})


def show(cluster: WorldCluster, machine: ProviderMachine) -> None:
    """The Machine controller copies addresses and provider ID, in one reconciliation, from the InfraMachine."""
    patch = {"spec": {"providerID": machine.provider_id}}
    shown = [{"type": kind, "address": address} for kind, address in machine.addresses]
    cluster.set_machine_status(cluster.patch_machine(machine.name, patch), {"addresses": shown})
