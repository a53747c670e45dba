"""Cluster API's definitions: what is said of a folder without them. The rest is used by every other test."""

from __future__ import annotations

from pathlib import Path

import pytest

from signer.testing.cluster_api import capi_crds


def test_folder_without_cluster_apis_definitions(tmp_path: Path) -> None:
    """Said at once: else nothing of Cluster API is served, and every object of it is a 404."""
    with pytest.raises(FileNotFoundError, match=r"has no cluster\.x-k8s\.io_\*\.yaml"):
        capi_crds(tmp_path)
    (tmp_path / "cluster.x-k8s.io_clusters.yaml").write_text("kind: CustomResourceDefinition")
    with pytest.raises(FileNotFoundError, match=r"has no bootstrap\.cluster\.x-k8s\.io_kubeadmconfigs\.yaml"):
        capi_crds(tmp_path)


def test_those_that_come_with_us() -> None:
    assert len(capi_crds()) >= 4
