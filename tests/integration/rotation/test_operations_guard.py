"""The admission policy for orders, as a running controller installs it and says whether it is in force.

The embedded API stores such policies and applies none; tests/e2e/test_admission_policies.py has one that does.
"""

from __future__ import annotations

from typing import Final

import pytest

from signer.admission.manifests import AdmissionVersion, binding_manifest, policy_manifest
from signer.configuration import RotationSettings
from signer.kube.resources import NODE_ATTESTATION_POLICIES
from signer.rotation.admission_policy import OPERATIONS_POLICY
from signer.rotation.phases import Phase, Step
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness
from tests.integration.rotation.records import record, store
from tests.support.admission_definitions import serve_admission_policies
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow

MANIFESTS: Final = tuple(
    render(OPERATIONS_POLICY, AdmissionVersion.V1) for render in (policy_manifest, binding_manifest)
)
GUARDED: Final = "RotationOperationsGuarded"


def conditions(harness: Harness, cluster: WorldCluster) -> dict[str, tuple[str, str]]:
    """Status and reason of each condition of the cluster's policy."""
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    status = harness.management.client.get(path).get("status") or {}
    return {one["type"]: (one["status"], one["reason"]) for one in status.get("conditions") or ()}


def test_a_management_cluster_without_admission_policies(harness: Harness) -> None:
    """The condition says so where there was a rotation, and everything else works as before."""
    cluster, other = harness.cluster(), harness.cluster("other")
    harness.run(rotation=RotationSettings())
    store(harness, record(cluster, Phase.COMPLETED, Step.FORGET))
    wait_until(lambda: conditions(harness, cluster).get(GUARDED) == ("False", "NotServed"), "the condition is there")
    wait_until(lambda: conditions(harness, other).get("Ready", ("", ""))[0] == "True", "the other one is ready")
    wait_until(lambda: conditions(harness, cluster).get("Ready", ("", ""))[0] == "True", "it does not count")
    assert GUARDED not in conditions(harness, other), "it was never rotated"
    harness.join(other)


def test_the_policy_is_installed_and_not_believed_before_it_is_proven(harness: Harness) -> None:
    serve_admission_policies(harness.api)
    cluster = harness.cluster()
    harness.run(rotation=RotationSettings())
    store(harness, record(cluster, Phase.COMPLETED, Step.FORGET))
    wait_until(lambda: conditions(harness, cluster).get(GUARDED) == ("False", "NotProven"), "it is not in force")
    for manifest in MANIFESTS:
        assert harness.management.client.get(manifest.path)["spec"] == manifest.body["spec"]
    harness.join(cluster)


def test_without_rotation_nothing_is_installed(harness: Harness) -> None:
    cluster = harness.cluster()
    harness.run()
    harness.join(cluster)
    groups = {entry.path.split("/")[2] for entry in harness.api.requests.matching() if entry.path.startswith("/apis/")}
    assert "admissionregistration.k8s.io" not in groups
