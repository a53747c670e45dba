"""What the core tells an attestor about the Machine that a request claims, and about whoever asks."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias


class MachineRole(enum.Enum):
    """What a Machine is in its Cluster, as far as it matters to how much may be taken on trust."""

    WORKER = "worker"
    POOL_MEMBER = "pool-member"
    """A MachinePool owns it; all of a pool's machines share one bootstrap token."""
    CONTROL_PLANE = "control-plane"


@dataclass(frozen=True, slots=True)
class RecordedIdentity:
    """The identity that this same attestor proved for the Machine before, and that still holds it."""

    identity: str


@dataclass(frozen=True, slots=True)
class NoRecordedIdentity:
    """This attestor has not proved anything for the Machine yet."""


@dataclass(frozen=True, slots=True)
class ClaimedMachine:
    """What the management cluster says of the Machine whose provider ID a request claims.

    The claim is not proven by it. Whoever may write the cluster's Machines, and the platform's controllers, wrote the
    annotations: a node cannot.
    """

    name: str
    annotations: Mapping[str, str]
    """Those for attestors: their keys begin with ``attestation.cluster.x-k8s.io/``; one that is too long is empty."""
    role: MachineRole = MachineRole.WORKER
    recorded: RecordedIdentity | NoRecordedIdentity = NoRecordedIdentity()


@dataclass(frozen=True, slots=True)
class NoClaimedMachine:
    """The claimed provider ID is that of an instance of a MachinePool, and no Machine stands for it.

    The core asks no attestor about what nothing in the Cluster has.
    """

    pool: str = ""
    """The MachinePool that lists the provider ID; empty only in requests that a test made."""


@dataclass(frozen=True, slots=True)
class NodeCredential:
    """The requester is a node with a certificate of its own: no bootstrap token is involved."""


@dataclass(frozen=True, slots=True)
class TokenOfMachine:
    """The bootstrap token was made for exactly the claimed Machine, and for no other.

    Who asks is the workload API server's word, and whoever read the Machine's bootstrap data has the token too.
    """


@dataclass(frozen=True, slots=True)
class OtherToken:
    """The bootstrap token was made for others, or several, or nobody can tell; ``cause`` says which, for a person."""

    cause: str


@dataclass(frozen=True, slots=True)
class TokenNotTraceableNow:
    """Whose bootstrap token it is cannot be told at this moment; ``cause`` says why."""

    cause: str


RequesterCredential: TypeAlias = NodeCredential | TokenOfMachine | OtherToken | TokenNotTraceableNow


class DocumentKind(enum.Enum):
    """Kinds of objects with plain key-value data that an attestor may look up."""

    CONFIG_MAP = "ConfigMap"
    SECRET = "Secret"  # noqa: S105 - a kind


@dataclass(frozen=True, slots=True)
class Document:
    """A ConfigMap or Secret: its texts by key; a value that is no UTF-8 is left out."""

    texts: Mapping[str, str] = field(repr=False)
    resource_version: str


@dataclass(frozen=True, slots=True)
class NotThere:
    """There is no such object, or not one that may be looked at; ``cause`` says why, for a person."""

    cause: str


class ManagementCluster(Protocol):
    """What an attestor may look up about the claimed Machine beyond its annotations, each by a call to the API server.

    The core confines every look-up to the Cluster's own namespace and to that Machine, and answers from what it saw
    less than two seconds ago where it was asked before. An exception of these methods need not be caught: it makes the
    request wait. What can be told without them should be told first.
    """

    async def infrastructure_annotations(self) -> Mapping[str, str] | NotThere:
        """Annotations for attestors on the Machine's InfraMachine, which its platform's controller may write."""
        ...

    async def document(self, kind: DocumentKind, name: str) -> Document | NotThere:
        """A ConfigMap or Secret in the Cluster's namespace."""
        ...


class NoManagementCluster:
    """For requests that are judged away from a controller: nothing can be looked up."""

    async def infrastructure_annotations(self) -> Mapping[str, str] | NotThere:
        """Never any."""
        return NotThere("there is no management cluster here to look it up in")

    async def document(self, kind: DocumentKind, name: str) -> Document | NotThere:
        """Never any."""
        return NotThere(f"there is no management cluster here to look {kind.value} {name} up in")
