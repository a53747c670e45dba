"""A CA that is about to end, as a policy shows it; and a restart, which repeats no Event."""

from __future__ import annotations

from datetime import timedelta

import pytest

from signer.configuration import RotationSettings
from signer.kube.resources import CERTIFICATE_AUTHORITY_ROTATIONS, EVENTS
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness
from tests.integration.rotation.test_operations_guard import conditions
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow

EXPIRY = "CertificateAuthorityExpiry"


def events(harness: Harness, cluster: WorldCluster) -> list[str]:
    """The messages of the Events about the CA's end."""
    found = harness.management.client.get(EVENTS.collection(cluster.namespace))["items"]
    return [
        one["message"] for one in found if one["reason"] == EXPIRY and one["involvedObject"]["name"] == cluster.name
    ]


def test_it_is_told_once_and_nothing_is_started(harness: Harness) -> None:
    ending = new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256, duration=timedelta(days=60))
    cluster, other = harness.cluster(api={"authority": ending}), harness.cluster("other")
    first = harness.run(rotation=RotationSettings())
    wait_until(lambda: conditions(harness, cluster).get(EXPIRY) == ("False", "ExpiresWithin90Days"), "it is shown")
    wait_until(lambda: conditions(harness, other).get(EXPIRY) == ("True", "FarAway"), "the other one is far away")
    wait_until(lambda: len(events(harness, cluster)) == 1, "there is an Event")
    wait_until(lambda: conditions(harness, cluster)["Ready"][0] == "True", "it does not count")
    first.stop()

    harness.run(rotation=RotationSettings())
    harness.join(cluster)  # the new controller is connected, and has looked at the CA
    wait_until(lambda: conditions(harness, cluster)["Ready"][0] == "True", "the new one has written its status")
    assert len(events(harness, cluster)) == 1
    assert events(harness, other) == []
    assert "start-ca-rotation" in events(harness, cluster)[0]
    assert harness.management.client.get(CERTIFICATE_AUTHORITY_ROTATIONS.collection("default"))["items"] == []


def test_without_rotation_there_is_no_such_condition(harness: Harness) -> None:
    cluster = harness.cluster()
    harness.run()
    wait_until(lambda: conditions(harness, cluster).get("Ready", ("", ""))[0] == "True", "it is ready")
    assert EXPIRY not in conditions(harness, cluster)
