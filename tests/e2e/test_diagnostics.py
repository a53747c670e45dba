"""Who may read ``/metrics``, asked of a real kube-apiserver; and what they read of a real cluster's node."""

from __future__ import annotations

import asyncio
import ssl
import urllib.error
import urllib.request
from typing import Final

import pytest

from signer.controller.diagnostics.server import diagnostics_server
from signer.controller.telemetry.metrics import Metrics
from signer.kube.client import Client
from tests.support.control_plane import ControlPlane
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.real, pytest.mark.slow]

RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
NAME: Final = "metrics-reader-of-test"


def fetch(address: tuple[str, int], token: str) -> tuple[int, str]:
    """As a scraper that does not verify the certificate."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": f"Bearer {token}"}
    asked = urllib.request.Request(f"https://{address[0]}:{address[1]}/metrics", headers=headers)
    try:
        with urllib.request.urlopen(asked, context=trusting, timeout=20) as answer:  # noqa: S310 - https, to ourselves
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


async def scrape(plane: ControlPlane, *tokens: str) -> list[tuple[int, str]]:
    """What each token gets of a server that asks that API server, and remembers nothing yet."""
    async with (
        Client(plane.connection()) as client,
        diagnostics_server("127.0.0.1", 0, Metrics(), client) as address,
    ):
        return [await asyncio.to_thread(fetch, address, token) for token in tokens]


def test_metrics_are_for_whom_rbac_lets_get_them(real_control_plane: ControlPlane) -> None:
    token = real_control_plane.bootstrap_token()
    user = f"system:bootstrap:{token.partition('.')[0]}"
    assert asyncio.run(scrape(real_control_plane, "", "abcdef.0123456789abcdef", token)) == [
        (401, ""),
        (401, ""),
        (403, ""),
    ]
    with RawClient(real_control_plane.connection()) as admin:
        rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
        admin.post(f"{RBAC}/clusterroles", {"metadata": {"name": NAME}, "rules": rules}).expect(201)
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        body = {"metadata": {"name": NAME}, "roleRef": reference, "subjects": [subject]}
        admin.post(f"{RBAC}/clusterrolebindings", body).expect(201)

    def is_let_in() -> bool:
        ((status, text),) = asyncio.run(scrape(real_control_plane, token))
        return status == 200 and "node_attestation_build_info" in text

    wait_until(is_let_in, "the grant is in effect")
