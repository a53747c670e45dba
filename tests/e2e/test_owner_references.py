"""A policy's owner where admission plugin OwnerReferencesPermissionEnforcement is on, as OpenShift has it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from signer.controller.status.policy_owner import PolicyOwner
from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.resources import CLUSTERS_V1BETA2, NODE_ATTESTATION_POLICIES
from signer.model.cluster import ClusterKey, ClusterView
from signer.model.floors import NO_FLOOR
from signer.model.policy import Policy, parse_policy
from signer.testing.clients import BlockingClient, LoopThread
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.control_plane import ControlPlane
from tests.support.grants import as_service_account
from tests.support.helm import find_helm, render_chart
from tests.support.kubectl import run_kubectl
from tests.support.processes import wait_until

pytestmark = [pytest.mark.real, pytest.mark.slow]

DEFINITIONS: Final = Path(__file__).parents[2] / "deploy/crds"
PLUGIN: Final = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"
KEY: Final = ClusterKey("default", "production")
PATH: Final = NODE_ATTESTATION_POLICIES.object(KEY.name, KEY.namespace)
CLUSTER: Final = ClusterView(
    key=KEY, uid="c-1", paused=False, deleting=False, control_plane_host="", service_networks=()
)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """With the plugin, and one policy."""
    try:
        find_helm()
        started = ControlPlane(apiserver_flags=[PLUGIN])
    except MissingPart as missing:
        skip_or_fail(missing)
    with started as plane:
        plane.install_crds(DEFINITIONS.iterdir())
        manifest = {
            "apiVersion": NODE_ATTESTATION_POLICIES.api_version,
            "kind": "NodeAttestationPolicy",
            "metadata": {"name": KEY.name, "namespace": KEY.namespace},
            "spec": {"authorizedAttestors": [{"name": "tpm"}]},
        }
        with BlockingClient(plane.connection()) as administrator:
            administrator.create(NODE_ATTESTATION_POLICIES.collection(KEY.namespace), manifest)
        yield plane
        plane.check_running()


def stored(plane: ControlPlane) -> dict[str, Any]:
    with BlockingClient(plane.connection()) as administrator:
        return administrator.get(PATH)


def ensure_owner(connection: ClusterConnection, policy: Policy) -> None:
    """As the controller does at each survey."""

    async def ensure() -> None:
        async with Client(connection) as client:
            await PolicyOwner(client, CLUSTERS_V1BETA2).ensure(CLUSTER, policy)

    with LoopThread("owner") as thread:
        thread.run(ensure())


def test_a_policy_gets_its_owner_with_the_grant_and_not_without(
    plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    controller = as_service_account(plane, KEY.namespace)
    policy = parse_policy(stored(plane), NO_FLOOR)
    assert isinstance(policy, Policy)
    with caplog.at_level(logging.WARNING):
        ensure_owner(controller, policy)
    (told,) = caplog.records
    assert "cannot set an ownerRef on a resource you can't delete" in vars(told)["error"]
    assert "ownerReferences" not in stored(plane)["metadata"]

    granted = render_chart({"rbac": {"ownerReferences": True}}, templates=["rbac-optional.yaml"])
    applied = run_kubectl(plane.kubeconfig(), ["apply", "-f", "-"], standard_input=granted)
    assert applied.returncode == 0, applied.stderr

    def is_owned() -> bool:
        ensure_owner(controller, policy)
        return [one["uid"] for one in stored(plane)["metadata"].get("ownerReferences", [])] == [CLUSTER.uid]

    wait_until(is_owned, "the policy has its owner")
