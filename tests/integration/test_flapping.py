"""A workload API server that often connects and disconnects causes few writes to the management cluster."""

from __future__ import annotations

import time
from typing import Final

import pytest

from signer.controller.cluster.workload_cluster import RECONCILE_BURST, RECONCILE_REFILL_SECONDS
from signer.controller.requests.reachability import LOG_BURST, LOG_INTERVAL_SECONDS
from signer.testing.fixtures import embedded_api
from signer.testing.world import ManagementCluster
from tests.integration import hostile_servers
from tests.integration.fixtures import Harness
from tests.integration.hostile_servers import hostile_server
from tests.support.processes import wait_until

SECONDS: Final = 15.0


@pytest.mark.slow
def test_not_every_change_is_a_write(
    harness: Harness, management_cluster: ManagementCluster, caplog: pytest.LogCaptureFixture
) -> None:
    began = time.monotonic()
    harness.run()

    def written() -> int:
        requests = embedded_api(management_cluster).requests
        return len(requests.matching("PATCH */nodeattestationpolicies/flapping/status"))

    def said() -> int:
        return sum(record.message.startswith("workload cluster") for record in caplog.records)

    with hostile_server(hostile_servers.breaking_off) as kubeconfig:
        cluster = harness.cluster("flapping", ())
        cluster.put_secret("kubeconfig", {"value": kubeconfig})
        cluster.authorize("keyed-mac")
        harness.wait_for_condition(cluster, "WorkloadClusterReachable", "True")
        wait_until(lambda: written() >= RECONCILE_BURST and said() >= LOG_BURST // 2, "it flaps", timeout=300)
        time.sleep(SECONDS)
    elapsed = time.monotonic() - began
    assert written() <= RECONCILE_BURST + elapsed / RECONCILE_REFILL_SECONDS + 2
    assert said() <= LOG_BURST + elapsed / LOG_INTERVAL_SECONDS + 1
