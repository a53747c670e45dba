"""What the controller observed before one move of a rotation. Immutable, and free of keys.

Everything that could not be observed is :class:`NotObserved` with the reason: it holds the step and never advances it.
What comes from the workload cluster can only hold a step, too; a step advances by the management cluster's objects, by
attested records, and by the controller's own TLS connections.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Final, TypeAlias

from signer.authority.presented import Presented
from signer.rotation.authorities import AuthorityKind, AuthorityReference, Role

Bundle: TypeAlias = tuple[str, ...]
"""SHA-256 digests of the certificates of a bundle, in its order."""


@dataclass(frozen=True, slots=True)
class NotObserved:
    """It could not be observed."""

    message: str


@dataclass(frozen=True, slots=True)
class Absent:
    """It does not exist."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """It exists, and is not what it must be."""

    message: str


@dataclass(frozen=True, slots=True)
class HeldPair:
    """A Secret with certificates (or public keys) and the key of one of them."""

    certificates: tuple[AuthorityReference, ...]
    signs: AuthorityReference
    """The one that has the key."""

    @property
    def bundle(self) -> Bundle:
        """The digests."""
        return tuple(one.digest for one in self.certificates)


@dataclass(frozen=True, slots=True)
class HeldCertificate:
    """A Secret with one certificate, whose key was deleted."""

    certificate: AuthorityReference


Held: TypeAlias = HeldPair | HeldCertificate | Unusable | Absent


@dataclass(frozen=True, slots=True)
class AuthorityFacts:
    """The Secrets of one authority."""

    secret: Held
    """``<cluster>-<suffix>``."""
    pairs: Mapping[Role, Held]
    """What the rotation keeps of each role. Only Secrets that the controller sealed count; others are Unusable."""
    sealed_before: frozenset[Role] = frozenset()
    """Those that the controller sealed with its previous key."""


class Link(enum.Enum):
    """What ``link.crt`` of Secret ``<cluster>-trust`` holds."""

    NONE = "none"
    OLD_WITH_NEW = "OldWithNew"
    """The new CA certifies the old one."""
    NEW_WITH_OLD = "NewWithOld"
    """The old CA certifies the new one."""
    OTHER = "other"
    """Something else, or a link that is about to end."""


@dataclass(frozen=True, slots=True)
class TrustFacts:
    """Secret ``<cluster>-trust``."""

    client: Bundle
    server: Bundle
    link: Link
    link_not_after: datetime | Absent = field(default=Absent(), compare=False)
    """When the certificate in ``link.crt`` ends, whichever it is. Absent if there is none that can be read."""


@dataclass(frozen=True, slots=True)
class SigningFacts:
    """Secret ``<cluster>-signing``: two pairs, each one certificate and its key, for kube-controller-manager."""

    client: str
    """SHA-256 digest of the certificate of the pair that signs client certificates."""
    serving: str
    """The same for serving certificates."""


class CanarySigner(enum.Enum):
    """The CA by which kube-controller-manager signed the rotation's canary."""

    OLD = "old"
    NEW = "new"
    OTHER = "other"
    """None of the rotation's two."""


@dataclass(frozen=True, slots=True)
class NoClientCertificate:
    """The kubeconfig has another credential, such as a token."""


@dataclass(frozen=True, slots=True)
class SignedByKnown:
    """Its client certificate is by a CA that the controller knows."""

    digest: str
    """SHA-256 of the CA's certificate."""


@dataclass(frozen=True, slots=True)
class SignedByUnknown:
    """Its client certificate cannot be read, or is by another CA, such as one whose Secret is gone."""


KubeconfigClient: TypeAlias = NoClientCertificate | SignedByKnown | SignedByUnknown


@dataclass(frozen=True, slots=True)
class KubeconfigFacts:
    """Secret ``<cluster>-kubeconfig``."""

    authorities: Bundle
    client: KubeconfigClient


@dataclass(frozen=True, slots=True)
class AuthenticationFacts:
    """ConfigMap ``kube-system/extension-apiserver-authentication`` of the workload cluster."""

    client: Bundle
    request_header: Bundle


@dataclass(frozen=True, slots=True)
class RootCAFacts:
    """ConfigMaps ``kube-root-ca.crt`` of the workload cluster."""

    namespaces: int
    without_new: tuple[str, ...]
    """Namespaces whose bundle lacks the new CA; sorted."""
    with_old: tuple[str, ...]
    """Namespaces whose bundle has the old CA; sorted."""


class Acceptance(enum.Enum):
    """Whether an API server accepts a CA's client certificates."""

    ACCEPTED = "Accepted"
    REFUSED = "Refused"


class Publication(enum.Enum):
    """Whether an API server publishes the new service-account key, which shows that it verifies tokens by it."""

    PUBLISHED = "Published"
    MISSING = "Missing"
    NOT_SERVED = "NotServed"
    """It publishes no keys at all."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """One API server, asked in one pass."""

    machine: str
    presents: Presented
    old: Acceptance | NotObserved
    new: Acceptance | NotObserved


@dataclass(frozen=True, slots=True)
class ServersFacts:
    """Every API server that the management cluster knows of."""

    seen: tuple[ServerFacts, ...]
    unseen: Mapping[str, str]
    """Machines whose API server could not be asked, and why."""
    at: datetime


@dataclass(frozen=True, slots=True)
class ControlPlaneMachine:
    """A Machine of the control plane that is not being deleted."""

    name: str
    created: datetime
    joined: bool
    controller_manager_started: datetime | NotObserved
    """When its kube-controller-manager started, by its mirror Pod."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One Machine's node, by its newest attested request."""

    node: str
    machine: str
    evidence: str
    """The discovery hash of the first CA that its running kubelet trusts."""
    client: str
    """The discovery hash of the CA of its newest client certificate."""
    serving: str
    """The same of its newest serving certificate; empty if it has none."""
    is_all: bool
    """Whether this version knows every kind of certificate in its journal, so that these are the newest."""


@dataclass(frozen=True, slots=True)
class RenewalFacts:
    """Whether every Machine of the control plane has taken the files that the present step published, by the
    management cluster alone. What etcd and the service account keys need is read at the start of a process only.
    """

    lagging: tuple[str, ...]
    """Machines, or the control plane; empty if all have."""
    cure: str


RENEWED: Final = RenewalFacts((), "")


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that a move of the rotation depends on."""

    now: datetime
    paused: bool
    """The Cluster or its policy is paused: nothing is written."""
    authorities: Mapping[AuthorityKind, AuthorityFacts]
    trust: TrustFacts | Absent | Unusable
    kubeconfig: KubeconfigFacts | Absent | Unusable
    cluster_info: Bundle | Absent | NotObserved
    authentication: AuthenticationFacts | NotObserved
    root_ca: RootCAFacts | NotObserved
    servers: ServersFacts | NotObserved
    old_refused_since: datetime | NotObserved
    """The first of the passes in a row, up to ``servers``, at which every API server refused the old CA's clients."""
    control_plane: tuple[ControlPlaneMachine, ...]
    workers_joining: Mapping[str, datetime]
    """Machines that are no control plane and have not joined, with their creation times."""
    nodes: tuple[NodeFacts, ...]
    unattested: tuple[str, ...]
    """Machines that joined and have no record; sorted."""
    renewal: RenewalFacts
    pins: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    """KubeadmConfigs of MachinePools, with the discovery hashes that they pin."""
    worker_groups: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The MachineDeployment or MachinePool of each Machine that has one; for people alone."""
    signing: SigningFacts | Absent | Unusable = Absent()
    """Absent, too, where kube-controller-manager signs with kubeadm's pair."""
    canary: CanarySigner | NotObserved = NotObserved(
        "kube-controller-manager is asked once all of its Machines are new"
    )
    published_keys: Mapping[str, Publication | NotObserved] | NotObserved = NotObserved(
        "the API servers are asked until Secret <cluster>-sa holds the new key"
    )
    """By Machine; every API server that the management cluster knows of is there."""
    actuator: str = ""
    """What the operator must do so that the API servers change; empty if the controller does it."""
