"""Facts that the core gives an attestor about the claimed Machine and about the requester."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias


class MachineRole(enum.Enum):
    """The role of a Machine in its Cluster, as far as it limits what an attestor may trust on first use."""

    WORKER = "worker"
    POOL_MEMBER = "pool-member"
    """A MachinePool owns the Machine; all Machines of a pool share one bootstrap token."""
    CONTROL_PLANE = "control-plane"


class MachineMatch(enum.Enum):
    """How the core found the claimed Machine, and so what links the claimed provider ID to it."""

    PROVIDER_ID = "ProviderID"
    """The Machine shows the claimed provider ID."""
    BOOTSTRAP_TOKEN = "BootstrapToken"  # noqa: S105 - no secret
    """The Machine shows no provider ID yet, and the bootstrap token was made for it."""
    RECORD = "Record"
    """The Machine shows no provider ID yet. An attestation with its bootstrap token is recorded."""


@dataclass(frozen=True, slots=True)
class RecordedIdentity:
    """The identity that this attestor proved earlier for the Machine, and that still holds its reservation."""

    identity: str


@dataclass(frozen=True, slots=True)
class NoRecordedIdentity:
    """This attestor has proved no identity for the Machine yet."""


@dataclass(frozen=True, slots=True)
class ClaimedMachine:
    """The Machine in the management cluster whose provider ID a request claims.

    This does not prove the claim. The annotations were written by the platform's controllers or by clients with write
    access to the cluster's Machines; a node cannot write them.
    """

    name: str
    annotations: Mapping[str, str]
    """Annotations with the prefix ``attestation.cluster.x-k8s.io/``; a value that is too long is empty."""
    role: MachineRole = MachineRole.WORKER
    recorded: RecordedIdentity | NoRecordedIdentity = NoRecordedIdentity()
    match: MachineMatch = MachineMatch.PROVIDER_ID
    """Unless it is ``PROVIDER_ID``, nothing links the claimed provider ID to the Machine. The attestor must then accept
    only an identity that is named for the Machine, its InfraMachine or its host, and for no provider ID. Attestors get
    such a request only if their description has ``attests_without_provider_id``."""


@dataclass(frozen=True, slots=True)
class NoClaimedMachine:
    """The claimed provider ID belongs to an instance of a MachinePool, and no Machine represents that instance.

    The core consults no attestor about a provider ID that nothing in the Cluster has.
    """

    pool: str = ""
    """The MachinePool that lists the provider ID; empty only in requests that a test built."""


@dataclass(frozen=True, slots=True)
class NodeCredential:
    """The requester is a node that authenticated with its own certificate, without a bootstrap token."""


@dataclass(frozen=True, slots=True)
class TokenOfMachine:
    """The bootstrap token was made for exactly the claimed Machine.

    The workload API server vouches for the token's use. Any reader of the Machine's bootstrap data also has the token.
    """


@dataclass(frozen=True, slots=True)
class OtherToken:
    """The bootstrap token belongs to another Machine, several or an unknown one; ``cause`` says which, for a person."""

    cause: str


@dataclass(frozen=True, slots=True)
class TokenNotTraceableNow:
    """The owner of the bootstrap token cannot be determined at this moment; ``cause`` says why."""

    cause: str


RequesterCredential: TypeAlias = NodeCredential | TokenOfMachine | OtherToken | TokenNotTraceableNow


class DocumentKind(enum.Enum):
    """Kinds of objects with plain key-value data that an attestor may look up."""

    CONFIG_MAP = "ConfigMap"
    SECRET = "Secret"  # noqa: S105 - a kind


@dataclass(frozen=True, slots=True)
class Document:
    """A ConfigMap or Secret: its text values by key. Values that are not UTF-8 are left out."""

    texts: Mapping[str, str] = field(repr=False)
    resource_version: str


@dataclass(frozen=True, slots=True)
class NotThere:
    """The object does not exist, or the attestor may not read it; ``cause`` says why, for a person."""

    cause: str


@dataclass(frozen=True, slots=True)
class Host:
    """The host that the claimed Machine runs on, as the infrastructure provider's own objects say."""

    reference: str
    """The beginning of the provider IDs of all Machines on this host, such as ``metal3://<namespace>/<host>``."""
    annotations: Mapping[str, str]
    """Annotations of the host's object with the prefix ``attestation.cluster.x-k8s.io/``; empty if the host itself may
    write them, as with BYOH."""


class ManagementCluster(Protocol):
    """Lookups about the claimed Machine beyond its annotations; each one calls the API server.

    The core confines every lookup to the Cluster's own namespace and to that Machine. It repeats an answer that is less
    than two seconds old. A plugin need not catch exceptions of these methods: they defer the request. Run checks that
    need no lookup first.
    """

    async def infrastructure_annotations(self) -> Mapping[str, str] | NotThere:
        """The attestor annotations of the Machine's InfraMachine; the platform's controller may write them."""
        ...

    async def host(self) -> Host | NotThere:
        """The host of the Machine's InfraMachine, for infrastructure providers whose hosts outlive Machines: Metal3 and
        BYOH."""
        ...

    async def document(self, kind: DocumentKind, name: str) -> Document | NotThere:
        """A ConfigMap or Secret in the Cluster's namespace."""
        ...


class NoManagementCluster:
    """For requests that are verified outside a controller: nothing can be looked up."""

    async def infrastructure_annotations(self) -> Mapping[str, str] | NotThere:
        """Always NotThere."""
        return NotThere("there is no management cluster here to look it up in")

    async def host(self) -> Host | NotThere:
        """Always NotThere."""
        return NotThere("there is no management cluster here to look the host up in")

    async def document(self, kind: DocumentKind, name: str) -> Document | NotThere:
        """Always NotThere."""
        return NotThere(f"there is no management cluster here to look {kind.value} {name} up in")
