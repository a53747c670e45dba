"""Many hostile API servers at once, of every kind: an honest cluster's nodes join, and memory stays bounded.

Controller and hostile servers are processes of their own, so that memory and the event loop are the controller's.
"""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from signer.testing.world import ManagementCluster
from tests.bench.challenge_flood import Memory
from tests.bench.drain import controller_process
from tests.integration.fixtures import Harness, keyed_mac

EVERY_KIND: Final = (
    "hangs",
    "garbage",
    "endless_list",
    "endless_pages",
    "endless_watch",
    "endless_bookmarks",
    "endless_requests",
    "dripping_handshake",
    "dripping_head",
    "dripping_body",
    "huge_answer",
    "values_bomb",
    "large_page",
    "large_event",
    "long_numbers",
    "compressed_bomb",
)
OF_EACH: Final = 2
JOINS: Final = 5
MAXIMUM_GROWTH: Final = 128 * 1024 * 1024
"""Bytes; the chart's limit leaves more."""


@contextmanager
def _hostile_servers(names: list[str]) -> Iterator[list[bytes]]:
    command = [sys.executable, "-m", "tests.integration.hostile_servers", *names]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield [base64.b64decode(process.stdout.readline()) for _ in names]
        finally:
            process.terminate()


@pytest.mark.serial
def test_nodes_join_beside_hostile_servers(management_cluster: ManagementCluster, harness: Harness) -> None:
    honest = harness.cluster("honest")
    names = list(EVERY_KIND) * OF_EACH
    with (
        controller_process(management_cluster.api.connection(), keyed_mac()) as process,
        _hostile_servers(names) as kubeconfigs,
    ):
        harness.join(honest)
        memory = Memory(process.pid)
        hostile = []
        for number, kubeconfig in enumerate(kubeconfigs):
            cluster = management_cluster.add_cluster(f"hostile-{number}", honest.api)
            cluster.put_secret("ca", new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256).secret_data)
            cluster.put_secret("kubeconfig", {"value": kubeconfig})
            cluster.authorize("keyed-mac")
            hostile.append(cluster)
        for number, name in enumerate(names):
            if name in ("garbage", "endless_watch", "values_bomb", "compressed_bomb"):
                harness.wait_for_condition(hostile[number], "WorkloadClusterReachable", "False")
        for _ in range(JOINS):
            harness.join(honest)
        harness.wait_for_condition(honest, "Ready", "True")
        assert memory.most() - memory.before < MAXIMUM_GROWTH
