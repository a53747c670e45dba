"""T1, short: a whole rotation on real API servers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from signer.configuration import Configuration
from signer.rotation import proofs
from signer.rotation.control_plane import renewal
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController
from tests.e2e.rotation.world import NAMESPACE, SETTINGS, RotationWorld
from tests.integration.fixtures import keyed_mac
from tests.support.binaries import MissingPart, find_control_plane, skip_or_fail

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture
def world(management_cluster: ManagementCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[RotationWorld]:
    """With waits that exist for caches shortened: here every process reads its files at its start."""
    try:
        find_control_plane().kube_controller_manager()
    except MissingPart as missing:
        skip_or_fail(missing)
    monkeypatch.setattr(renewal, "SETTLING", timedelta(seconds=1))
    monkeypatch.setattr(proofs, "AGAIN", timedelta(seconds=3))
    with RotationWorld(management_cluster) as world:
        yield world


def test_a_whole_rotation(world: RotationWorld) -> None:
    world.cluster.authorize("keyed-mac", mode="Observe")
    configuration = Configuration(
        namespace=CONTROLLER_NAMESPACE, watch_namespace=NAMESPACE, attestors=keyed_mac(), rotation=SETTINGS
    )
    with RunningController(world.management.api.connection(), configuration):
        for number in range(3):
            world.add_node(f"worker-{number}")
        world.order("start-ca-rotation")
        world.until_phase("Prepared")
        world.order("complete-ca-rotation")
        world.until_phase("Completed")
