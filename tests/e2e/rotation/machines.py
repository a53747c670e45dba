"""Real machines in a cluster whose CAs are rotated: kubeadm, kubelet and agent under systemd, in a scratch root."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from signer.authority import load_certificate_authority
from signer.configuration import Configuration, OperatorAttestor
from signer.kube.connection import ClusterConnection
from signer.testing.world import CONTROLLER_NAMESPACE
from tests.deploy.machine import HOSTNAME
from tests.deploy.running_machine import RunningMachine
from tests.e2e.kubeadm.cluster import CONTROL_PLANE, set_up, wait_until_discoverable
from tests.e2e.kubeadm.node import (
    ADDRESS,
    MASTER_KEY_TEXT,
    NODE,
    PROVIDER_ID,
    boot,
    machine_address,
    new_machine,
    rendered,
    wait_ready,
)
from tests.e2e.rotation.world import NAMESPACE, SETTINGS, RotationWorld
from tests.support.binaries import ControlPlaneBinaries
from tests.support.raw_client import RawClient

MACHINE: Final = "node-1"
LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{HOSTNAME}"
GRACE_SECONDS: Final = 40.0
"""kube-controller-manager's ``--node-monitor-grace-period`` until 1.31; 50 s since: a Node whose lease is older is not
Ready (``pkg/controller/nodelifecycle/config/v1alpha1/defaults.go``)."""
CONFIGURATION: Final = Configuration(
    namespace=CONTROLLER_NAMESPACE,
    watch_namespace=NAMESPACE,
    attestors={"keyed-mac": OperatorAttestor(settings={"masterKey": MASTER_KEY_TEXT})},
    rotation=SETTINGS,
)
_POLL_SECONDS: Final = 0.5


@dataclass(frozen=True)
class RotatedPlane:
    """The control plane of a :class:`RotationWorld`, as kubeadm and its machines see it at this moment."""

    world: RotationWorld

    @property
    def binaries(self) -> ControlPlaneBinaries:
        """Of the API servers."""
        return self.world.control_plane.binaries

    @property
    def server(self) -> str:
        """The balancer."""
        return self.world.control_plane.balancer.server

    @property
    def etcd_url(self) -> str:
        """Without TLS."""
        return self.world.control_plane.etcd_url

    @property
    def ca_certificate_pem(self) -> bytes:
        """Of Secret ``<cluster>-ca``."""
        return self.world.secret("ca")["tls.crt"]

    @property
    def ca_key_pem(self) -> bytes:
        """Of Secret ``<cluster>-ca``."""
        return self.world.secret("ca")["tls.key"]

    @property
    def ca_cert_hash(self) -> str:
        """By which machines pin the CA."""
        return load_certificate_authority(self.world.secret("ca"), now=datetime.now(UTC)).certificate.public_key_hash

    @property
    def service_account_key_pem(self) -> bytes:
        """Of the API servers."""
        return (self.world.control_plane.folder / "sa.key").read_bytes()

    def versions(self) -> Mapping[str, str]:
        """The version output of each program, by name."""
        return self.binaries.versions()

    def connection(self) -> ClusterConnection:
        """By Secret ``<cluster>-kubeconfig``."""
        return self.world.admin_connection()

    def kubeconfig(self) -> str:
        """Secret ``<cluster>-kubeconfig``."""
        return self.world.secret("kubeconfig")["value"].decode("utf-8")

    def bootstrap_token(self) -> str:
        """A new one; it lives for two hours."""
        return self.world.api.bootstrap_token()


@dataclass
class JoiningMachine:
    """The Machine, and what it is told at its first boot. Only one at a time is switched on: they share the ports."""

    plane: RotatedPlane
    token: str
    folder: Path

    @classmethod
    def of(cls, world: RotationWorld, folder: Path, **cluster_configuration: Any) -> JoiningMachine:
        """Add the Machine, and let kubeadm write into the cluster what machines join by."""
        plane = RotatedPlane(world)
        set_up(plane, plane.binaries.program("kubeadm"), folder, cluster_configuration)
        with RawClient(plane.connection()) as client:
            client.delete(f"/api/v1/nodes/{CONTROL_PLANE}").expect(200)
        addresses = [("Hostname", HOSTNAME), ("InternalDNS", HOSTNAME), ("InternalIP", ADDRESS)]
        addresses += [("InternalIP", address) for address in machine_address()]
        world.cluster.add_machine(MACHINE, provider_id=PROVIDER_ID, addresses=addresses)
        token = plane.bootstrap_token()
        wait_until_discoverable(plane, token)
        return cls(plane, token, folder)

    def user_data(self, spec: Mapping[str, Any]) -> str:
        """Rendered now: it pins the CA of Secret ``<cluster>-ca``."""
        return rendered(self.plane, self.plane.ca_cert_hash, self.token, spec)

    @contextlib.contextmanager
    def booted(self, spec: Mapping[str, Any], data: str) -> Iterator[RunningMachine]:
        """A new machine after its first boot; its Node is gone afterwards.

        Raises:
            MissingPart: a program is missing, or the host allows no namespaces.
        """
        with tempfile.TemporaryDirectory(dir=self.folder) as root:
            with new_machine(self.plane.binaries, Path(root) / "root") as machine:
                # All images are there, as far as kubeadm 1.20 asks for them.
                machine.path("/programs/crictl").symlink_to("/usr/bin/true")
                boot(machine, spec, data)
                yield machine
            with RawClient(self.plane.connection()) as client:
                client.delete(NODE).expect(200, 404)

    def has_joined(self, machine: RunningMachine) -> None:
        """Its Node is Ready, and Cluster API has seen it."""
        assert machine.joined(), machine.output() + machine.log("kubelet.service")
        with RawClient(self.plane.connection()) as client:
            wait_ready(client, machine)
        world = self.plane.world
        joined = {"metadata": {"name": MACHINE, "namespace": NAMESPACE}}
        world.cluster.set_machine_status(joined, {"nodeRef": {"name": HOSTNAME}})


@dataclass
class Heartbeats:
    """Records every renewal of the node's Lease, which are 10 s apart; a context manager. It looks twice a second."""

    plane: RotatedPlane
    renewed: list[datetime] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def longest_gap_seconds(self) -> float:
        """Between two renewals, by the kubelet's own clock."""
        pairs = zip(self.renewed, self.renewed[1:], strict=False)
        return max((later - former).total_seconds() for former, later in pairs)

    def _run(self) -> None:
        while not self._stop.wait(_POLL_SECONDS):
            # An API server is being restarted, or the test's own certificate was exchanged.
            with contextlib.suppress(OSError), RawClient(self.plane.connection()) as client:
                found = client.get(LEASE)
                if found.status != 200:
                    continue
                renewed = datetime.fromisoformat(found.body["spec"]["renewTime"])
                if not self.renewed or renewed > self.renewed[-1]:
                    self.renewed.append(renewed)
