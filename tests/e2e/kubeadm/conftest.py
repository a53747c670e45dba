"""Fixtures of the tests with the real kubeadm: each module's machines are of one kind, its ``KIND``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from signer.configuration import Configuration, OperatorAttestor
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.model.cluster import CONTROL_PLANE_LABEL
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController, WorldCluster
from tests.deploy.machine import HOSTNAME
from tests.deploy.manifests import CONTROL_PLANE
from tests.deploy.running_machine import PROGRAMS, RunningMachine
from tests.e2e.kubeadm.cluster import CONTROLLERS, set_up
from tests.e2e.kubeadm.node import ADDRESS, MASTER_KEY_TEXT, NODE, PROVIDER_ID, machine_address, new_machine
from tests.support.binaries import MissingPart, find_control_plane, skip_or_fail
from tests.support.cluster_api import cluster_api_crds
from tests.support.control_plane import ControlPlane
from tests.support.grants import as_service_account, restrict_in_workload_cluster
from tests.support.raw_client import RawClient

PODS: Final = "/api/v1/namespaces/kube-system/pods"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane as kubeadm leaves it."""
    try:
        binaries = find_control_plane()
        kubeadm = binaries.program("kubeadm")
        binaries.program("kubelet")
        control_plane = ControlPlane(binaries=binaries)
    except MissingPart as missing:
        skip_or_fail(missing)
    with control_plane:
        control_plane.start_controllers(controllers=CONTROLLERS)
        set_up(control_plane, kubeadm, tmp_path_factory.mktemp("kubeadm"))
        yield control_plane


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, plane: ControlPlane) -> Iterator[WorldCluster]:
    """The cluster with its Machine, an attestor, and a controller."""
    configuration = Configuration(
        namespace=CONTROLLER_NAMESPACE,
        attestors={"keyed-mac": OperatorAttestor(settings={"masterKey": MASTER_KEY_TEXT})},
    )
    with ManagementCluster(plane, capi_crds=cluster_api_crds()) as management:
        cluster = management.add_cluster("kubeadm", plane, namespace="kubeadm")
        addresses = [("Hostname", HOSTNAME), ("InternalDNS", HOSTNAME), ("InternalIP", ADDRESS)]
        addresses += [("InternalIP", address) for address in machine_address()]
        cluster.add_machine("node-1", provider_id=PROVIDER_ID, addresses=addresses)
        if request.module.KIND == CONTROL_PLANE:
            cluster.patch_machine("node-1", {"metadata": {"labels": {CONTROL_PLANE_LABEL: ""}}})
        restrict_in_workload_cluster(cluster, plane)
        cluster.authorize("keyed-mac", builtinServingRequests="Approve")
        with RunningController(as_service_account(plane, "kubeadm"), configuration):
            yield cluster


@pytest.fixture(scope="module")
def administrator(plane: ControlPlane) -> Iterator[RawClient]:
    """A client that may do everything."""
    with RawClient(plane.connection()) as client:
        yield client


@pytest.fixture
def program_folder() -> str:
    """Where the image has kubelet-authenticator; tests of other images say another."""
    return PROGRAMS


@pytest.fixture
def machine(
    plane: ControlPlane, administrator: RawClient, tmp_path: Path, program_folder: str
) -> Iterator[RunningMachine]:
    """A machine that never joined. Its Node, the mirrors of its static pods and its requests go with it."""
    with ExitStack() as stack:
        try:
            machine = stack.enter_context(new_machine(plane.binaries, tmp_path / "root", program_folder))
        except MissingPart as missing:
            skip_or_fail(missing)
        yield machine
        stack.close()
        administrator.delete(NODE).expect(200, 404)
        # No kube-controller-manager does it here. kubeadm would read the former machine's address in them.
        administrator.delete(PODS, gracePeriodSeconds="0").expect(200)
        for request in administrator.get(CERTIFICATE_SIGNING_REQUESTS.collection()).expect(200)["items"]:
            administrator.delete(CERTIFICATE_SIGNING_REQUESTS.object(request["metadata"]["name"])).expect(200, 404)
