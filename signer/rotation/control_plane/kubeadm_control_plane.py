"""A KubeadmControlPlane and its Cluster, as far as a rollout depends on them.

Source of the fields: Cluster API ae7ff04 ``api/controlplane/kubeadm/v1beta1``, ``v1beta2``, ``api/core/v1beta2``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from signer.model.cluster import ClusterKey, is_paused
from signer.model.fields import items_of, mapping_of, parse_time, required_text, short_text_of, text_of
from signer.rotation.control_plane.kind import (
    ControlPlaneReference,
    NoControlPlaneReference,
    control_plane_reference,
)
from signer.rotation.control_plane.template import NotSet, kubernetes_version

_ROLLING_OUT: Final = "RollingOut"
_MOST_CONDITIONS: Final = 64
_MAXIMUM_NAME_CHARACTERS: Final = 253


class InvalidControlPlane(ValueError):
    """The object lacks what every object of its kind has, or a field has another type; the message quotes no values."""


RolloutTime: TypeAlias = datetime | NotSet
"""Machines that were created earlier are replaced, once that time has come."""


class Version(enum.Enum):
    """The API version in which a KubeadmControlPlane was read."""

    V1BETA1 = "v1beta1"
    V1BETA2 = "v1beta2"


class Rollout(enum.Enum):
    """What the provider says in condition ``RollingOut``."""

    RUNNING = "running"
    """Also a condition that is ``Unknown``."""
    NOT_RUNNING = "not running"
    NOT_REPORTED = "not reported"
    """Cluster API before v1.9 has no such condition."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """Numbers of control plane machines; -1 if the provider reports none."""

    desired: int
    existing: int
    ready: int
    up_to_date: int

    @property
    def settled(self) -> bool:
        """Whether all wanted machines exist, are ready and up to date, and there are no others."""
        return self.desired > 0 and {self.existing, self.ready, self.up_to_date} == {self.desired}

    def __str__(self) -> str:
        return f"{self.existing} of {self.desired} machines exist, {self.ready} ready, {self.up_to_date} up to date"


@dataclass(frozen=True, slots=True)
class KubeadmControlPlane:
    """A KubeadmControlPlane of either version."""

    version: Version
    namespace: str
    name: str
    resource_version: str
    paused: bool
    deleting: bool
    observed: bool
    """Whether the status is about the current spec."""
    rollout_after: RolloutTime
    rollout: Rollout
    replicas: Replicas
    kubernetes_version: tuple[int, int]
    """Major and minor version that its machines are to have; zeros if unknown."""
    manifest: Mapping[str, Any]
    """The object, for :func:`~signer.rotation.control_plane.template.control_plane_template`. It may hold secrets."""

    def __str__(self) -> str:
        return f"KubeadmControlPlane {self.namespace}/{self.name}"

    def __repr__(self) -> str:
        return f"<{self}>"


@dataclass(frozen=True, slots=True)
class NoClusterClass:
    """The Cluster has no ``spec.topology``: its objects are its owner's."""


@dataclass(frozen=True, slots=True)
class ClusterTopology:
    """``spec.topology``: Cluster API writes the KubeadmControlPlane from a ClusterClass."""

    cluster_class: str
    rollout_after: RolloutTime


@dataclass(frozen=True, slots=True)
class RotatedCluster:
    """The Cluster, as far as a rollout of its control plane depends on it."""

    key: ClusterKey
    resource_version: str
    paused: bool
    deleting: bool
    control_plane: ControlPlaneReference | NoControlPlaneReference
    topology: ClusterTopology | NoClusterClass


def rotated_cluster(manifest: Mapping[str, Any]) -> RotatedCluster:
    """Read a Cluster of either version.

    Raises:
        InvalidControlPlane: see there.
    """
    metadata, topology = _metadata(manifest), mapping_of(mapping_of(manifest, "spec"), "topology")
    return RotatedCluster(
        key=ClusterKey(metadata.namespace, metadata.name),
        resource_version=metadata.resource_version,
        paused=is_paused(manifest),
        deleting=metadata.deleting,
        control_plane=control_plane_reference(manifest),
        topology=_topology(topology) if topology else NoClusterClass(),
    )


def kubeadm_control_plane(manifest: Mapping[str, Any], version: Version) -> KubeadmControlPlane:
    """Read a KubeadmControlPlane.

    Raises:
        InvalidControlPlane: see there.
    """
    metadata, spec, status = _metadata(manifest), mapping_of(manifest, "spec"), mapping_of(manifest, "status")
    older = version is Version.V1BETA1
    after = spec.get("rolloutAfter") if older else mapping_of(spec, "rollout").get("after")
    return KubeadmControlPlane(
        version=version,
        namespace=metadata.namespace,
        name=metadata.name,
        resource_version=metadata.resource_version,
        paused=is_paused(manifest),
        deleting=metadata.deleting,
        observed=_count(status, "observedGeneration") >= metadata.generation > 0,
        rollout_after=_rollout_time(after),
        rollout=_rollout(mapping_of(status, "v1beta2") if older else status),
        replicas=Replicas(
            desired=_count(spec, "replicas"),
            existing=_count(status, "replicas"),
            ready=_count(status, "readyReplicas"),
            up_to_date=_count(status, "updatedReplicas" if older else "upToDateReplicas"),
        ),
        kubernetes_version=kubernetes_version(spec),
        manifest=manifest,
    )


@dataclass(frozen=True, slots=True)
class _Metadata:
    namespace: str
    name: str
    resource_version: str
    generation: int
    deleting: bool


def _metadata(manifest: Mapping[str, Any]) -> _Metadata:
    metadata = mapping_of(manifest, "metadata")
    try:
        namespace, name, version = (required_text(metadata, key) for key in ("namespace", "name", "resourceVersion"))
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidControlPlane("its metadata lacks a namespace, name or resourceVersion") from error
    if max(map(len, (namespace, name, version))) > _MAXIMUM_NAME_CHARACTERS:
        raise InvalidControlPlane("its metadata has a name that is longer than names are")
    return _Metadata(
        namespace, name, version, _count(metadata, "generation"), metadata.get("deletionTimestamp") is not None
    )


def _topology(topology: Mapping[str, Any]) -> ClusterTopology:
    """``classRef.name`` in v1beta2, ``class`` in v1beta1."""
    name = short_text_of(mapping_of(topology, "classRef"), "name") or short_text_of(topology, "class")
    rollout = mapping_of(mapping_of(topology, "controlPlane"), "rollout")
    return ClusterTopology(name, _rollout_time(rollout.get("after")))


def _rollout_time(value: Any) -> RolloutTime:
    if value is None:
        return NotSet()
    try:
        return parse_time(value if isinstance(value, str) else "")
    except ValueError as error:
        raise InvalidControlPlane("the time of its rollout is no time") from error


def _rollout(holder: Mapping[str, Any]) -> Rollout:
    for condition in items_of(holder, "conditions")[:_MOST_CONDITIONS]:
        if isinstance(condition, Mapping) and text_of(condition, "type") == _ROLLING_OUT:
            return Rollout.NOT_RUNNING if text_of(condition, "status") == "False" else Rollout.RUNNING
    return Rollout.NOT_REPORTED


def _count(parent: Mapping[str, Any], key: str) -> int:
    value = parent.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else -1
