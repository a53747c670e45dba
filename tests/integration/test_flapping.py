"""A workload API server that is reached and lost many times a second: the management cluster hears of it seldom."""

from __future__ import annotations

import time
from typing import Final

import pytest

from signer.controller.reachability import LINE_SECONDS, LINES_AT_ONCE
from signer.controller.workload_cluster import SURVEY_AGAIN_SECONDS, SURVEYS_AT_ONCE
from signer.testing.fixtures import embedded_api
from signer.testing.world import ManagementCluster
from tests.integration import hostile_servers
from tests.integration.hostile_servers import hostile_server
from tests.integration.house import House

SECONDS: Final = 15.0


@pytest.mark.slow
def test_each_change_is_no_write(
    house: House, management_cluster: ManagementCluster, caplog: pytest.LogCaptureFixture
) -> None:
    house.run()
    with hostile_server(hostile_servers.breaking_off) as kubeconfig:
        cluster = house.cluster("flapping", ())
        cluster.put_secret("kubeconfig", {"value": kubeconfig})
        cluster.authorize("keyed-mac")
        house.wait_for_condition(cluster, "WorkloadClusterReachable", "True")
        time.sleep(SECONDS)
    written = embedded_api(management_cluster).requests.matching("PATCH */nodeattestationpolicies/flapping/status")
    said = [record for record in caplog.records if record.message.startswith("workload cluster")]
    assert SURVEYS_AT_ONCE <= len(written) <= SURVEYS_AT_ONCE + SECONDS / SURVEY_AGAIN_SECONDS + 2
    assert LINES_AT_ONCE // 2 <= len(said) <= LINES_AT_ONCE + SECONDS / LINE_SECONDS + 1
