"""Provider IDs without a scheme or with spaces: the node of such a Machine joins."""

from __future__ import annotations

import base64

import pytest
from keyed_mac.keys import derive_machine_key

from signer.testing.nodes import SimulatedNode
from signer.testing.world import WorldCluster
from tests.integration.fixtures import MASTER_KEY, Harness

pytestmark = pytest.mark.slow


def node_on(cluster: WorldCluster, machine: str, provider_id: str) -> SimulatedNode:
    key = base64.b64encode(derive_machine_key(MASTER_KEY, provider_id)).decode("ascii")
    settings = {"provider-id": provider_id, "machine-key": key}
    return SimulatedNode(machine, provider_id, cluster.ca_cert_hash, "keyed-mac", settings)


@pytest.mark.parametrize("provider_id", ["cn-hangzhou.i-bp1", "maas:///Rack 1/abc123"])
def test_a_node_joins(harness: Harness, provider_id: str) -> None:
    cluster = harness.cluster()
    cluster.add_machine("worker-1", provider_id=provider_id)
    cluster.add_machine("worker-2", provider_id=provider_id.upper())
    harness.run()
    cluster.submit_with_token(node_on(cluster, "worker-1", provider_id).client_request("join"))
    joined = cluster.wait_until_decided("join")
    assert (joined.condition, joined.reason) == ("Approved", "Attested"), joined
    (record,) = harness.records(cluster)
    assert record["spec"]["machineRef"]["name"] == "worker-1"
    harness.assert_audited()
