"""Small views of Cluster API objects: Clusters and Machines, in v1beta1 and v1beta2 alike.

They hold what decisions need and nothing else, so that the rest of the controller knows neither version. Source of the
fields: Cluster API v1.14 ``api/core/v1beta1`` and ``api/core/v1beta2``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, Final

CLUSTER_NAME_LABEL: Final = "cluster.x-k8s.io/cluster-name"
CONTROL_PLANE_LABEL: Final = "cluster.x-k8s.io/control-plane"
PAUSED_ANNOTATION: Final = "cluster.x-k8s.io/paused"

# v1beta2's condition, then v1beta1's.
_BOOTSTRAP_CONDITIONS: Final = ("BootstrapConfigReady", "BootstrapReady")


@dataclass(frozen=True, slots=True)
class ClusterKey:
    """Which Cluster: namespace and name in the management cluster."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What decisions need of a Cluster."""

    key: ClusterKey
    uid: str
    paused: bool
    deleting: bool
    control_plane_host: str
    """Host of ``spec.controlPlaneEndpoint``; empty while unknown."""
    service_networks: tuple[IPv4Network | IPv6Network, ...]


@dataclass(frozen=True, slots=True)
class MachineAddress:
    """One entry of ``status.addresses``."""

    type: str
    address: str


@dataclass(frozen=True, slots=True)
class MachineView:
    """What decisions need of a Machine."""

    cluster: ClusterKey
    kind: str
    name: str
    uid: str
    provider_id: str
    """Empty while the infrastructure provider has not set it."""
    addresses: tuple[MachineAddress, ...]
    infrastructure_name: str
    node_ref: str
    """Empty until a Node has registered."""
    bootstrap_ready: bool
    paused: bool
    deleting: bool

    def __str__(self) -> str:
        return f"{self.kind} {self.cluster.namespace}/{self.name}"


def cluster_view(manifest: Mapping[str, Any]) -> ClusterView:
    """Read a Cluster of either version."""
    metadata, spec = _mapping(manifest, "metadata"), _mapping(manifest, "spec")
    endpoint = _mapping(spec, "controlPlaneEndpoint")
    services = _items(_mapping(_mapping(spec, "clusterNetwork"), "services"), "cidrBlocks")
    return ClusterView(
        key=ClusterKey(_text(metadata, "namespace"), _text(metadata, "name")),
        uid=_text(metadata, "uid"),
        paused=_is_paused(manifest),
        deleting=metadata.get("deletionTimestamp") is not None,
        control_plane_host=_text(endpoint, "host"),
        service_networks=tuple(_networks(services)),
    )


def machine_view(manifest: Mapping[str, Any]) -> MachineView:
    """Read a Machine of either version."""
    metadata, spec, status = (_mapping(manifest, key) for key in ("metadata", "spec", "status"))
    return MachineView(
        cluster=ClusterKey(_text(metadata, "namespace"), _text(spec, "clusterName")),
        kind="Machine",
        name=_text(metadata, "name"),
        uid=_text(metadata, "uid"),
        provider_id=_text(spec, "providerID"),
        addresses=tuple(
            MachineAddress(_text(address, "type"), _text(address, "address"))
            for address in _items(status, "addresses")
            if isinstance(address, Mapping)
        ),
        infrastructure_name=_text(_mapping(spec, "infrastructureRef"), "name"),
        node_ref=_text(_mapping(status, "nodeRef"), "name"),
        bootstrap_ready=_bootstrap_is_ready(status),
        paused=_is_paused(manifest),
        deleting=metadata.get("deletionTimestamp") is not None,
    )


def _bootstrap_is_ready(status: Mapping[str, Any]) -> bool:
    conditions = {
        _text(condition, "type"): _text(condition, "status")
        for condition in _items(status, "conditions")
        if isinstance(condition, Mapping)
    }
    for name in _BOOTSTRAP_CONDITIONS:
        if name in conditions:
            return conditions[name] == "True"
    # Neither condition yet, or lost in `clusterctl move`: the boolean that each version keeps beside it.
    initialization = _mapping(status, "initialization")
    return initialization.get("bootstrapDataSecretCreated") is True or status.get("bootstrapReady") is True


def _is_paused(manifest: Mapping[str, Any]) -> bool:
    """``spec.paused``, or the annotation with any value (``util/annotations/helpers.go``)."""
    annotations = _mapping(_mapping(manifest, "metadata"), "annotations")
    return _mapping(manifest, "spec").get("paused") is True or PAUSED_ANNOTATION in annotations


def _networks(blocks: list[Any]) -> list[IPv4Network | IPv6Network]:
    networks: list[IPv4Network | IPv6Network] = []
    for block in blocks:
        try:
            networks.append(ip_network(str(block), strict=False))
        except ValueError:
            continue  # Cluster API's own webhook refuses it; without one there is nothing to protect by it
    return networks


def _items(parent: Mapping[str, Any], key: str) -> list[Any]:
    value = parent.get(key)
    return value if isinstance(value, list) else []


def _mapping(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = parent.get(key)
    return value if isinstance(value, Mapping) else {}


def _text(parent: Mapping[str, Any], key: str) -> str:
    value = parent.get(key)
    return value if isinstance(value, str) else ""
