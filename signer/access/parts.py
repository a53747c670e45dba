"""The parts that the reconciler calls, as it calls them: certificates, targets, the list of revocations, bastions."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeAlias

from attestors.wire.ssh.keys import HostKey, PublicKey
from attestors.wire.ssh.options import CriticalOption, Extension
from attestors.wire.ssh.principals import UserPrincipal
from signer.authority.ssh.key_id import KeyID
from signer.kube.client import JsonObject
from signer.model.access import AccessGrant
from signer.model.cluster import ClusterKey
from signer.rules.access_certificates import Hop

# Targets


@dataclass(frozen=True, slots=True)
class TargetNode:
    """A node that a grant opens."""

    node: str
    """The attested name."""
    addresses: tuple[str, ...]
    port: int


@dataclass(frozen=True, slots=True)
class TargetsFound:
    """The nodes of a grant that exist now."""

    nodes: tuple[TargetNode, ...]
    every_node: bool = False
    """The grant opens every node of the cluster, also later ones; ``nodes`` may be empty then."""


@dataclass(frozen=True, slots=True)
class TargetsGone:
    """Every node that the grant names is gone: the grant ends."""

    message: str


@dataclass(frozen=True, slots=True)
class TargetsUnknown:
    """It is not known now which nodes there are, or none is attested yet. Nothing is issued, and nothing ends."""

    message: str


TargetsAnswer: TypeAlias = TargetsFound | TargetsGone | TargetsUnknown


class Targets(Protocol):
    """Finds the nodes of grants in the caches; implemented by :mod:`signer.access.targets`."""

    def of(self, grant: AccessGrant, was_found: bool) -> TargetsAnswer:
        """The nodes of a grant. ``was_found`` says that the grant had nodes before, so missing ones are gone."""
        ...

    def known_hosts(self, grant: AccessGrant, found: TargetsFound) -> tuple[str, ...]:
        """Lines of a ``known_hosts`` file with which a client proves these nodes, without line ends."""
        ...


# Bastions


@dataclass(frozen=True, slots=True)
class NoBastion:
    """The grant needs none."""


@dataclass(frozen=True, slots=True)
class ReadyBastion:
    """The bastion answers."""

    ingress: Mapping[str, Any]
    """``ip``, ``hostname`` and ``port`` as in the grant's status."""
    egress: tuple[str, ...]
    """The networks that nodes see, canonical CIDRs."""
    host_keys: tuple[HostKey, ...]


@dataclass(frozen=True, slots=True)
class PendingBastion:
    """The bastion is being made, changed or deleted."""

    message: str


@dataclass(frozen=True, slots=True)
class BrokenBastion:
    """The bastion's controller has given up for now."""

    message: str


@dataclass(frozen=True, slots=True)
class AbsentBastion:
    """There is no such object."""


BastionState: TypeAlias = ReadyBastion | PendingBastion | BrokenBastion | AbsentBastion


class BastionObjects(Protocol):
    """Renders and reads Bastions, pure; implemented by :mod:`signer.access.bastion_objects`."""

    def desired_bastion(
        self,
        grant: AccessGrant,
        targets: tuple[TargetNode, ...],
        authorities: tuple[HostKey, ...],
        not_after: datetime,
        provider: str,
        settings: Mapping[str, Any],
    ) -> JsonObject:
        """The Bastion of a grant: to create, or to compare ``spec`` with. ``grant`` has the networks that count;
        ``settings`` are the policy's for the provider.
        """
        ...

    def bastion_state(self, found: JsonObject | AbsentBastion) -> BastionState:
        """What a Bastion's status says about its present generation."""
        ...


# Certificates


@dataclass(frozen=True, slots=True)
class IssuanceFacts:
    """What certificates of a grant are made of. The reconciler has proven each."""

    grant: AccessGrant
    creator: str
    """``username`` of the sealed creator."""
    epoch: int
    """0 at first; one more each time that the grant's key id was revoked and the grant goes on."""
    targets: TargetsFound
    bastion: NoBastion | ReadyBastion
    lifetime: timedelta
    """Whole seconds, at most an hour, and never beyond the grant's expiration."""


@dataclass(frozen=True, slots=True)
class HopRequest:
    """One certificate to be signed. Serial number, nonce and time come from its entry in the journal."""

    hop: Hop
    public_key: PublicKey
    key_id: KeyID
    principals: tuple[UserPrincipal, ...]
    lifetime: timedelta
    critical_options: tuple[CriticalOption, ...] = ()
    extensions: tuple[Extension, ...] = ()


class Certificates(Protocol):
    """Plans certificates, pure; implemented by :mod:`signer.access.certificates`."""

    def key_id_of(self, grant: AccessGrant, creator: str, epoch: int) -> KeyID:
        """``grant/<namespace>/<name>/<uid>/<creator>``, followed by ``/<epoch>`` from 1 on."""
        ...

    def certificates_of(self, facts: IssuanceFacts) -> tuple[HopRequest, ...]:
        """One for each hop.

        Raises:
            SSHRefused: the grant's key or names cannot stand in a certificate.
        """
        ...


# Revocations


class RevocationList(Protocol):
    """The key ids of ended grants, in one object for each cluster; implemented by
    :mod:`signer.access.revocation_list`.
    """

    def reserve(self, cluster: ClusterKey, key_id: str, until: datetime) -> None:
        """Keep a place for the key id of certificates that end then at the latest.

        Raises:
            RevocationsUnknown: the list has not been read.
            RevocationListFull: there is no room for it.
        """
        ...

    async def add(self, cluster: ClusterKey, key_id: str, until: datetime) -> None:
        """Have the key id revoked until its last certificate has ended. It is written when this returns.

        Raises:
            ApiError: it may not have been written.
            Deferred: the controller key is not available.
        """
        ...


class Publication(enum.Enum):
    """Whether the nodes can learn of a revocation."""

    PUBLISHED = "Published"
    """The trust bundle that the workload cluster holds revokes the key id."""
    PENDING = "Pending"
    """The bundle is to be published."""
    OUT_OF_REACH = "OutOfReach"
    """The Cluster is gone, or its API server cannot be reached: the certificates end by themselves."""


class Publications(Protocol):
    """Says what the published trust bundles revoke."""

    def of(self, cluster: ClusterKey, key_id: str) -> Publication:
        """Whether nodes can learn that this key id is revoked."""
        ...


__all__ = [
    "AbsentBastion",
    "BastionObjects",
    "BastionState",
    "BrokenBastion",
    "Certificates",
    "Hop",
    "HopRequest",
    "IssuanceFacts",
    "NoBastion",
    "PendingBastion",
    "Publication",
    "Publications",
    "ReadyBastion",
    "RevocationList",
    "TargetNode",
    "Targets",
    "TargetsAnswer",
    "TargetsFound",
    "TargetsGone",
    "TargetsUnknown",
]
