"""Which control planes a rotation is possible for."""

from __future__ import annotations

import pytest

from signer.rotation.control_plane.kind import (
    Assisted,
    ControlPlaneReference,
    NoControlPlaneReference,
    Refused,
    Rotatable,
    SigningKey,
    control_plane_kind,
    control_plane_reference,
)
from tests.unit.signer.rotation.control_plane.recorded import recorded

GROUP = "controlplane.cluster.x-k8s.io"


def reference(kind: str, group: str = GROUP) -> ControlPlaneReference:
    return ControlPlaneReference(group, kind, "edge")


def test_kubeadm_with_the_key_is_rotatable() -> None:
    assert control_plane_kind(reference("KubeadmControlPlane"), SigningKey.PRESENT) == Rotatable()


@pytest.mark.parametrize(
    ("kind", "procedure"),
    [
        ("KamajiControlPlane", "certs.kamaji.clastix.io/rotate"),
        ("HostedControlPlane", "cmctl renew"),
        ("RKE2ControlPlane", "rke2 certificate rotate-ca"),
        ("KThreesControlPlane", "k3s certificate rotate-ca"),
        ("TalosControlPlane", "talosctl rotate-ca"),
    ],
)
def test_products_with_a_procedure_of_their_own_are_assisted(kind: str, procedure: str) -> None:
    found = control_plane_kind(reference(kind), SigningKey.PRESENT)
    assert isinstance(found, Assisted)
    assert procedure in found.what_to_do


@pytest.mark.parametrize("kind", ["KubeadmControlPlane", "RKE2ControlPlane", "KamajiControlPlane"])
def test_an_external_ca_is_refused(kind: str) -> None:
    found = control_plane_kind(reference(kind), SigningKey.ABSENT)
    assert isinstance(found, Refused)
    assert "tls.key" in found.reason


@pytest.mark.parametrize("key", SigningKey)
@pytest.mark.parametrize(
    ("kind", "group", "says"),
    [
        ("AWSManagedControlPlane", GROUP, "ActivateCertificateAuthority"),
        ("AzureManagedControlPlane", "infrastructure.cluster.x-k8s.io", "az aks rotate-certs"),
        ("AzureASOManagedControlPlane", "infrastructure.cluster.x-k8s.io", "az aks rotate-certs"),
        ("GCPManagedControlPlane", "infrastructure.cluster.x-k8s.io", "--start-credential-rotation"),
        ("K0smotronControlPlane", GROUP, "k0s"),
        ("K0sControlPlane", GROUP, "k0s"),
    ],
)
def test_managed_control_planes_and_k0s_are_refused(kind: str, group: str, says: str, key: SigningKey) -> None:
    found = control_plane_kind(reference(kind, group), key)
    assert isinstance(found, Refused)
    assert says in found.reason


@pytest.mark.parametrize(
    ("kind", "group"),
    [
        ("KubeadmControlPlane", "controlplane.example.com"),
        ("HostedControlPlane", "hypershift.openshift.io"),
        ("kubeadmcontrolplane", GROUP),
        ("X" * 253, GROUP),
    ],
)
def test_an_unknown_kind_is_refused(kind: str, group: str) -> None:
    found = control_plane_kind(reference(kind, group), SigningKey.PRESENT)
    assert isinstance(found, Refused)
    assert len(found.reason) < 256


def test_a_cluster_without_a_control_plane_is_refused() -> None:
    assert isinstance(control_plane_kind(NoControlPlaneReference(), SigningKey.PRESENT), Refused)


def test_the_reference_is_read_in_both_versions() -> None:
    newer = control_plane_reference(recorded("cluster-v1beta2"))
    older = {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "KubeadmControlPlane",
        "name": "edge-control-plane",
        "namespace": "fleet",
    }
    assert newer == ControlPlaneReference(GROUP, "KubeadmControlPlane", "edge-control-plane")
    assert control_plane_reference({"spec": {"controlPlaneRef": older}}) == newer
    assert newer.is_kubeadm


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"controlPlaneRef": None},
        {"controlPlaneRef": []},
        {"controlPlaneRef": {"apiVersion": "v1", "kind": "Pod", "name": "core"}},
        {"controlPlaneRef": {"apiGroup": GROUP, "kind": "K" * 254, "name": "edge"}},
    ],
)
def test_a_reference_that_cannot_be_one_is_none(spec: object) -> None:
    assert control_plane_reference({"spec": spec}) == NoControlPlaneReference()
