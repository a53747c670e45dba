"""Kubernetes is upgraded under nodes that have joined: another kube-apiserver over the same etcd, on the same port.

The first is that of the build cache (1.20), the second that of ``KUBEBUILDER_ASSETS`` if it is newer. A second run
restarts the first, everywhere. The controller runs on meanwhile, and is then started anew.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from keyed_mac.keys import derive_machine_key

from signer.configuration import Configuration, OperatorAttestor
from signer.kube.connection import ClusterConnection
from signer.kube.resources import ATTESTED_NODES
from signer.testing.nodes import SimulatedNode
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController, WorldCluster
from tests.support.binaries import (
    ASSETS_VARIABLE,
    ControlPlaneBinaries,
    MissingPart,
    build_cache,
    control_plane_in,
    find_control_plane,
    skip_or_fail,
)
from tests.support.cluster_api import cluster_api_crds
from tests.support.control_plane import ControlPlane
from tests.support.grants import as_service_account, restrict_in_workload_cluster
from tests.support.journal import journal_of
from tests.support.node_program import NodeProgram
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.real, pytest.mark.slow]

NAMESPACE: Final = "upgraded"
ADDRESSES: Final = {"joined": "192.0.2.1", "late": "192.0.2.2"}
DENIED: Final = 7
"""Exit code of ``kubelet-authenticator``."""


@dataclass(frozen=True)
class Upgrade:
    """The two versions."""

    before: ControlPlaneBinaries
    after: ControlPlaneBinaries


@pytest.fixture(params=["the same version", "a newer version"])
def upgrade(request: pytest.FixtureRequest) -> Upgrade:
    try:
        before = control_plane_in(build_cache())
        after = find_control_plane()
    except MissingPart as missing:
        skip_or_fail(missing)
    if request.param == "the same version":
        return Upgrade(before, before)
    if after.kubernetes() <= before.kubernetes():
        pytest.skip(f"{ASSETS_VARIABLE} has no kube-apiserver newer than {'.'.join(map(str, before.kubernetes()))}")
    return Upgrade(before, after)


@dataclass(frozen=True)
class World:
    """One control plane that is management and workload cluster in one."""

    plane: ControlPlane
    cluster: WorldCluster
    access: ClusterConnection
    master_key: bytes
    folder: Path

    @contextlib.contextmanager
    def controller(self) -> Iterator[None]:
        settings = {"masterKey": base64.b64encode(self.master_key).decode("ascii")}
        attestors = {"keyed-mac": OperatorAttestor(settings=settings)}
        with RunningController(self.access, Configuration(namespace=CONTROLLER_NAMESPACE, attestors=attestors)):
            yield

    def machine(self, name: str, *, key_of: str = "") -> NodeProgram:
        """The node's program on that machine; ``key_of`` is another machine, whose key this one has instead."""
        provider_id = f"test:///{name}"
        machine_key = derive_machine_key(self.master_key, f"test:///{key_of or name}")
        settings = {"provider-id": provider_id, "machine-key": base64.b64encode(machine_key).decode("ascii")}
        node = SimulatedNode(name, provider_id, self.cluster.ca_cert_hash, "keyed-mac", settings)
        place = self.folder / f"{name}-{secrets.token_hex(4)}"
        program = NodeProgram(place, node, timeout=40.0, extra={"serving": {"ipAddresses": [ADDRESSES[name]]}})
        program.supply_bootstrap(self.cluster)
        return program

    def join(self, name: str) -> NodeProgram:
        """Attest, register the Node, and get a serving certificate."""
        program = self.machine(name)
        program.credential().certificate()
        with RawClient(self.as_node(program)) as client:
            client.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}).expect(201)
        self.serve(program)
        return program

    def as_node(self, program: NodeProgram) -> ClusterConnection:
        """A connection with the stored certificate of the node."""
        pair = program.client_pair.read_bytes()
        return replace(self.plane.connection(), client_certificate=pair, client_key=pair)

    def kubernetes(self) -> tuple[int, int]:
        """The version that the API server states."""
        with RawClient(self.plane.connection()) as client:
            version = client.get("/version").expect(200)
        return int(version["major"]), int(version["minor"].rstrip("+"))

    def may_read_its_node(self, program: NodeProgram) -> bool:
        with RawClient(self.as_node(program)) as client:
            return client.get(f"/api/v1/nodes/{program.node.node_name}").status == 200

    def serve(self, program: NodeProgram) -> x509.Certificate:
        """Get another serving certificate, with the stored client certificate."""
        program.serving_pair.unlink(missing_ok=True)
        ran = program.run("request", "--serving")
        assert ran.exit_code == 0, ran.log
        return x509.load_pem_x509_certificate(program.serving_pair.read_bytes())

    def renew(self, program: NodeProgram) -> None:
        """Renew a certificate that is nearly over: one of the cluster's CA takes the place of the stored one."""
        user = f"system:node:{program.node.node_name}"
        certificate, key = self.plane.ca.issue_client(
            user, ["system:nodes"], timedelta(minutes=19), timedelta(minutes=81)
        )
        program.client_pair.write_bytes(certificate + key)
        program.renewed()

    def journal(self, name: str) -> list[str]:
        """The serial numbers in the node's record."""
        path = ATTESTED_NODES.object(f"{self.cluster.name}.{name}", NAMESPACE)
        record = self.cluster.management.client.get(path)
        return [entry["serialNumber"] for entry in journal_of(record["spec"])]


@pytest.fixture
def world(upgrade: Upgrade, tmp_path: Path) -> Iterator[World]:
    with ControlPlane(binaries=upgrade.before) as plane:
        plane.seed_kubeadm()
        with ManagementCluster(plane, capi_crds=cluster_api_crds()) as management:
            cluster = management.add_cluster(NAMESPACE, plane, namespace=NAMESPACE)
            for name, address in ADDRESSES.items():
                addresses = [("Hostname", name), ("InternalIP", address)]
                cluster.add_machine(name, provider_id=f"test:///{name}", addresses=addresses)
            restrict_in_workload_cluster(cluster, plane)
            cluster.authorize("keyed-mac")
            access = as_service_account(plane, NAMESPACE)
            yield World(plane, cluster, access, secrets.token_bytes(32), tmp_path)


def test_nodes_that_have_joined_go_on(world: World, upgrade: Upgrade) -> None:
    with world.controller():
        joined = world.join("joined")
        before = world.journal("joined")

        world.plane.upgrade(upgrade.after)
        assert world.kubernetes() == upgrade.after.kubernetes()
        assert world.may_read_its_node(joined), "the certificate of before counts"
        world.renew(joined)
        assert world.may_read_its_node(joined)
        served = world.serve(joined)
        journal = world.journal("joined")
        assert journal[: len(before)] == before
        assert f"{served.serial_number:x}" in journal[len(before) :]

        world.join("late")
        assert world.machine("joined", key_of="late").credential().exit_code == DENIED

    with world.controller():
        world.renew(joined)
        assert world.may_read_its_node(joined)
