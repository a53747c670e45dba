"""What a killed gateway leaves in real containers, and what the next one ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.containers.cluster import ContainerCluster
from tests.support.containers.pods import Pod, pod_manifest, shell_container
from tests.support.gateway import GatewayOfTest, running_gateway
from tests.support.processes import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]
USER: Final = "default_killed_app"


@pytest.fixture(scope="module")
def gateway(container_cluster: ContainerCluster) -> Iterator[GatewayOfTest]:
    with running_gateway(container_cluster) as found:
        yield found


@pytest.fixture(scope="module")
def pod(container_cluster: ContainerCluster) -> Pod:
    return container_cluster.create(pod_manifest("killed", [shell_container()]))


def goes_on(cluster: ContainerCluster) -> bool:
    """The process itself, and no shell that was told to start it."""
    listed = cluster.kubectl("exec", "killed", "-c", "app", "--", "ps").stdout
    return any(line.endswith(" sleep 4714") for line in listed.splitlines())


def test_the_next_gateway_ends_what_a_killed_one_left(gateway: GatewayOfTest, pod: Pod) -> None:
    grant = gateway.grant({"namespace": "default", "pod": "killed", "container": "app"})
    with grant.start(USER, "setsid sleep 4714 >/dev/null 2>&1 & echo started; cat") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        wait_until(lambda: goes_on(gateway.cluster), "it has left its session")
        gateway.kill()
        process.communicate(timeout=30)
    assert goes_on(gateway.cluster)
    gateway.program = gateway.start()
    wait_until(lambda: not goes_on(gateway.cluster), "the next gateway has looked")
    assert grant.ssh(USER, "true").returncode == 0
