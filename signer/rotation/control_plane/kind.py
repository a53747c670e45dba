"""Whether the certificate authority of a Cluster can be rotated, by its control plane provider.

Source of the kinds: ``config/crd`` of each provider. Of the findings about each product: its own documentation and
source.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from signer.model.fields import mapping_of, short_text_of

_CLUSTER_API: Final = "controlplane.cluster.x-k8s.io"
KUBEADM_CONTROL_PLANE: Final = "KubeadmControlPlane"
_MAXIMUM_SHOWN_CHARACTERS: Final = 64


@dataclass(frozen=True, slots=True)
class ControlPlaneReference:
    """``spec.controlPlaneRef`` of a Cluster, which is to the Cluster's own namespace."""

    api_group: str
    kind: str
    name: str

    @property
    def is_kubeadm(self) -> bool:
        """Whether it names a KubeadmControlPlane."""
        return (self.api_group, self.kind) == (_CLUSTER_API, KUBEADM_CONTROL_PLANE)


@dataclass(frozen=True, slots=True)
class NoControlPlaneReference:
    """The Cluster has no usable ``spec.controlPlaneRef``."""


class SigningKey(enum.Enum):
    """Whether the cluster's CA Secret holds the CA's key."""

    PRESENT = "present"
    ABSENT = "absent"
    """An external CA: Cluster API allows a Secret with the certificate alone."""


@dataclass(frozen=True, slots=True)
class Rotatable:
    """A control plane by kubeadm, whose rollouts this controller can use."""


@dataclass(frozen=True, slots=True)
class Assisted:
    """A person rotates by the product's own procedure. The controller proves each step, and signs by what the CA Secret
    holds."""

    reason: str
    what_to_do: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The controller does not take part in a rotation."""

    reason: str


ControlPlaneKind: TypeAlias = Rotatable | Assisted | Refused


def control_plane_reference(cluster: Mapping[str, Any]) -> ControlPlaneReference | NoControlPlaneReference:
    """Read ``spec.controlPlaneRef`` of a Cluster: ``{apiGroup, kind, name}`` in v1beta2, an ObjectReference in "
    "v1beta1."""
    reference = mapping_of(mapping_of(cluster, "spec"), "controlPlaneRef")
    group = short_text_of(reference, "apiGroup") or short_text_of(reference, "apiVersion").rpartition("/")[0]
    kind, name = short_text_of(reference, "kind"), short_text_of(reference, "name")
    return ControlPlaneReference(group, kind, name) if group and kind and name else NoControlPlaneReference()


def control_plane_kind(reference: ControlPlaneReference | NoControlPlaneReference, key: SigningKey) -> ControlPlaneKind:
    """Judge a Cluster by its control plane and its CA Secret."""
    if isinstance(reference, NoControlPlaneReference):
        return Refused(
            "the Cluster has no spec.controlPlaneRef, so that nothing says which machines run its API servers"
        )
    known = _KINDS.get((reference.api_group, reference.kind), _unknown(reference))
    if isinstance(known, Refused):
        return known
    if key is SigningKey.ABSENT:
        return Refused(
            "the CA Secret holds no tls.key: the CA is external, and this controller can neither sign with it nor "
            "replace it. Rotate it where its key is kept"
        )
    return known


def _unknown(reference: ControlPlaneReference) -> Refused:
    shown = f"{reference.kind}.{reference.api_group}"[:_MAXIMUM_SHOWN_CHARACTERS]
    return Refused(
        f"the control plane is of kind {shown!a}, of which this controller knows no procedure for a rotation"
    )


def _managed(product: str, procedure: str) -> Refused:
    return Refused(f"{product} keeps the key of the cluster's CA, and replaces the CA itself: {procedure}")


_K0S: Final = Refused(
    "k0s uses one CA file for all purposes and accepts no bundle in it, so that old and new CA cannot be trusted at "
    "the same time. To replace the CA, stop the whole control plane, and have every worker join again"
)
_KAMAJI: Final = Assisted(
    "Kamaji replaces the CA at once, without a time in which both are trusted",
    "When the nodes accept the new CA, annotate Secret <TenantControlPlane>-ca with certs.kamaji.clastix.io/rotate, "
    "then restart the konnectivity agents and fetch the kubeconfigs of add-ons again",
)
_TEUTONET: Final = Assisted(
    "cert-manager issues the CA for this provider, which publishes old and new CA in Secret <cluster>-ca-bundle",
    "Renew the CA's Certificate with `cmctl renew`. The provider then rolls the MachineDeployments. Confirm each step "
    "only when the controller has proven it: the provider has no gates of its own",
)


def _rotate_ca(product: str, command: str) -> Assisted:
    return Assisted(
        f"{product} replaces its CAs itself, by a command on a server",
        f"On a server, put the new CAs into a folder and run `{command}`; then restart the servers one by one, and "
        "after them the agents. It is without disruption only if the new CA has the same root or is cross-signed; "
        "`--force` breaks all nodes and all join tokens at once",
    )


_TALOS: Final = Assisted(
    "Talos replaces the CA itself, and keeps the accepted CAs in its machine configuration",
    "Run `talosctl rotate-ca --talos=false --kubernetes=true`, first as the dry run that is its default, then with "
    "`--dry-run=false`. Then write the new CA into the Cluster's CA Secret",
)

_KINDS: Final[Mapping[tuple[str, str], ControlPlaneKind]] = {
    (_CLUSTER_API, KUBEADM_CONTROL_PLANE): Rotatable(),
    (_CLUSTER_API, "KamajiControlPlane"): _KAMAJI,
    (_CLUSTER_API, "HostedControlPlane"): _TEUTONET,
    (_CLUSTER_API, "RKE2ControlPlane"): _rotate_ca("RKE2", "rke2 certificate rotate-ca --path=<folder>"),
    (_CLUSTER_API, "KThreesControlPlane"): _rotate_ca("K3s", "k3s certificate rotate-ca --path=<folder>"),
    (_CLUSTER_API, "TalosControlPlane"): _TALOS,
    (_CLUSTER_API, "K0smotronControlPlane"): _K0S,
    (_CLUSTER_API, "K0sControlPlane"): _K0S,
    (_CLUSTER_API, "AWSManagedControlPlane"): _managed(
        "EKS", "call CreateCertificateAuthority, distribute the new CA, then call ActivateCertificateAuthority"
    ),
    (_CLUSTER_API, "ROSAControlPlane"): _managed("ROSA", "ask its support"),
    ("infrastructure.cluster.x-k8s.io", "AzureManagedControlPlane"): _managed(
        "AKS", "run `az aks rotate-certs`, which stops the API server for up to 30 minutes and re-images all nodes"
    ),
    ("infrastructure.cluster.x-k8s.io", "AzureASOManagedControlPlane"): _managed(
        "AKS", "run `az aks rotate-certs`, which stops the API server for up to 30 minutes and re-images all nodes"
    ),
    ("infrastructure.cluster.x-k8s.io", "GCPManagedControlPlane"): _managed(
        "GKE",
        "run `gcloud container clusters update --start-credential-rotation`, recreate the nodes, then run it with "
        "`--complete-credential-rotation`",
    ),
}
