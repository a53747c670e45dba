"""The provider ``pod`` on a real kube-apiserver: its contract, with what that API server validates and defaults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from node_access.bastions.contract import Broken, Deadline
from node_access.bastions.suite import BastionSuite, FakeCloud, bring_up, make_bastion, take_down
from signer.bastions.kubernetes_calls import KubernetesCalls
from signer.testing.clients import BlockingClient
from tests.support.bastions.kubernetes import kubernetes_calls
from tests.support.bastions.pod_cloud import NAMESPACE, PodCloud
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.slow]


@contextmanager
def real_api(*flags: str) -> Iterator[KubernetesCalls]:
    """Without the plugin that wants a ServiceAccount, which a controller would make."""
    try:
        started = ControlPlane(apiserver_flags=["--disable-admission-plugins=ServiceAccount", *flags])
    except MissingPart as missing:
        skip_or_fail(missing)
    with started as plane:
        with BlockingClient(plane.connection()) as administrator:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            administrator.create("/api/v1/namespaces", namespace)
        with kubernetes_calls(plane.connection()) as calls:
            yield calls
        plane.check_running()


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[KubernetesCalls]:
    """Kubernetes 1.20 has the choice of node ports behind a feature gate."""
    with real_api("--feature-gates=ServiceLBNodePortControl=true") as calls:
        yield calls


def test_no_service_is_made_where_the_api_server_drops_the_choice_of_node_ports() -> None:
    """As without that feature gate. The operator may say that node ports are no harm."""
    with real_api() as kubernetes:
        cloud = PodCloud(kubernetes)
        cloud.settings = cloud.without_ipv6
        bastion = make_bastion(cloud)
        answers = [cloud.open().ensure(bastion, Deadline.after(60)) for _ in range(6)]
        assert isinstance(answers[-1], Broken)
        assert "nodePorts" in answers[-1].reason
        assert not [one for one in cloud.resources(bastion.reference.uid) if "service" in one]
        cloud.settings = {**cloud.settings, "nodePorts": True}
        bring_up(cloud, bastion)
        assert [one for one in cloud.resources(bastion.reference.uid) if "service" in one]
        cloud.settings = {**cloud.settings, "nodePorts": False}
        cloud.open().ensure(bastion, Deadline.after(60))
        assert not [one for one in cloud.resources(bastion.reference.uid) if "service" in one]
        take_down(cloud, bastion)


class TestContract(BastionSuite):
    """The contract. Faults in every call are tried on the embedded API."""

    stride = 9

    @pytest.fixture
    def cloud(self, kubernetes: KubernetesCalls) -> Iterator[FakeCloud]:
        made = PodCloud(kubernetes)
        made.settings = {**made.settings, "ipv6": False}  # Kubernetes 1.20 has ipFamilyPolicy behind a feature gate
        made.families = frozenset({4})
        yield made
        made.clear()
