"""What still holds the old CA after a rotation is named in the policy's condition, by a search on real API servers."""

from __future__ import annotations

import base64
import os

import pytest

from signer.kube.resources import API_SERVICES, CONFIG_MAPS, VALIDATING_WEBHOOKS
from signer.testing.clients import BlockingClient
from signer.testing.world import RunningController
from tests.e2e.rotation.test_whole_rotation import controller as controller
from tests.e2e.rotation.test_whole_rotation import pairs as pairs
from tests.e2e.rotation.test_whole_rotation import world as world
from tests.e2e.rotation.world import RotationWorld
from tests.support.processes import wait_until

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.serial,
    pytest.mark.skipif(
        "NODE_ATTESTATION_ROTATION" not in os.environ, reason="minutes each, on a quiet machine: make rotation"
    ),
]


def test_leftovers_are_named_when_the_rotation_is_completed(
    world: RotationWorld, controller: RunningController
) -> None:
    world.add_node("worker-0")
    old = world.old.certificate_pem
    with BlockingClient(world.api.connection()) as client:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ci"}, "data": {"ca.crt": old.decode()}}
        client.create(CONFIG_MAPS.collection("default"), body)
        webhook = {
            "name": "one.example.org",
            "clientConfig": {"url": "https://example.org", "caBundle": base64.b64encode(old).decode()},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        configuration = {
            "apiVersion": VALIDATING_WEBHOOKS.api_version,
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "copied"},
            "webhooks": [webhook],
        }
        client.create(VALIDATING_WEBHOOKS.collection(), configuration)
        assert client.items(API_SERVICES.collection()), "the API server serves every kind that is searched"
    world.order("start-ca-rotation")
    world.until_phase("Prepared")
    assert world.condition("LeftoversFound") == {}, "before the old CA is dropped, everything holds it"
    world.order("complete-ca-rotation")
    world.until_phase("Completed")
    wait_until(lambda: world.condition("LeftoversFound").get("status") == "True", "the condition is written")
    found = world.condition("LeftoversFound")
    assert found["reason"] == "OldAuthorityHeld"
    assert "ConfigMap default/ci" in found["message"]
    assert "ValidatingWebhookConfiguration copied" in found["message"]
