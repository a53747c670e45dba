"""The control plane providers' CA Secrets, from the source of their controllers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from signer.testing.certificates import EncryptionAlgorithm


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneWorld:
    """A control plane provider."""

    name: str
    """Also the namespace of its Cluster."""
    provider: str
    """The provider's row in ``docs/compatibility.md``."""
    source: str
    """Repository, version and files that this is taken from."""
    kind: str
    """Of the Cluster's ``spec.controlPlaneRef``."""
    client: str = "ca"
    """Name suffix of the Secret with the CA that the API server accepts client certificates of."""
    serving: str = "ca"
    """Name suffix of the Secret with the CA in the nodes' kubeconfigs."""
    algorithm: EncryptionAlgorithm = EncryptionAlgorithm.ECDSA_P256
    secret_type: str = "cluster.x-k8s.io/secret"
    copies: tuple[tuple[str, str], ...] = ()
    """Further keys of the Secret, each with the key whose value it repeats."""
    other_secrets: tuple[str, ...] = ()
    """Name suffixes of Secrets that hold other PKI, which is not to be touched."""


WORLDS: Final = (
    ControlPlaneWorld(
        name="kubeadm",
        provider="kubeadm",
        source="kubernetes-sigs/cluster-api v1.14.0: util/secret/certificates.go",
        kind="KubeadmControlPlane",
        algorithm=EncryptionAlgorithm.RSA_2048,
        other_secrets=("etcd", "proxy", "sa"),
    ),
    ControlPlaneWorld(
        name="rke2",
        provider="RKE2",
        source="rancher/cluster-api-provider-rke2 v0.25.0: pkg/secret/certificates.go, pkg/kubeconfig/kubeconfig.go",
        kind="RKE2ControlPlane",
        client="cca",
        other_secrets=("etcd", "peer-etcd"),
    ),
    ControlPlaneWorld(
        name="k3s",
        provider="K3s",
        source="k3s-io/cluster-api-k3s v0.3.1: pkg/secret/certificates.go, pkg/kubeconfig/kubeconfig.go",
        kind="KThreesControlPlane",
        client="cca",
        other_secrets=("etcd",),
    ),
    ControlPlaneWorld(
        name="kamaji",
        provider="Kamaji",
        source="clastix/cluster-api-control-plane-provider-kamaji v0.20.0: "
        "controllers/kamajicontrolplane_controller_resources.go",
        kind="KamajiControlPlane",
    ),
    ControlPlaneWorld(
        name="kamaji-own-secret",
        provider="Kamaji",
        source="clastix/kamaji ddbabd8: internal/resources/ca_certificate.go: Kamaji's own Secret, where the "
        "TenantControlPlane is called like the Cluster",
        kind="KamajiControlPlane",
        secret_type="Opaque",
        copies=(("ca.crt", "tls.crt"), ("ca.key", "tls.key")),
    ),
    ControlPlaneWorld(
        name="k0smotron",
        provider="k0smotron",
        source="k0sproject/k0smotron v2.1.0: internal/controller/controlplane/k0smotron_controlplane_controller.go",
        kind="K0smotronControlPlane",
        other_secrets=("etcd", "proxy", "sa"),
    ),
    ControlPlaneWorld(
        name="k0s",
        provider="k0smotron",
        source="k0sproject/k0smotron v2.1.0: internal/controller/controlplane/k0s_controlplane_controller.go",
        kind="K0sControlPlane",
        other_secrets=("etcd", "proxy", "sa"),
    ),
    ControlPlaneWorld(
        name="talos",
        provider="Talos",
        source="siderolabs/cluster-api-bootstrap-provider-talos v0.6.12: controllers/secrets.go",
        kind="TalosControlPlane",
        secret_type="Opaque",
        other_secrets=("talos", "talosconfig"),
    ),
)
