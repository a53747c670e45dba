"""The node's program gets its first certificate through the controller, keeps it, and renews it."""

from __future__ import annotations

from pathlib import Path

import pytest

from signer.testing.world import WorldCluster
from tests.integration.house import House, node_of, provider_id
from tests.support.node_program import V1, V1BETA1, NodeProgram


@pytest.fixture
def cluster(house: House) -> WorldCluster:
    cluster = house.cluster()
    cluster.add_machine("worker-1", provider_id=provider_id("worker-1"))
    house.run()
    return cluster


@pytest.fixture
def program(cluster: WorldCluster, tmp_path: Path) -> NodeProgram:
    program = NodeProgram(tmp_path / "node", node_of(cluster, "worker-1"))
    program.supply_bootstrap(cluster)
    return program


@pytest.mark.parametrize("api_version", [V1, V1BETA1])
def test_the_first_certificate(program: NodeProgram, api_version: str) -> None:
    ran = program.credential(api_version)
    print(ran)
    certificate = ran.certificate()
