"""A real kube-apiserver: the controller attests and enforces with the restricted kubeconfig, and has nothing else."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from keyed_mac.keys import derive_machine_key

from signer.cli import main
from signer.configuration import Configuration, OperatorAttestor
from signer.controller.auto_approval import reconciler as reconciler
from signer.controller.cluster import kubeconfig_change
from signer.kube.kubeconfig import parse_kubeconfig
from signer.kube.resources import (
    CERTIFICATE_SIGNING_REQUESTS,
    CLUSTER_ROLE_BINDINGS,
    NODE_ATTESTATION_POLICIES,
    SECRETS,
)
from signer.testing.nodes import SimulatedNode
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController, WorldCluster
from tests.support import kubeadm
from tests.support.cluster_api import cluster_api_crds
from tests.support.control_plane import ControlPlane
from tests.support.grants import as_service_account
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.real, pytest.mark.slow]

NAMESPACE = "restricted"
NAME = "restricted"
MASTER_KEY = secrets.token_bytes(32)
KUBEADM_BINDINGS = {"kubeadm:node-autoapprove-bootstrap", "kubeadm:node-autoapprove-certificate-rotation"}


@dataclass
class World:
    """One control plane that is management and workload cluster in one."""

    plane: ControlPlane
    cluster: WorldCluster
    administrator: Path
    """A kubeconfig file."""

    def make(self, *arguments: str) -> None:
        """Runs the command."""
        given = ["--kubeconfig", str(self.administrator), "-o", "json", *arguments]
        assert main(["workload-kubeconfig", NAME, "-n", NAMESPACE, *given]) == 0

    @property
    def token(self) -> str:
        found = self.cluster.management.client.get(SECRETS.object(f"{NAME}-kubeconfig-restricted", NAMESPACE))
        return str(parse_kubeconfig(base64.b64decode(found["data"]["value"])).bearer_token)

    def answer(self, token: str, path: str = CERTIFICATE_SIGNING_REQUESTS.collection()) -> int:
        """The HTTP status of a read with that token."""
        with RawClient(self.plane.token_connection(token)) as client:
            return client.get(path).status

    def join(self, machine: str) -> None:
        """A Machine joins by attestation."""
        provider_id = f"test:///{machine}"
        self.cluster.add_machine(machine, provider_id=provider_id, addresses=[("Hostname", machine)])
        machine_key = base64.b64encode(derive_machine_key(MASTER_KEY, provider_id)).decode("ascii")
        settings = {"provider-id": provider_id, "machine-key": machine_key}
        node = SimulatedNode(machine, provider_id, self.cluster.ca_cert_hash, "keyed-mac", settings)
        self.cluster.submit_with_token(node.client_request(f"join-{machine}"))
        assert self.cluster.wait_until_decided(f"join-{machine}").reason == "Attested"

    def set_mode(self, mode: str) -> None:
        path = NODE_ATTESTATION_POLICIES.object(NAME, NAMESPACE)
        self.cluster.management.client.patch(path, {"spec": {"mode": mode}})

    def bindings(self) -> set[str]:
        """Those of kubeadm's automatic approval that are there."""
        items = self.cluster.management.client.items(CLUSTER_ROLE_BINDINGS.collection())
        return {item["metadata"]["name"] for item in items} & KUBEADM_BINDINGS

    def condition(self, kind: str) -> dict[str, Any]:
        policy = self.cluster.management.client.get(NODE_ATTESTATION_POLICIES.object(NAME, NAMESPACE))
        found = (policy.get("status") or {}).get("conditions") or []
        return next((one for one in found if one["type"] == kind), {"status": "", "reason": ""})


@pytest.fixture(scope="module")
def world(real_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A controller that has the restricted kubeconfig and nothing else; its policy says Enforce."""
    administrator = tmp_path_factory.mktemp("administrator") / "kubeconfig"
    administrator.write_text(real_control_plane.kubeconfig())
    master_key = base64.b64encode(MASTER_KEY).decode("ascii")
    configuration = Configuration(
        namespace=CONTROLLER_NAMESPACE, attestors={"keyed-mac": OperatorAttestor(settings={"masterKey": master_key})}
    )
    real_control_plane.seed_kubeadm()
    with ManagementCluster(real_control_plane, capi_crds=cluster_api_crds()) as management:
        cluster = management.add_cluster(NAME, real_control_plane, namespace=NAMESPACE)
        cluster.authorize("keyed-mac")
        made = World(real_control_plane, cluster, administrator)
        made.make()
        management.client.delete(SECRETS.object(f"{NAME}-kubeconfig", NAMESPACE))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reconciler, "RECHECK_SECONDS", 1.0)
            patch.setattr(kubeconfig_change, "READ_SECONDS", 0.5)
            with RunningController(as_service_account(real_control_plane, NAMESPACE), configuration):
                yield made
                made.set_mode("Observe")
                wait_until(lambda: made.bindings() == KUBEADM_BINDINGS, "kubeadm's bindings are back")
        cluster.remove()


def test_it_attests_and_enforces(world: World) -> None:
    world.join("restricted-1")
    world.set_mode("Enforce")
    wait_until(lambda: world.condition("AutoApprovalRemoved")["status"] == "True", "auto-approval is removed")
    assert world.bindings() == set()
    wait_until(
        lambda: world.condition("BuiltinRequestsRefused")["reason"] in ("Proven", "NotServed"),
        "the API server refuses, if it can",
    )


def test_it_may_not_do_more(world: World) -> None:
    for path in ("/api/v1/secrets", "/api/v1/namespaces/kube-system/secrets", "/api/v1/pods", "/api/v1/configmaps"):
        assert world.answer(world.token, path) == 403, path
    with RawClient(world.plane.token_connection(world.token)) as client:
        binding = kubeadm.cluster_role_binding("more", "cluster-admin", "system:authenticated")
        assert client.post(CLUSTER_ROLE_BINDINGS.collection(), binding).status == 403


def test_renewal_ends_the_former_credential(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    former = world.token
    assert world.answer(former) == 200
    world.make("--workload-kubeconfig", str(world.administrator))
    report = json.loads(capsys.readouterr().out)
    assert (report["written"], report["revoked"]) == ([], 1)
    wait_until(lambda: world.answer(former) == 401, "the former credential has ended")
    assert world.answer(world.token) == 200
    world.join("restricted-2")
