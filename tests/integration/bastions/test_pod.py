"""The provider ``pod``: its contract on an embedded API, and the objects that it makes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address
from typing import Any, Final

import pytest

from node_access.bastions.contract import (
    Broken,
    Deadline,
    InvalidSettings,
    ProviderUnavailable,
    Scope,
    SettingsDocuments,
    Surroundings,
    Target,
)
from node_access.bastions.pod.provider import provider
from node_access.bastions.pod.resources import NETWORK_POLICIES, PODS, SECRETS, SERVICES
from node_access.bastions.suite import BastionSuite, FakeCloud, bring_up, make_bastion, network, take_down
from signer.bastions.kubernetes_calls import KubernetesCalls
from signer.testing.api import EmbeddedAPI
from tests.support.bastions.kubernetes import kubernetes_calls
from tests.support.bastions.pod_cloud import NAMESPACE, NETWORK_POLICY_DEFINITION, PodCloud

WHOLE: Final = os.environ.get("NODE_ATTESTATION_ACCESS") == "1"


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[KubernetesCalls]:
    with EmbeddedAPI() as api:
        api.create(NETWORK_POLICY_DEFINITION)
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        with kubernetes_calls(api.connection()) as calls:
            yield calls


@pytest.fixture
def cloud(kubernetes: KubernetesCalls) -> Iterator[PodCloud]:
    made = PodCloud(kubernetes)
    yield made
    made.clear()


class TestContract(BastionSuite):
    """The contract; with ``make access``, with every fault in every call."""

    stride = 1 if WHOLE else 4

    @pytest.fixture
    def cloud(self, kubernetes: KubernetesCalls) -> Iterator[FakeCloud]:
        made = PodCloud(kubernetes)
        yield made
        made.clear()


def only(cloud: PodCloud, kind: Any) -> dict[str, Any]:
    (found,) = cloud.plain.list(kind.collection(NAMESPACE), "", Deadline.after(60))
    return found


def test_the_pod_has_no_right_that_it_does_not_need(cloud: PodCloud) -> None:
    bring_up(cloud, make_bastion(cloud))
    spec = only(cloud, PODS)["spec"]
    (container,) = spec["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "hostPath" not in str(spec)


def test_egress_is_the_port_of_the_nodes_alone(cloud: PodCloud) -> None:
    targets = (Target((ip_address("10.0.1.5"),), 22), Target((ip_address("10.0.1.6"), ip_address("fd00::6")), 2200))
    bring_up(cloud, replace(make_bastion(cloud), targets=targets))
    assert only(cloud, NETWORK_POLICIES)["spec"]["egress"] == [
        {"to": [{"ipBlock": {"cidr": "10.0.1.5/32"}}], "ports": [{"protocol": "TCP", "port": 22}]},
        {
            "to": [{"ipBlock": {"cidr": "10.0.1.6/32"}}, {"ipBlock": {"cidr": "fd00::6/128"}}],
            "ports": [{"protocol": "TCP", "port": 2200}],
        },
    ]


def test_a_pod_that_ended_is_made_again(cloud: PodCloud) -> None:
    bastion = make_bastion(cloud)
    bring_up(cloud, bastion)
    before = only(cloud, PODS)["metadata"]
    path = f"{PODS.collection(NAMESPACE)}/{before['name']}/status"
    cloud.plain.patch(path, {"status": {"phase": "Failed"}}, Deadline.after(60))
    bring_up(cloud, bastion)
    assert only(cloud, PODS)["metadata"]["uid"] != before["uid"]


def test_a_service_that_selects_other_pods_is_mended(cloud: PodCloud) -> None:
    bastion = make_bastion(cloud)
    bring_up(cloud, bastion)
    service = only(cloud, SERVICES)
    path = f"{SERVICES.collection(NAMESPACE)}/{service['metadata']['name']}"
    cloud.plain.patch(path, {"spec": {"selector": {"app": "of-somebody-else"}}}, Deadline.after(60))
    bring_up(cloud, bastion)
    assert only(cloud, SERVICES)["spec"]["selector"] == service["spec"]["selector"]


def test_an_object_of_that_name_is_left_alone(cloud: PodCloud) -> None:
    bastion = make_bastion(cloud)
    name = f"bastion-{bastion.reference.uid}"
    foreign = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
    cloud.plain.create(SECRETS.collection(NAMESPACE), foreign, Deadline.after(60))
    answers = [cloud.open().ensure(bastion, Deadline.after(60)) for _ in range(3)]
    assert isinstance(answers[-1], Broken)
    assert "somebody else" in answers[-1].reason
    take_down(cloud, bastion)
    assert "data" not in only(cloud, SECRETS)


def test_a_host_name_of_the_load_balancer(cloud: PodCloud) -> None:
    bastion = make_bastion(cloud)
    for _ in range(5):
        cloud.open().ensure(bastion, Deadline.after(60))
    path = f"{SERVICES.collection(NAMESPACE)}/{only(cloud, SERVICES)['metadata']['name']}/status"
    status = {"status": {"loadBalancer": {"ingress": [{"hostname": "a1b2.elb.example.com"}]}}}
    cloud.plain.patch(path, status, Deadline.after(60))
    assert bring_up(cloud, bastion).endpoint.hostname == "a1b2.elb.example.com"


def test_ipv6_needs_the_operators_word(cloud: PodCloud) -> None:
    cloud.settings = {**cloud.settings, "ipv6": False}
    bastion = replace(make_bastion(cloud), ingress=(network("2001:db8::7/128"),))
    assert isinstance(cloud.open().ensure(bastion, Deadline.after(60)), Broken)


@pytest.mark.parametrize(
    "operator",
    [
        {"namespace": "Team_A"},
        {"image": "registry.example/sshd --privileged"},
        {"serviceAnnotations": {"access.cluster.x-k8s.io/bastion": "team-a/other"}},
        {"serviceAnnotations": {"a": 1}},
        {"sshd": "sshd"},
        {"ipv6": "yes"},
        {"egress": ["10.0.0.1/8"]},
    ],
)
def test_settings_are_strict(operator: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings):
        provider.settings(SettingsDocuments({"namespace": "bastions", "image": "sshd", **operator}))


def test_without_an_api_server() -> None:
    settings = provider.settings(SettingsDocuments({"namespace": "bastions", "image": "sshd"}))
    with pytest.raises(ProviderUnavailable):
        provider.open(settings, Surroundings(Scope("suite")))
