"""What the running controller passes to an attestor about the claimed Machine and the requester."""

from __future__ import annotations

from typing import Any

import pytest

from attestors.contract import (
    ClaimedMachine,
    MachineRole,
    NoClaimedMachine,
    NodeCredential,
    NoRecordedIdentity,
    OtherToken,
    RecordedIdentity,
    TokenNotTraceableNow,
    TokenOfMachine,
)
from signer.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, MACHINES_V1BETA2
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, provider_id
from tests.integration.reporting import Reporting
from tests.support.processes import wait_until

ALLOW = {"bootstrapTokens": {"untraceable": "Allow"}}


@pytest.fixture
def reporting(harness: Harness) -> Reporting:
    return Reporting(harness)


@pytest.fixture
def cluster(reporting: Reporting) -> WorldCluster:
    return reporting.cluster(policy=ALLOW)


def add_machine(cluster: WorldCluster, name: str = "m1", **more: Any) -> dict[str, Any]:
    return cluster.add_machine(name, provider_id=provider_id(name), **more)


def token_of(cluster: WorldCluster, *owners: dict[str, Any]) -> str:
    """A bootstrap token that the KubeadmConfig of each of them holds."""
    token = cluster.api.bootstrap_token()
    for owner in owners:
        cluster.add_kubeadm_config(f"{owner['metadata']['name']}-{token[:6]}", token, owner)
    return token


def told(
    reporting: Reporting, cluster: WorldCluster, csr: str = "join", token: str | None = None, machine: str = "m1"
) -> Any:
    """Let the node of that Machine make a request; returns what its attestor was passed."""
    cluster.submit_with_token(reporting.node(cluster, machine).client_request(csr), token)
    return reporting.of(cluster, csr).request


def claimed(request: Any) -> ClaimedMachine:
    assert isinstance(request.machine, ClaimedMachine), request.machine
    return request.machine


# Role


def test_a_worker(reporting: Reporting, cluster: WorldCluster) -> None:
    add_machine(cluster)
    reporting.run()
    assert claimed(told(reporting, cluster)) == ClaimedMachine("m1", {}, MachineRole.WORKER, NoRecordedIdentity())


def test_a_member_of_a_pool(reporting: Reporting, cluster: WorldCluster) -> None:
    pool = cluster.add_machine_pool("pool", provider_id("m1"))
    add_machine(cluster, owner=pool)
    reporting.run()
    assert claimed(told(reporting, cluster)).role is MachineRole.POOL_MEMBER


def test_an_instance_of_a_pool(reporting: Reporting, cluster: WorldCluster) -> None:
    pool = cluster.add_machine_pool("pool", provider_id("m1"))
    token = token_of(cluster, pool)
    reporting.run()
    cluster.submit_with_token(reporting.node(cluster, "m1").client_request("join"), token)
    wait_until(lambda: bool(reporting.reports), "the attestor is asked")
    request = reporting.reports[0].request
    assert request.machine == NoClaimedMachine(pool="pool")
    assert isinstance(request.credential, OtherToken)


def test_of_the_control_plane(reporting: Reporting, cluster: WorldCluster) -> None:
    pool = cluster.add_machine_pool("pool", provider_id("m1"))
    add_machine(cluster, owner=pool)
    cluster.patch_machine("m1", {"metadata": {"labels": {"cluster.x-k8s.io/control-plane": ""}}})
    reporting.run()
    assert claimed(told(reporting, cluster)).role is MachineRole.CONTROL_PLANE


# What is recorded


@pytest.mark.slow
def test_a_proven_identity_is_passed_from_then_on(reporting: Reporting, cluster: WorldCluster) -> None:
    add_machine(cluster)
    first = reporting.run()
    assert claimed(told(reporting, cluster)).recorded == NoRecordedIdentity()
    assert claimed(told(reporting, cluster, "again")).recorded == RecordedIdentity(f"of {provider_id('m1')}")
    cluster.submit_as_node(reporting.node(cluster, "m1").client_request("renew"), "m1")
    renewal = reporting.of(cluster, "renew").request
    assert claimed(renewal).recorded == RecordedIdentity(f"of {provider_id('m1')}")
    assert renewal.credential == NodeCredential()
    first.kill()
    reporting.run()
    assert claimed(told(reporting, cluster, "later")).recorded == RecordedIdentity(f"of {provider_id('m1')}")


def test_a_machine_created_again_under_its_name_has_nothing_recorded(
    reporting: Reporting, cluster: WorldCluster
) -> None:
    """Same name, same provider ID, another UID: perhaps other hardware."""
    add_machine(cluster)
    reporting.run()
    told(reporting, cluster)
    cluster.management.client.delete(MACHINES_V1BETA2.object("m1", cluster.namespace))
    add_machine(cluster)
    add_machine(cluster, "m2")
    told(reporting, cluster, "second", machine="m2")  # it comes later: all of this is known by then
    request = told(reporting, cluster, "again")
    assert claimed(request).recorded == NoRecordedIdentity()
    assert claimed(told(reporting, cluster, "at-last")).recorded == RecordedIdentity(f"of {provider_id('m1')}")


# Who asks


def test_the_machines_own_token(reporting: Reporting, cluster: WorldCluster) -> None:
    token = token_of(cluster, add_machine(cluster))
    reporting.run()
    assert told(reporting, cluster, token=token).credential == TokenOfMachine()


def test_the_machines_own_token_in_two_configs_is_still_its_own(reporting: Reporting, cluster: WorldCluster) -> None:
    machine = add_machine(cluster)
    token = token_of(cluster, machine)
    cluster.add_kubeadm_config("m1-second", token, machine)
    reporting.run()
    assert told(reporting, cluster, token=token).credential == TokenOfMachine()


def test_a_token_of_several_machines(reporting: Reporting, cluster: WorldCluster) -> None:
    token = token_of(cluster, add_machine(cluster), add_machine(cluster, "m2"))
    reporting.run()
    credential = told(reporting, cluster, token=token).credential
    assert credential == OtherToken("the bootstrap token was made for 2 owners, and not for Machine default/m1 alone")


def test_a_pools_token(reporting: Reporting, cluster: WorldCluster) -> None:
    pool = cluster.add_machine_pool("pool", provider_id("m1"))
    add_machine(cluster, owner=pool)
    token = token_of(cluster, pool)
    reporting.run()
    credential = told(reporting, cluster, token=token).credential
    assert credential == OtherToken(
        "the bootstrap token was made for MachinePool default/pool, and not for Machine default/m1"
    )


def test_a_token_of_another_machine(reporting: Reporting, cluster: WorldCluster) -> None:
    add_machine(cluster)
    token = token_of(cluster, add_machine(cluster, "m2"))
    reporting.run()
    cluster.submit_with_token(reporting.node(cluster, "m1").client_request("join"), token)
    assert cluster.wait_until_decided("join").reason == "BootstrapTokenMismatch"
    assert reporting.reports[0].request.credential == OtherToken(
        "the bootstrap token was made for Machine default/m2, and not for Machine default/m1"
    )


def test_a_token_of_the_former_machine_of_that_name(reporting: Reporting, cluster: WorldCluster) -> None:
    """Its KubeadmConfig may outlive it for a while: the token's holder is not the current Machine."""
    former = add_machine(cluster)
    former["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000"
    token = token_of(cluster, former)
    reporting.run()
    credential = told(reporting, cluster, token=token).credential
    assert credential == OtherToken("the bootstrap token was made for a former Machine default/m1")


def test_a_token_without_an_owner(reporting: Reporting, cluster: WorldCluster) -> None:
    add_machine(cluster)
    reporting.run()
    credential = told(reporting, cluster).credential
    assert credential == OtherToken("no KubeadmConfig of the Cluster holds the bootstrap token")


def test_tokens_are_not_traced(reporting: Reporting, cluster: WorldCluster) -> None:
    cluster.management.client.delete(CUSTOM_RESOURCE_DEFINITIONS.object("kubeadmconfigs.bootstrap.cluster.x-k8s.io"))
    add_machine(cluster)
    reporting.run()
    credential = told(reporting, cluster).credential
    assert credential == OtherToken("bootstrap tokens are not traced: the management cluster serves no KubeadmConfigs")


def test_tokens_cannot_be_traced_at_this_moment(reporting: Reporting, cluster: WorldCluster) -> None:
    """The attestor is informed; the core's own check makes the request wait until tracing resumes."""
    token = token_of(cluster, add_machine(cluster))
    reporting.harness.api.faults.inject("GET */kubeadmconfigs*", status=500, times=None)
    reporting.run()
    cluster.submit_with_token(reporting.node(cluster, "m1").client_request("join"), token)
    wait_until(lambda: bool(reporting.reports), "the attestor is asked")
    assert isinstance(reporting.reports[0].request.credential, TokenNotTraceableNow)
    reporting.harness.api.faults.clear()
