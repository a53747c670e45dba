"""A wave of honest requests in one cluster is not in the way of a single join in another.

What is counted are the wave's requests that were decided before it, never time; ``tests/bench/wave.py`` measures.
"""

from __future__ import annotations

from typing import Final

import pytest

from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS, MACHINES_V1BETA2
from signer.testing.fixtures import embedded_api
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, node_of, provider_id
from tests.support.processes import wait_until

WAVE: Final = 600
WORKERS: Final = 8
"""Fewer than by default: what is tested is the order, which more workers at once would blur."""
STEPS_OF_A_JOIN: Final = 6
"""Two reservations, their confirmation, the record, approval and certificate."""
FEW: Final = STEPS_OF_A_JOIN * WORKERS
"""In each step of the single join every worker of the other cluster may end one request."""


def issued(cluster: WorldCluster) -> int:
    """How many of its requests have their certificate."""
    path = CERTIFICATE_SIGNING_REQUESTS.object("*", subresource="status").replace("%2A", "*")
    return len(embedded_api(cluster).requests.writes(f"PUT {path}"))


def add_wave(cluster: WorldCluster) -> None:
    """As many Machines, and the request of each one's node."""
    names = [f"wave-{number:03}" for number in range(WAVE)]
    client, path = cluster.management.client, MACHINES_V1BETA2.collection(cluster.namespace)
    client.create_all(
        path,
        [
            {
                "apiVersion": MACHINES_V1BETA2.api_version,
                "kind": "Machine",
                "metadata": {"name": name, "namespace": cluster.namespace},
                "spec": {
                    "clusterName": cluster.name,
                    "providerID": provider_id(name),
                    "bootstrap": {"dataSecretName": f"{name}-bootstrap"},
                    "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Test", "name": name},
                },
            }
            for name in names
        ],
    )
    client.patch_all(
        [
            (
                MACHINES_V1BETA2.object(name, cluster.namespace, subresource="status"),
                {
                    "status": {
                        "addresses": [{"type": "Hostname", "address": name}],
                        "initialization": {"bootstrapDataSecretCreated": True},
                    }
                },
            )
            for name in names
        ]
    )
    with cluster.client(cluster.api.token_connection(cluster.api.bootstrap_token())) as token:
        requests = [node_of(cluster, name).client_request(name) for name in names]
        token.create_all(CERTIFICATE_SIGNING_REQUESTS.collection(), requests)


@pytest.mark.prompt
def test_a_single_join_waits_for_a_few_of_a_wave_elsewhere(harness: Harness) -> None:
    wave, other = harness.cluster("wave"), harness.cluster("other", namespace="elsewhere")
    add_wave(wave)
    other.add_machine("single", provider_id=provider_id("single"))
    request = node_of(other, "single").client_request("single")
    token = other.api.bootstrap_token()
    harness.run(workers_per_cluster=WORKERS)
    wait_until(lambda: issued(wave) > 0, "the wave is under way")

    before = issued(wave)
    other.submit_with_token(request, token)
    assert other.wait_until_decided("single").certificate
    meanwhile = issued(wave) - before

    assert issued(wave) < WAVE, "the wave was over too soon to be in anybody's way"
    assert meanwhile <= FEW, meanwhile
