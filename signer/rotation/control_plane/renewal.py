"""What one step of a rotation needs of the servers of a control plane, and the proof that all of them have it.

Every step that changes what API servers trust or present is a write of Secrets, and then a replacement of the machines
that have read them earlier.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from signer.model.fields import format_time
from signer.rotation.control_plane.kubeadm_control_plane import KubeadmControlPlane, Rollout, RotatedCluster
from signer.rotation.control_plane.machines import ControlPlaneMachines, Names

SETTLING: Final = timedelta(seconds=60)
"""A machine counts only if it was created this long after the write. Cluster API reads CA Secrets from a cache that
follows the API server by a watch (``LookupCached``), and its clock is not ours."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """What one step of a rotation needs of the servers."""

    written: datetime
    """When the last object was written that a new machine reads, by our clock."""

    @property
    def not_before(self) -> datetime:
        """The earliest creation time of a machine that has read it, in whole seconds: no object has a finer time."""
        earliest = self.written + SETTLING
        whole = earliest.replace(microsecond=0)
        return whole if whole == earliest else whole + timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """What an actuator and its proof see, read in one pass."""

    cluster: RotatedCluster
    kubeadm: KubeadmControlPlane
    machines: ControlPlaneMachines


@dataclass(frozen=True, slots=True)
class Renewed:
    """Every server has taken the files."""


@dataclass(frozen=True, slots=True)
class NotRenewed:
    """These have not, or have not yet."""

    members: Names
    """Names of Machines; of the KubeadmControlPlane if it is the provider that has not finished."""
    cure: str


RenewalProof: TypeAlias = Renewed | NotRenewed


def machines_replaced(control_plane: ControlPlane, renewal: Renewal) -> RenewalProof:
    """Whether every control plane machine was made after the write and runs, and the provider has nothing left to "
    "do."""
    kubeadm, machines = control_plane.kubeadm, control_plane.machines
    if old := machines.created_before(renewal.not_before):
        return NotRenewed(
            old,
            f"these machines were created before {format_time(renewal.not_before)} and have older files: "
            "the control plane must replace them",
        )
    if machines.deleting:
        return NotRenewed(machines.deleting, "these machines are being deleted: their servers may still answer")
    if machines.without_node:
        return NotRenewed(
            machines.without_node, "these machines have not joined: see their Machines' conditions, or replace them"
        )
    if unfinished := _unfinished(control_plane):
        return NotRenewed((kubeadm.name,), unfinished)
    return Renewed()


def _unfinished(control_plane: ControlPlane) -> str:
    """What the provider has left to do, by its own word; empty if nothing."""
    kubeadm = control_plane.kubeadm
    if not kubeadm.observed:
        return "the provider has not seen the latest change of the KubeadmControlPlane"
    if kubeadm.rollout is Rollout.RUNNING:
        return "a rollout is running"
    if not kubeadm.replicas.settled:
        return f"the control plane is not complete: {kubeadm.replicas}"
    existing = len(control_plane.machines.machines)
    if kubeadm.replicas.existing != existing:
        return f"the provider counts {kubeadm.replicas.existing} machines, and there are {existing}"
    return ""
