"""The state of a KubeadmControlPlane and its Cluster, and the version that is read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from signer.model.cluster import ClusterKey
from signer.rotation.control_plane.kind import ControlPlaneReference
from signer.rotation.control_plane.kubeadm_control_plane import (
    ClusterTopology,
    InvalidControlPlane,
    NoClusterClass,
    Rollout,
    Version,
    kubeadm_control_plane,
    rotated_cluster,
)
from signer.rotation.control_plane.template import NOT_SET
from tests.unit.signer.rotation.control_plane.recorded import KUBEADM, recorded

VERSIONS = dict(zip(KUBEADM, (Version.V1BETA1, Version.V1BETA2), strict=True))
AFTER = datetime(2026, 10, 1, 8, tzinfo=UTC)
AFTER_FIELDS = {
    KUBEADM[0]: {"rolloutAfter": "2026-10-01T08:00:00Z"},
    KUBEADM[1]: {"rollout": {"after": "2026-10-01T08:00:00Z"}},
}
REFERENCE = ControlPlaneReference("controlplane.cluster.x-k8s.io", "KubeadmControlPlane", "edge-control-plane")


@pytest.mark.parametrize("name", KUBEADM)
def test_both_versions_read_alike(name: str) -> None:
    found = kubeadm_control_plane(recorded(name), VERSIONS[name])
    assert (found.namespace, found.name, found.resource_version) == ("fleet", "edge-control-plane", "4711")
    assert (found.paused, found.deleting, found.observed) == (False, False, True)
    assert found.rollout is Rollout.NOT_RUNNING
    assert found.rollout_after == NOT_SET
    assert found.replicas.settled
    assert "s3cr3t" not in repr(found)


@pytest.mark.parametrize("name", KUBEADM)
def test_the_time_of_the_rollout_is_read(name: str) -> None:
    manifest = recorded(name)
    manifest["spec"].update(AFTER_FIELDS[name])
    assert kubeadm_control_plane(manifest, VERSIONS[name]).rollout_after == AFTER


@pytest.mark.parametrize("name", KUBEADM)
@pytest.mark.parametrize("field", ["replicas", "readyReplicas", "updatedReplicas upToDateReplicas"])
@pytest.mark.parametrize("value", [2, 4, None, True, "3", -1])
def test_each_number_counts(name: str, field: str, value: Any) -> None:
    manifest = recorded(name)
    for one in field.split():
        if one in manifest["status"]:
            manifest["status"][one] = value
    assert not kubeadm_control_plane(manifest, VERSIONS[name]).replicas.settled


@pytest.mark.parametrize("name", KUBEADM)
@pytest.mark.parametrize("status", ["True", "Unknown", None])
def test_a_rollout_is_running_unless_the_provider_denies_it(name: str, status: Any) -> None:
    manifest = recorded(name)
    holder = manifest["status"]["v1beta2"] if name == KUBEADM[0] else manifest["status"]
    next(one for one in holder["conditions"] if one["type"] == "RollingOut")["status"] = status
    assert kubeadm_control_plane(manifest, VERSIONS[name]).rollout is Rollout.RUNNING


def test_an_older_provider_reports_no_rollout() -> None:
    manifest = recorded(KUBEADM[0])
    del manifest["status"]["v1beta2"]
    assert kubeadm_control_plane(manifest, VERSIONS[KUBEADM[0]]).rollout is Rollout.NOT_REPORTED


@pytest.mark.parametrize("observed", [2, None, "3"])
def test_a_status_of_an_earlier_spec_is_not_observed(observed: Any) -> None:
    manifest = recorded(KUBEADM[1])
    manifest["status"]["observedGeneration"] = observed
    assert not kubeadm_control_plane(manifest, VERSIONS[KUBEADM[1]]).observed


def test_no_generation_is_no_reason_to_believe_the_status() -> None:
    manifest = recorded(KUBEADM[1])
    del manifest["metadata"]["generation"]
    del manifest["status"]["observedGeneration"]
    assert not kubeadm_control_plane(manifest, VERSIONS[KUBEADM[1]]).observed


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {}},
        {"metadata": {"name": 1, "namespace": "fleet", "resourceVersion": "1"}},
        {"metadata": {"name": "n" * 254, "namespace": "fleet", "resourceVersion": "1"}},
        {"spec": {"rollout": {"after": "tomorrow"}}},
        {"spec": {"rollout": {"after": 5}}},
    ],
)
def test_what_is_no_such_object_is_an_error(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidControlPlane):
        kubeadm_control_plane({**recorded(KUBEADM[1]), **change}, VERSIONS[KUBEADM[1]])


def test_an_object_without_spec_and_status_is_not_settled() -> None:
    manifest = {**recorded(KUBEADM[1]), "spec": [], "status": "x"}
    found = kubeadm_control_plane(manifest, VERSIONS[KUBEADM[1]])
    assert not found.replicas.settled
    assert not found.observed


def test_a_paused_control_plane_is_seen() -> None:
    manifest = recorded(KUBEADM[1])
    manifest["metadata"]["annotations"] = {"cluster.x-k8s.io/paused": ""}
    assert kubeadm_control_plane(manifest, VERSIONS[KUBEADM[1]]).paused


def test_a_cluster_of_a_class_is_told_from_others() -> None:
    own = rotated_cluster(recorded("cluster-v1beta2"))
    assert own.topology == NoClusterClass()
    assert own.control_plane == REFERENCE
    assert (own.key, own.paused, own.deleting) == (ClusterKey("fleet", "edge"), False, False)
    of_class = recorded("cluster-of-class-v1beta2")
    assert rotated_cluster(of_class).topology == ClusterTopology("standard", NOT_SET)
    of_class["spec"]["topology"]["controlPlane"]["rollout"] = {"after": "2026-10-01T08:00:00Z"}
    assert rotated_cluster(of_class).topology == ClusterTopology("standard", AFTER)
    of_class["spec"]["topology"] = {"class": "older", "controlPlane": {}}
    assert rotated_cluster(of_class).topology == ClusterTopology("older", NOT_SET)
