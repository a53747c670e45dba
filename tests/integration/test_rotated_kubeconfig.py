"""A kubeconfig with new credentials: the server refuses the old ones while a watch with them continues."""

from __future__ import annotations

import pytest

from signer.testing.api import User
from signer.testing.api.kubeconfig import kubeconfig_of
from signer.testing.fixtures import embedded_api
from tests.integration.fixtures import CONTROLLER_USER, MASTERS, Harness

pytestmark = pytest.mark.slow


def test_revoked_credentials_are_detected_by_the_first_write(harness: Harness) -> None:
    """Not only by the next watch: this one lasts for 40 seconds, longer than any wait here."""
    cluster = harness.cluster()
    api = embedded_api(cluster)

    def rotate(token: str) -> None:
        api.add_token(token, User(CONTROLLER_USER, MASTERS))
        kubeconfig = kubeconfig_of(api.token_connection(token), cluster.name)
        cluster.put_secret("kubeconfig", {"value": kubeconfig.encode()})

    rotate("former-token")
    harness.run()
    harness.join(cluster)
    rotate("newer-token")
    api.remove_token("former-token")
    harness.join(cluster)
    assert any(request.status == 401 for request in api.requests.matching("PUT *")), "the former token was tried"
