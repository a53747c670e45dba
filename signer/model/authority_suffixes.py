"""Which Secrets hold a cluster's CAs: ``<cluster>-<suffix>``, one suffix for each purpose.

kubeadm has one CA for clients and servers, in ``<cluster>-ca``. RKE2, K3s and Canonical Kubernetes have two: ``-cca``
signs client certificates, and ``-ca`` is the server CA, which kubeconfigs hold (cluster-api-provider-rke2,
cluster-api-k3s and cluster-api-k8s, each ``pkg/secret``).
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final, TypeAlias

SUFFIX: Final = re.compile(r"(?=.{1,63}\Z)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", re.ASCII)
SUFFIX_FORM: Final = "up to 63 lower-case letters, digits and '-', a letter or digit at both ends"
CLUSTER_CA: Final = "ca"
CLIENT_CA: Final = "cca"
NODE_CLIENT_CA: Final = "node-client-ca"
"""Of the CA that the controller makes for the nodes' client certificates alone, where a policy chooses that."""
KUBEADM_CONTROL_PLANE: Final = "KubeadmControlPlane"
_WITH_CLIENT_CA: Final = frozenset({"RKE2ControlPlane", "KThreesControlPlane", "CK8sControlPlane"})


@dataclass(frozen=True, slots=True)
class AuthoritySuffixes:
    """The Secrets' name suffixes."""

    client: str
    """Of the CA that signs client certificates."""
    serving: str
    """Of the CA that signs serving certificates, which nodes know the cluster by."""


ONE_AUTHORITY: Final = AuthoritySuffixes(CLUSTER_CA, CLUSTER_CA)
CLIENT_AND_SERVER: Final = AuthoritySuffixes(CLIENT_CA, CLUSTER_CA)


@dataclass(frozen=True, slots=True)
class ByControlPlane:
    """The policy names no Secrets: the kind of control plane, or else the Secrets that exist, tell."""


BY_CONTROL_PLANE: Final = ByControlPlane()


@dataclass(frozen=True, slots=True)
class ByExistence:
    """``CLIENT_AND_SERVER`` if Secret ``<cluster>-cca`` exists, else ``ONE_AUTHORITY``."""


@dataclass(frozen=True, slots=True)
class ExpectedSecret:
    """A Secret that a rotation keeps, and the one CA that it must hold."""

    suffix: str
    digest: str
    """SHA-256 of the CA certificate's DER, hexadecimal."""
    public_key_hash: str
    """The CA's discovery hash."""


@dataclass(frozen=True, slots=True)
class RotatingAuthorities:
    """The CAs are being rotated: the record of the rotation says which signs what.

    Secret ``<cluster>-ca`` is not read, because it changes hands in the middle.
    """

    client: ExpectedSecret
    serving: ExpectedSecret
    also_accepted: tuple[ExpectedSecret, ...]
    """Evidence may name them, too."""
    retired: frozenset[str]
    """Discovery hashes of this cluster's other CAs."""


class Published(enum.Enum):
    """Whether CAs that Secret ``<cluster>-trust`` publishes count as former ones."""

    NOT_READ = "NotRead"
    """The record of the rotation names all of them."""
    READ = "Read"
    """There is no record. It may have been deleted in the middle of a rotation, and nodes may name either CA."""


@dataclass(frozen=True, slots=True)
class AfterRotation:
    """The CAs as without a rotation, of a cluster that had another CA before."""

    choice: AuthoritySuffixes | ByExistence
    retired: frozenset[str]
    """Discovery hashes of this cluster's former CAs: evidence that names one waits, and is never denied for it."""
    also_accepted: tuple[ExpectedSecret, ...] = ()
    """Evidence may name them, too, while their Secrets are there: of a rotation that was abandoned."""
    published: Published = Published.NOT_READ


@dataclass(frozen=True, slots=True)
class NotRotated:
    """Rotation is switched off, so nothing says more about the cluster's CAs."""


@dataclass(frozen=True, slots=True)
class NoRecord:
    """Rotation is switched on, and the Cluster has no record: there was no rotation, or its record was deleted."""


@dataclass(frozen=True, slots=True)
class SeparateNodeClients:
    """A node-client authority signs the nodes' client certificates, and the cluster's one CA everything else.

    Every API server has been proven to accept it. No rotation is under way.
    """

    client: ExpectedSecret
    retired: frozenset[str] = frozenset()
    """Discovery hashes of this cluster's former CAs."""
    published: Published = Published.NOT_READ


@dataclass(frozen=True, slots=True)
class FormerAuthorities:
    """A rotation is over, or has not made its CA yet."""

    retired: frozenset[str]
    also_accepted: tuple[ExpectedSecret, ...] = ()
    """See :class:`AfterRotation`."""


RotationOfAuthorities: TypeAlias = RotatingAuthorities | FormerAuthorities | NotRotated | NoRecord | SeparateNodeClients
AuthorityChoice: TypeAlias = AuthoritySuffixes | ByExistence | RotatingAuthorities | AfterRotation | SeparateNodeClients
SuffixChoice: TypeAlias = AuthoritySuffixes | ByControlPlane


def suffixes_for(choice: SuffixChoice, control_plane_kind: str) -> AuthoritySuffixes | ByExistence:
    """The Secrets of a Cluster. ``control_plane_kind`` is the kind of its ``spec.controlPlaneRef``, or empty.

    Secret ``<cluster>-cca`` of a kubeadm control plane is never read.
    """
    if isinstance(choice, AuthoritySuffixes):
        return choice
    if control_plane_kind == KUBEADM_CONTROL_PLANE:
        return ONE_AUTHORITY
    return CLIENT_AND_SERVER if control_plane_kind in _WITH_CLIENT_CA else ByExistence()
