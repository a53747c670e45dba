"""The provider ``pod`` on a real kube-apiserver: its contract, with what that API server validates and defaults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from node_access.bastions.suite import BastionSuite, FakeCloud
from signer.bastions.kubernetes_calls import KubernetesCalls
from signer.testing.clients import BlockingClient
from tests.support.bastions.kubernetes import kubernetes_calls
from tests.support.bastions.pod_cloud import NAMESPACE, PodCloud
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[KubernetesCalls]:
    """Without the plugin that wants a ServiceAccount, which a controller would make."""
    try:
        started = ControlPlane(apiserver_flags=["--disable-admission-plugins=ServiceAccount"])
    except MissingPart as missing:
        skip_or_fail(missing)
    with started as plane:
        with BlockingClient(plane.connection()) as administrator:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            administrator.create("/api/v1/namespaces", namespace)
        with kubernetes_calls(plane.connection()) as calls:
            yield calls
        plane.check_running()


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
