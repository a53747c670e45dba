"""Has the servers of a control plane take the files that a step has published.

A KubeadmControlPlane replaces machines that are older than its ``rollout.after`` (Cluster API
``util/collections/machine_filters.go``: ``created < after < now``).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias

from signer.kube.calls import Patch
from signer.kube.client import JsonObject
from signer.kube.errors import Forbidden
from signer.kube.resources import Resource
from signer.model.fields import format_time
from signer.rotation.control_plane.kubeadm_control_plane import (
    ClusterTopology,
    KubeadmControlPlane,
    NoClusterClass,
    RolloutTime,
    Version,
    rotated_cluster,
)
from signer.rotation.control_plane.reading import RESOURCES
from signer.rotation.control_plane.renewal import (
    ControlPlane,
    Renewal,
    RenewalProof,
    Renewed,
    machines_replaced,
)
from signer.rotation.control_plane.template import NotSet

# What an actuator did


@dataclass(frozen=True, slots=True)
class Requested:
    """The actuator asked for the renewal in this pass."""


@dataclass(frozen=True, slots=True)
class UnderWay:
    """The renewal was asked for before."""


@dataclass(frozen=True, slots=True)
class TooEarly:
    """Nothing is written before that time: a machine that is created now might still read the old files."""

    until: datetime


@dataclass(frozen=True, slots=True)
class ByHand:
    """A person must do it."""

    what_to_do: str


@dataclass(frozen=True, slots=True)
class Withheld:
    """The actuator does not act in that state of the cluster."""

    reason: str


Progress: TypeAlias = Requested | UnderWay | TooEarly | ByHand | Withheld


class ServersActuator(Protocol):
    """Has all servers of a control plane take what a step has published.

    Another one may change the files of running servers: then its proof is what its agents report, not the age of
    machines.
    """

    async def renew(self, control_plane: ControlPlane, renewal: Renewal) -> Progress:
        """Ask for the renewal, if that has not been done. Repeated for one step it writes once.

        Raises:
            ApiError: the management cluster refused the write; ``Conflict`` if the object changed after it was read.
            InvalidControlPlane: the answer is no Cluster.
        """
        ...

    def proof(self, control_plane: ControlPlane, renewal: Renewal) -> RenewalProof:
        """Whether every server has taken it."""
        ...


class KubeadmRollout:
    """Replaces the machines by a rollout of the KubeadmControlPlane."""

    def __init__(self, client: Patch, clusters: Resource, now: Callable[[], datetime]) -> None:
        """``clusters`` is :attr:`~signer.store.cluster_api.ClusterAPIVersion.clusters`."""
        self._client = client
        self._clusters = clusters
        self._now = now

    async def renew(self, control_plane: ControlPlane, renewal: Renewal) -> Progress:
        """See :class:`ServersActuator`."""
        if reason := _withheld(control_plane):
            return Withheld(reason)
        now = self._now()
        if now <= renewal.not_before:  # Cluster API begins only after that time, and would look again minutes later
            return TooEarly(renewal.not_before + timedelta(seconds=1))
        machines = control_plane.machines
        if machines.names and not machines.created_before(renewal.not_before):  # an upgrade replaced them, too
            return UnderWay()
        for after in _rollout_times(control_plane):
            if not isinstance(after, NotSet) and after >= renewal.not_before:
                return UnderWay() if after <= now else Withheld(_scheduled(after))
        try:
            await self._request(control_plane, renewal.not_before)
        except Forbidden:
            return ByHand(rollout_command(control_plane, renewal, self._clusters))
        return Requested()

    def proof(self, control_plane: ControlPlane, renewal: Renewal) -> RenewalProof:
        """See :class:`ServersActuator`."""
        return machines_replaced(control_plane, renewal)

    async def _request(self, control_plane: ControlPlane, after: datetime) -> None:
        cluster, kubeadm = control_plane.cluster, control_plane.kubeadm
        if isinstance(cluster.topology, ClusterTopology):
            patch = _versioned(_topology_patch(after), cluster.resource_version)
            path = self._clusters.object(cluster.key.name, cluster.key.namespace)
            answer = rotated_cluster(await self._client.patch(path, patch))
            if isinstance(answer.topology, ClusterTopology) and answer.topology.rollout_after == after:
                return
            # Cluster API before v1.13 drops the field. It leaves fields of the KubeadmControlPlane alone that it does
            # not set.
        patch = _versioned(_kubeadm_patch(kubeadm, after), kubeadm.resource_version)
        await self._client.patch(RESOURCES[kubeadm.version].object(kubeadm.name, kubeadm.namespace), patch)


class ByOperator:
    """Writes nothing: a person, or what owns the KubeadmControlPlane, starts the rollout."""

    def __init__(self, clusters: Resource) -> None:
        """``clusters`` is :attr:`~signer.store.cluster_api.ClusterAPIVersion.clusters`."""
        self._clusters = clusters

    async def renew(self, control_plane: ControlPlane, renewal: Renewal) -> Progress:
        """See :class:`ServersActuator`."""
        if isinstance(machines_replaced(control_plane, renewal), Renewed):
            return UnderWay()
        return ByHand(rollout_command(control_plane, renewal, self._clusters))

    def proof(self, control_plane: ControlPlane, renewal: Renewal) -> RenewalProof:
        """See :class:`ServersActuator`."""
        return machines_replaced(control_plane, renewal)


def rollout_command(control_plane: ControlPlane, renewal: Renewal, clusters: Resource) -> str:
    """What a person runs to replace the machines."""
    cluster, kubeadm, after = control_plane.cluster, control_plane.kubeadm, renewal.not_before
    own = _command(RESOURCES[kubeadm.version], kubeadm.namespace, kubeadm.name, _kubeadm_patch(kubeadm, after))
    if isinstance(cluster.topology, NoClusterClass):
        return f"After {format_time(after)}, run this, or write it where the KubeadmControlPlane is kept:\n{own}"
    of_cluster = _command(clusters, cluster.key.namespace, cluster.key.name, _topology_patch(after))
    return (
        f"After {format_time(after)}, run this, or write it where the Cluster is kept:\n{of_cluster}\n"
        f"Cluster API before v1.13 drops that field without an error; there, run:\n{own}"
    )


def _withheld(control_plane: ControlPlane) -> str:
    """Why nothing may be written now; empty if it may."""
    cluster, kubeadm = control_plane.cluster, control_plane.kubeadm
    if cluster.deleting or kubeadm.deleting:
        return "the Cluster or its control plane is being deleted"
    if cluster.paused or kubeadm.paused:
        return f"the Cluster or {kubeadm} is paused: nothing would replace its machines"
    return ""


def _rollout_times(control_plane: ControlPlane) -> tuple[RolloutTime, ...]:
    topology = control_plane.cluster.topology
    own = (control_plane.kubeadm.rollout_after,)
    return (topology.rollout_after, *own) if isinstance(topology, ClusterTopology) else own


def _scheduled(after: datetime) -> str:
    return (
        f"a rollout is set for {format_time(after)} and will replace the machines then: set it to an earlier time to "
        "have it now"
    )


def _topology_patch(after: datetime) -> JsonObject:
    return {"spec": {"topology": {"controlPlane": {"rollout": {"after": format_time(after)}}}}}


def _kubeadm_patch(kubeadm: KubeadmControlPlane, after: datetime) -> JsonObject:
    if kubeadm.version is Version.V1BETA1:
        return {"spec": {"rolloutAfter": format_time(after)}}
    return {"spec": {"rollout": {"after": format_time(after)}}}


def _versioned(patch: JsonObject, resource_version: str) -> JsonObject:
    """The patch, which fails with Conflict if the object has changed since it was read."""
    return {"metadata": {"resourceVersion": resource_version}, **patch}


def _command(resource: Resource, namespace: str, name: str, patch: JsonObject) -> str:
    kind = f"{resource.plural}.{resource.version}.{resource.group}"
    text = json.dumps(patch, separators=(",", ":"))
    return shlex.join(("kubectl", "patch", kind, name, "--namespace", namespace, "--type", "merge", "--patch", text))
