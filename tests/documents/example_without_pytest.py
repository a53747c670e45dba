"""A join without pytest; ``docs/testing.md`` quotes it, and ``test_testing`` runs it."""

from __future__ import annotations

from signer.testing.nodes import SimulatedNode
from signer.testing.opening import open_controllers, open_management_cluster, open_workload_clusters

PROVIDER_ID = "my-cloud:///zone-1/instance-7"

with (
    open_management_cluster() as management,
    open_workload_clusters(management) as make_cluster,
    open_controllers(management) as start_controller,
):
    cluster = make_cluster("production")
    cluster.authorize("insecure")
    cluster.add_machine("worker-1", provider_id=PROVIDER_ID)
    start_controller(insecure_enabled=True, insecure_namespaces=frozenset({"default"}))
    node = SimulatedNode("worker-1", PROVIDER_ID, cluster.ca_cert_hash, "insecure")
    cluster.submit_with_token(node.client_request("join"))
    print(cluster.wait_until_decided("join").reason)
