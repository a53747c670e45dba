"""What one tenant can store in the management cluster costs that tenant's cluster only, on a real kube-apiserver."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest

from signer.configuration import Configuration
from signer.kube.resources import NODE_ATTESTATION_POLICIES
from signer.kube.tls import client_context
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController
from tests.integration.fixtures import keyed_mac, node_of, provider_id
from tests.support.control_plane import ControlPlane
from tests.support.grants import as_service_account, restrict_in_workload_cluster

pytestmark = [pytest.mark.real, pytest.mark.slow]

NAMESPACE = "deep-tenant"


@pytest.fixture
def deep_policy(real_control_plane: ControlPlane) -> Iterator[ManagementCluster]:
    """A policy whose settings are nested deeper than any JSON decoder of Python follows."""
    settings = '{"a":' + "[" * 3000 + "]" * 3000 + "}"
    body = (
        f'{{"apiVersion":"{NODE_ATTESTATION_POLICIES.api_version}","kind":"NodeAttestationPolicy",'
        f'"metadata":{{"name":"deep","namespace":"{NAMESPACE}"}},'
        f'"spec":{{"authorizedAttestors":[{{"name":"keyed-mac","settings":{settings}}}]}}}}'
    )
    connection = real_control_plane.connection()
    collection = NODE_ATTESTATION_POLICIES.collection(NAMESPACE)
    with ManagementCluster(real_control_plane) as management:
        management.ensure_namespace(NAMESPACE)
        request = urllib.request.Request(  # noqa: S310 - the test's own API server
            connection.server + collection, data=body.encode(), headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, context=client_context(connection)) as answer:  # noqa: S310
            assert answer.status == 201
        try:
            yield management
        finally:
            management.client.delete(NODE_ATTESTATION_POLICIES.object("deep", NAMESPACE))


def test_a_policy_nested_without_end_does_not_stop_the_controller(
    deep_policy: ManagementCluster, real_control_plane: ControlPlane
) -> None:
    beside = deep_policy.add_cluster("beside", deep_policy.api, namespace="beside")
    beside.add_machine("beside-1", provider_id=provider_id("beside-1"))
    restrict_in_workload_cluster(beside, real_control_plane)
    beside.authorize("keyed-mac")
    configuration = Configuration(namespace=CONTROLLER_NAMESPACE, attestors=keyed_mac())
    with RunningController(as_service_account(real_control_plane, NAMESPACE, "beside"), configuration):
        beside.submit_with_token(node_of(beside, "beside-1").client_request("beside-join-1"))
        verdict = beside.wait_until_decided("beside-join-1")
        assert verdict.condition == "Approved", verdict
    beside.remove()
