"""The Machines of a cluster, as a rotation sees them: the management cluster's own view, which no node can change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from signer.model.cluster import MACHINE_POOL_KIND, MachineView

Names: TypeAlias = tuple[str, ...]
"""Names of objects, sorted."""


@dataclass(frozen=True, slots=True)
class ControlPlaneMachines:
    """The Machines that run the control plane, those that are being deleted included: their API servers may still "
    "answer."""

    machines: tuple[MachineView, ...]
    """Sorted by name."""

    @property
    def names(self) -> Names:
        """All of them."""
        return tuple(one.name for one in self.machines)

    @property
    def deleting(self) -> Names:
        """Those that are being deleted."""
        return tuple(one.name for one in self.machines if one.deleting)

    @property
    def without_node(self) -> Names:
        """Those that have not joined."""
        return tuple(one.name for one in self.machines if not one.node_ref)

    def created_before(self, moment: datetime) -> Names:
        """Those that were created before that moment, or at an unknown time."""
        return tuple(one.name for one in self.machines if one.created < moment)


@dataclass(frozen=True, slots=True)
class WorkerGroups:
    """Where the worker nodes of a cluster come from: only what has Machines or instances."""

    deployments: Names
    """MachineDeployments."""
    pools: Names
    """MachinePools."""
    single_machines: Names
    """Machines of neither: each is replaced by hand."""


@dataclass(frozen=True, slots=True)
class ClusterMachines:
    """All Machines of a cluster."""

    control_plane: ControlPlaneMachines
    workers: WorkerGroups


def cluster_machines(machines: Iterable[MachineView]) -> ClusterMachines:
    """Sort the Machines and the MachinePools' instances of one cluster."""
    control_plane: list[MachineView] = []
    deployments, pools, single = set[str](), set[str](), set[str]()
    for one in machines:
        if one.control_plane:
            control_plane.append(one)
        elif one.deployment:
            deployments.add(one.deployment)
        elif pool := _pool_of(one):
            pools.add(pool)
        else:
            single.add(one.name)
    workers = WorkerGroups(tuple(sorted(deployments)), tuple(sorted(pools)), tuple(sorted(single)))
    return ClusterMachines(ControlPlaneMachines(tuple(sorted(control_plane, key=lambda one: one.name))), workers)


def worker_groups(machines: Iterable[MachineView]) -> dict[str, str]:
    """The MachineDeployment or MachinePool of each worker that has one, by the Machine's name."""
    groups = {one.name: one.deployment or _pool_of(one) for one in machines if not one.control_plane}
    return {name: group for name, group in groups.items() if group}


def _pool_of(machine: MachineView) -> str:
    """The MachinePool of a Machine or instance; empty if there is none."""
    return machine.name if machine.kind == MACHINE_POOL_KIND else machine.owner_pool
