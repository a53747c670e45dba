"""Fixtures of the integration tests: a harness for each test, and one that tests of denials share."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from signer.controller.cluster import workload_cluster
from signer.controller.requests import informer as request_intake
from signer.controller.requests import overflow as overflow_requests
from signer.controller.requests import reachability
from signer.controller.telemetry import recorder
from signer.decision import authority_source
from signer.kube.backoff import Backoff
from signer.kube.watch import list_and_watch
from signer.kube.workqueue import WorkQueue
from signer.testing.fixtures import (
    MakeWorkloadCluster,
    StartController,
    open_controllers,
    open_management_cluster,
    open_workload_clusters,
)
from signer.testing.world import ManagementCluster
from tests.integration.explaining import Explain
from tests.integration.fixtures import Harness


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each of them runs controllers and API servers: together they are too many for ``make fast``."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def harness(
    management_cluster: ManagementCluster,
    make_workload_cluster: MakeWorkloadCluster,
    attestation_controller: StartController,
) -> Iterator[Harness]:
    """A management cluster of this test's own; add clusters, then run a controller."""
    built = Harness(management_cluster, make_workload_cluster, attestation_controller)
    yield built
    built.assert_audited()


@pytest.fixture
def target() -> Iterator[Harness]:
    """Another management cluster, for Clusters that are moved; its controller is started by the test."""
    with (
        open_management_cluster() as management,
        open_workload_clusters(management) as make_cluster,
        open_controllers(management) as start,
    ):
        yield Harness(management, make_cluster, start)


@pytest.fixture
def explain(harness: Harness, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Explain:
    """``explain`` on that harness."""
    return Explain(harness, tmp_path, capsys)


@pytest.fixture(scope="module")
def shared_harness() -> Iterator[Harness]:
    """One harness for all tests of a module that only add to it; its controller runs."""
    with (
        pytest.MonkeyPatch.context() as patch,
        open_management_cluster() as management,
        open_workload_clusters(management) as make_cluster,
        open_controllers(management) as start,
    ):
        # Its tests deny more about one Machine and one Cluster than anybody is shown in earnest.
        patch.setattr(recorder, "BURST", 10_000)
        built = Harness(management, make_cluster, start)
        yield built
        built.assert_audited()


@pytest.fixture(scope="module")
def short_waits() -> Iterator[None]:
    """Intervals of seconds for state without a watch become tenths of a second, and retries are fast."""
    soon = Backoff(base_seconds=0.02, maximum_seconds=0.5, jitter=0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reachability, "RECONNECT", Backoff(base_seconds=0.1, maximum_seconds=0.1, jitter=0))
        patch.setattr(workload_cluster, "RECONCILE_SECONDS", 0.1)
        patch.setattr(overflow_requests, "MACHINE_RELIST_SECONDS", 0.1)
        patch.setattr(request_intake, "WorkQueue", partial(WorkQueue, backoff=soon))
        patch.setattr(workload_cluster, "list_and_watch", partial(list_and_watch, backoff=soon))
        patch.setattr(authority_source, "FAILURE_KEPT_SECONDS", 0.05)
        patch.setattr(authority_source, "KEPT_SECONDS", 0.05)
        yield
