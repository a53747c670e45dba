"""The gauges of a rotation, as a running controller serves them: while there is one, and no longer."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from signer.configuration import RotationSettings
from signer.rotation.phases import Phase, Step
from signer.rotation.record import Moment
from signer.testing.world import RunningController
from tests.integration.fixtures import Harness
from tests.integration.rotation.records import BEGAN, record, store
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow

FAMILIES = (
    "rotation_step_timestamp_seconds",
    "rotation_prepared_timestamp_seconds",
    "rotation_link_expiry_timestamp_seconds",
    "rotation_lagging_nodes",
    "rotation_lagging_api_servers",
)


def value(controller: RunningController, name: str) -> float | None:
    """Of the cluster's series, as a scrape would show it."""
    registry = controller.options.metrics.registry
    return registry.get_sample_value(f"node_attestation_{name}", {"cluster": "default/workload"})


def test_a_prepared_rotation_and_its_end(harness: Harness) -> None:
    cluster = harness.cluster()
    controller = harness.run(rotation=RotationSettings())
    harness.join(cluster)
    assert [value(controller, name) for name in FAMILIES] == [None] * len(FAMILIES)

    prepared = record(cluster, Phase.PREPARED, Step.PREPARED)
    times = {**prepared.times, Moment.PREPARED: BEGAN + timedelta(hours=1)}
    prepared = replace(prepared, times=times)
    store(harness, prepared)
    began = (BEGAN + timedelta(hours=1)).timestamp()
    wait_until(lambda: value(controller, FAMILIES[0]) == began, "the step is shown")
    assert value(controller, "rotation_prepared_timestamp_seconds") == began
    wait_until(lambda: value(controller, "rotation_lagging_nodes") == 1, "its node is not proven to trust the other CA")

    store(harness, replace(prepared, phase=Phase.COMPLETED, step=Step.FORGET, sequence=2))
    wait_until(lambda: value(controller, FAMILIES[0]) is None, "the rotation is over")
    assert [value(controller, name) for name in FAMILIES] == [None] * len(FAMILIES)
