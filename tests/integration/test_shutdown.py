"""The end of a controller: it finishes its current requests."""

from __future__ import annotations

import base64
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

from signer.testing.api import Request
from signer.testing.fixtures import embedded_api, open_controllers
from signer.testing.world import WorldCluster
from tests.integration.fixtures import (
    CONTROLLER_USER,
    MASTER_KEY,
    MASTERS,
    SECRETS_IN_PLAY,
    Harness,
    assert_one_certificate,
    keyed_mac,
    node_of,
    pending,
    provider_id,
)


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    """A cluster with Machine ``m``; no controller yet."""
    cluster = harness.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    return cluster


def test_current_requests_are_finished(harness: Harness, cluster: WorldCluster) -> None:
    """It gets the signal to stop while the write of the certificate is under way."""
    arrived = threading.Event()

    def is_certificate(request: Request) -> bool:
        found = request.user.name == CONTROLLER_USER and request.path.endswith("/status")
        if found:
            arrived.set()
        return found

    embedded_api(cluster).faults.inject(is_certificate, delay_seconds=0.5)
    with open_controllers(harness.management) as start:
        start(connection=harness.api.connection(CONTROLLER_USER, MASTERS), attestors=keyed_mac())
        cluster.submit_with_token(node_of(cluster, "m").client_request("csr"))
        assert arrived.wait(30)
    assert_one_certificate(harness, cluster, "m", "csr")
    # The Event of the decision is flushed, too.
    assert [event for event in harness.api.objects("events") if event["reason"] == "Attested"]
    cluster.submit_as_node(node_of(cluster, "m").client_request("later"), "m")
    pending(cluster, "later")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_program_ends_well(harness: Harness, cluster: WorldCluster, tmp_path: Path, number: signal.Signals) -> None:
    """The real process: it signs, gets the signal to stop, and ends with 0; its log contains no secret."""
    kubeconfig, config = tmp_path / "kubeconfig", tmp_path / "config.yaml"
    kubeconfig.write_text(harness.api.kubeconfig())
    settings = {"masterKey": base64.b64encode(MASTER_KEY).decode("ascii")}
    config.write_text(yaml.safe_dump({"attestors": {"keyed-mac": {"settings": settings}}}))
    command = [sys.executable, "-m", "signer.cli", "run", "--kubeconfig", str(kubeconfig), "--config", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            cluster.submit_with_token(node_of(cluster, "m").client_request("csr"))
            assert cluster.wait_until_decided("csr").reason == "Attested"
            process.send_signal(number)
            output, log = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0, log
    assert output == ""
    assert "draining" in log
    assert "Traceback" not in log
    for secret in (*SECRETS_IN_PLAY, "PRIVATE KEY"):
        assert secret not in log
    assert_one_certificate(harness, cluster, "m", "csr")
