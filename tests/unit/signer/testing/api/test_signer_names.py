"""Signer names."""

from __future__ import annotations

import pytest

from signer.testing.api.signer_names import validate_signer_name


@pytest.mark.parametrize(
    "name",
    [
        "kubernetes.io/kubelet-serving",
        "cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm",
        "a.b/c.d",
        f"{'a' * 63}.b/{'c' * 253}",
    ],
)
def test_accepted(name: str) -> None:
    assert validate_signer_name("spec.signerName", name) == []


@pytest.mark.parametrize(
    "name",
    ["", "a.b", "a.b/", "/c", "ab/c", "cluster-x-k8s-io/c", "A.b/c", "a.b/C", "a..b/c", "a.b/c/d", f"{'a' * 64}.b/c"],
)
def test_refused(name: str) -> None:
    assert validate_signer_name("spec.signerName", name)
