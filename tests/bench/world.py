"""The environment of a measurement: a control plane as management and workload cluster, Machines, and a decider."""

from __future__ import annotations

import enum
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from signer.kube.connection import ClusterConnection
from signer.testing.world import ManagementCluster
from tests.bench.drain import controller_process
from tests.bench.figures import PEER
from tests.bench.load import Load
from tests.bench.spent import Decider, wait_until_idle
from tests.bench.submission import Submission, first_joins, for_peer, renewals
from tests.support.control_plane import ControlPlane
from tests.support.etcd import Disk
from tests.support.grants import as_service_account

AS_IT_IS: Final = Disk()
"""etcd uses this machine's disk, with syncs."""


class Work(enum.Enum):
    """The kind of request, and which program decides it."""

    FIRST_JOIN = "first join"
    RENEWAL = "renewal"
    RENEWAL_AUDITED = "renewal, audit log"
    PEER = PEER


@dataclass(frozen=True, slots=True)
class BenchWorld:
    """One control plane with kubeadm's grants, one Cluster, and its Machines."""

    control_plane: ControlPlane
    load: Load
    management: ClusterConnection
    """The controller's connection, as its ServiceAccount. kube-controller-manager has its own connections."""

    def submissions(self, work: Work) -> list[Submission]:
        """A request per node; to be used once, because the names would exist the second time."""
        prefix = work.value.replace(" ", "-").replace(",", "")
        match work:
            case Work.FIRST_JOIN:
                return first_joins(self.load, prefix, self.control_plane.bootstrap_token())
            case Work.PEER:
                return for_peer(self.load, prefix, self.control_plane.bootstrap_token())
            case Work.RENEWAL | Work.RENEWAL_AUDITED:
                return renewals(self.load, prefix)

    def decider(self, work: Work) -> Decider:
        """Starts the process that decides these requests."""
        if work is Work.PEER:
            return self._controller_manager
        attestors = self.load.configuration.attestors
        return lambda: controller_process(self.management, attestors, audited=work is Work.RENEWAL_AUDITED)

    @contextmanager
    def _controller_manager(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run kube-controller-manager without client limits; it signs with this control plane's CA key."""
        try:
            yield self.control_plane.start_controllers(qps=10_000, burst=10_000).process
        finally:
            self.control_plane.stop_controllers()


@contextmanager
def bench_world(nodes: int, disk: Disk = AS_IT_IS) -> Iterator[BenchWorld]:
    """Start a control plane with ``nodes`` Machines. Raises :class:`tests.support.binaries.MissingPart`."""
    with ControlPlane(disk=disk) as control_plane, ManagementCluster(control_plane) as management:
        control_plane.binaries.kube_controller_manager()
        control_plane.seed_kubeadm()
        load = Load(management.add_cluster("bench", control_plane), nodes)
        load.add_machines()
        load.cluster.authorize("keyed-mac")
        connection = as_service_account(control_plane, load.cluster.namespace)
        wait_until_idle(control_plane)
        yield BenchWorld(control_plane, load, connection)
