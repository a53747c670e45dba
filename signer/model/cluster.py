"""Small views of Clusters and Machines, for Cluster API v1beta1 and v1beta2 alike.

A view holds only the fields that decisions need, so the rest of the controller is independent of the version. Source of
the fields: Cluster API v1.14 ``api/core/v1beta1`` and ``api/core/v1beta2``. :mod:`signer.model.machine_pool` has the
view of MachinePools.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from ipaddress import IPv4Network, IPv6Network
from itertools import islice
from typing import Any, Final

from attestors.wire.names import ANNOTATION_PREFIX
from signer.model.addresses import Reading, UnreadableAddress, read_address, split_addresses
from signer.model.fields import items_of, mapping_of, parse_time, shared_text, short_text_of, text_of
from signer.model.service_networks import network_of

CLUSTER_NAME_LABEL: Final = "cluster.x-k8s.io/cluster-name"
CONTROL_PLANE_LABEL: Final = "cluster.x-k8s.io/control-plane"
MACHINE_DEPLOYMENT_LABEL: Final = "cluster.x-k8s.io/deployment-name"
WATCH_FILTER_LABEL: Final = "cluster.x-k8s.io/watch-filter"
PAUSED_ANNOTATION: Final = "cluster.x-k8s.io/paused"
DELETE_FOR_MOVE_ANNOTATION: Final = "clusterctl.cluster.x-k8s.io/delete-for-move"
"""``clusterctl move`` sets it on the source's objects, which it deletes after it created them at the target."""

MACHINE_KIND: Final = "Machine"
MACHINE_POOL_KIND: Final = "MachinePool"

LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)

DEFAULT_SERVICE_DOMAIN: Final = "cluster.local"
"""kubeadm's default for a Cluster that sets none (``cmd/kubeadm/app/apis/kubeadm/v1beta4/defaults.go``)."""

MAXIMUM_PROVIDER_ID_CHARACTERS: Final = 512
_MAXIMUM_HOST_CHARACTERS: Final = 512
_MAXIMUM_ADDRESSES: Final = 256
_MAXIMUM_ADDRESS_TYPE_CHARACTERS: Final = 64
_MAXIMUM_SHOWN_CHARACTERS: Final = 64
_MAXIMUM_GATES: Final = 32
_MAXIMUM_CONDITION_TYPE_CHARACTERS: Final = 316
_MAXIMUM_NETWORKS: Final = 64
_MAXIMUM_ANNOTATIONS: Final = 8
_MAXIMUM_ANNOTATION_CHARACTERS: Final = 2048
"""The limits of v1beta2's schema, and our own for fields without one. Values beyond them are not read."""

_CLUSTER_API_GROUP_PREFIX: Final = "cluster.x-k8s.io/"

# v1beta2's condition, then v1beta1's, in the field where each version has its own conditions.
_BOOTSTRAP_CONDITIONS: Final = ("BootstrapConfigReady", "BootstrapReady")
# The field in which each version has the other's conditions: v1beta1, then v1beta2.
_OTHER_VERSIONS_CONDITIONS: Final = (("v1beta2",), ("deprecated", "v1beta1"))

_DNS_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?", re.ASCII)
_KIND: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ClusterKey:
    """A Cluster's namespace and name in the management cluster."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class InfrastructureReference:
    """``spec.infrastructureRef``: the InfraCluster or InfraMachine, which is in the Cluster's own namespace."""

    api_group: str
    version: str
    """Empty in v1beta2, whose references have none."""
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class NoInfrastructure:
    """The reference is missing or malformed, or a Machine's reference names another namespace."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The fields of a Cluster that decisions need."""

    key: ClusterKey
    uid: str
    paused: bool
    deleting: bool
    control_plane_host: str
    """Host of ``spec.controlPlaneEndpoint``; empty while unknown."""
    service_networks: tuple[IPv4Network | IPv6Network, ...]
    """``spec.clusterNetwork.services``; empty if the Cluster states none (:mod:`signer.model.service_networks`)."""
    service_domain: str = DEFAULT_SERVICE_DOMAIN
    """Domain of the cluster's Services, lower case, without a root dot."""
    deleting_for_move: bool = False
    """``clusterctl move`` deletes it here. It continues in another management cluster."""
    infrastructure: InfrastructureReference | NoInfrastructure = NoInfrastructure()
    """The InfraCluster, on which the controller publishes the signer names for the infrastructure provider."""
    created: datetime = LONG_AGO
    """Creation time of this object, which ``clusterctl move`` recreates; :data:`LONG_AGO` if unknown."""
    watch_filter: str = ""
    """Value of label ``WATCH_FILTER_LABEL``; empty without it."""
    control_plane_kind: str = ""
    """Kind of ``spec.controlPlaneRef``; empty without one."""


@dataclass(frozen=True, slots=True)
class WatchFilter:
    """The Clusters that a controller serves: Cluster API's ``--watch-filter`` (``util/predicates``)."""

    value: str
    """The required value of label ``WATCH_FILTER_LABEL``; empty: every Cluster, labelled or not."""

    def selects(self, cluster: ClusterView) -> bool:
        """Whether the controller serves that Cluster, by its label."""
        return not self.value or cluster.watch_filter == self.value


EVERY_CLUSTER: Final = WatchFilter("")


class _Read:
    """Holds what is computed from the fields of a :class:`MachineAddress`: no field, so no part of an audit line."""

    __slots__ = ("reading",)

    reading: Reading
    """The address, read once."""


@dataclass(frozen=True, slots=True)
class MachineAddress(_Read):
    """One address of ``status.addresses``."""

    type: str
    address: str
    """As the provider wrote it; one item of a list."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reading", read_address(self.address, self.type))


@dataclass(frozen=True, slots=True)
class MachineView:
    """The fields of a Machine, or of an instance of a MachinePool, that decisions need.

    An *instance* is one entry of a MachinePool's ``spec.providerIDList``. Its kind is ``MachinePool`` and its name the
    pool's. It has no addresses, no infrastructure machine and no nodeRef of its own.
    """

    cluster: ClusterKey
    kind: str
    name: str
    uid: str
    provider_id: str
    """``spec.providerID``; empty while the infrastructure provider has not set it."""
    addresses: tuple[MachineAddress, ...]
    infrastructure_name: str
    node_ref: str
    """Empty until a Node has registered."""
    bootstrap_ready: bool
    paused: bool
    deleting: bool
    owner_pool: str = ""
    """The MachinePool that owns this Machine; empty for a Machine of no pool or of several, and for an instance."""
    of_a_pool: bool = False
    """Whether any MachinePool is among the Machine's owners."""
    control_plane: bool = False
    readiness_gates: frozenset[str] = frozenset()
    """Condition types that the Machine's readiness depends on."""
    annotations: tuple[tuple[str, str], ...] = ()
    """The annotations for attestors, sorted by key."""
    infrastructure: InfrastructureReference | NoInfrastructure = NoInfrastructure()
    """The InfraMachine."""
    provider_id_is_unreadable: bool = False
    """``spec.providerID`` is set, and longer than provider IDs are. ``provider_id`` is then empty."""
    claimed_provider_id: str = ""
    """The provider ID that a request or a record claims for a Machine that shows none; never read from the Machine."""
    created: datetime = LONG_AGO
    """Creation time of the object; :data:`LONG_AGO` if unknown, and for an instance."""
    deployment: str = ""
    """The MachineDeployment that the Machine belongs to, by its label; empty without one."""

    def claiming(self, provider_id: str) -> MachineView:
        """This Machine with a claimed provider ID; unchanged if the Machine shows a provider ID itself."""
        return self if self.provider_id or not provider_id else replace(self, claimed_provider_id=provider_id)

    def __str__(self) -> str:
        return machine_text(self.cluster, self.kind, self.name, self.provider_id)

    @property
    def readable_addresses(self) -> tuple[MachineAddress, ...]:
        """The addresses that have a reading."""
        return tuple(one for one in self.addresses if not isinstance(one.reading, UnreadableAddress))

    @property
    def unreadable_addresses(self) -> tuple[str, ...]:
        """For each address without a reading, its text and what is wrong with it."""
        return tuple(
            f"{one.type} {one.address[:_MAXIMUM_SHOWN_CHARACTERS]!a} {one.reading.why}"
            for one in self.addresses
            if isinstance(one.reading, UnreadableAddress)
        )


def machine_text(cluster: ClusterKey, kind: str, name: str, provider_id: str) -> str:
    """The name of a Machine, or of an instance of a MachinePool, in messages."""
    text = f"{kind} {cluster.namespace}/{name}"
    return f"instance {provider_id} of {text}" if kind == MACHINE_POOL_KIND else text


def cluster_view(manifest: Mapping[str, Any]) -> ClusterView:
    """Read a Cluster of either version."""
    metadata, spec = mapping_of(manifest, "metadata"), mapping_of(manifest, "spec")
    endpoint = mapping_of(spec, "controlPlaneEndpoint")
    network = mapping_of(spec, "clusterNetwork")
    services = items_of(mapping_of(network, "services"), "cidrBlocks")
    return ClusterView(
        key=ClusterKey(text_of(metadata, "namespace"), text_of(metadata, "name")),
        uid=text_of(metadata, "uid"),
        paused=is_paused(manifest),
        deleting=metadata.get("deletionTimestamp") is not None,
        control_plane_host=short_text_of(endpoint, "host", _MAXIMUM_HOST_CHARACTERS),
        service_networks=tuple(_networks(services[:_MAXIMUM_NETWORKS])),
        service_domain=short_text_of(network, "serviceDomain").lower().removesuffix(".") or DEFAULT_SERVICE_DOMAIN,
        deleting_for_move=DELETE_FOR_MOVE_ANNOTATION in mapping_of(metadata, "annotations"),
        infrastructure=_infrastructure(mapping_of(spec, "infrastructureRef")),
        created=_created(metadata),
        watch_filter=short_text_of(mapping_of(metadata, "labels"), WATCH_FILTER_LABEL),
        control_plane_kind=short_text_of(mapping_of(spec, "controlPlaneRef"), "kind"),
    )


def machine_view(manifest: Mapping[str, Any]) -> MachineView:
    """Read a Machine of either version."""
    metadata, spec, status = (mapping_of(manifest, key) for key in ("metadata", "spec", "status"))
    pools = _owner_pools(metadata)
    provider_id = short_text_of(spec, "providerID", MAXIMUM_PROVIDER_ID_CHARACTERS)
    return MachineView(
        cluster=ClusterKey(text_of(metadata, "namespace"), short_text_of(spec, "clusterName")),
        kind=MACHINE_KIND,
        name=text_of(metadata, "name"),
        uid=text_of(metadata, "uid"),
        provider_id=provider_id,
        addresses=_addresses(status),
        infrastructure_name=short_text_of(mapping_of(spec, "infrastructureRef"), "name"),
        node_ref=short_text_of(mapping_of(status, "nodeRef"), "name"),
        bootstrap_ready=bootstrap_is_ready(status),
        paused=is_paused(manifest),
        deleting=metadata.get("deletionTimestamp") is not None,
        owner_pool=next(iter(pools)) if len(pools) == 1 else "",
        of_a_pool=bool(pools),
        control_plane=CONTROL_PLANE_LABEL in mapping_of(metadata, "labels"),
        readiness_gates=frozenset(
            short_text_of(gate, "conditionType", _MAXIMUM_CONDITION_TYPE_CHARACTERS)
            for gate in items_of(spec, "readinessGates")[:_MAXIMUM_GATES]
            if isinstance(gate, Mapping) and short_text_of(gate, "conditionType", _MAXIMUM_CONDITION_TYPE_CHARACTERS)
        ),
        annotations=attestor_annotations(metadata),
        infrastructure=_infrastructure_of_machine(
            mapping_of(spec, "infrastructureRef"), text_of(metadata, "namespace")
        ),
        provider_id_is_unreadable=bool(spec.get("providerID")) and not provider_id,
        created=_created(metadata),
        deployment=shared_text(short_text_of(mapping_of(metadata, "labels"), MACHINE_DEPLOYMENT_LABEL)),
    )


def attestor_annotations(metadata: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The annotations for attestors (by their prefix), sorted by key.

    They are limited in number and length, because the cache of 100,000 Machines holds them in memory. One that is too
    long is kept as an empty string: a faulty annotation must not look like a missing one.
    """
    annotations = mapping_of(metadata, "annotations")
    ours = sorted(key for key in annotations if key.startswith(f"{ANNOTATION_PREFIX}/"))
    found = [(key, short_text_of(annotations, key, _MAXIMUM_ANNOTATION_CHARACTERS)) for key in ours]
    usable_first = sorted(found, key=lambda one: not one[1])
    return tuple(sorted(usable_first[:_MAXIMUM_ANNOTATIONS]))


def _created(metadata: Mapping[str, Any]) -> datetime:
    try:
        return parse_time(text_of(metadata, "creationTimestamp"))
    except ValueError:
        return LONG_AGO  # no API server writes such a time


def _owner_pools(metadata: Mapping[str, Any]) -> set[str]:
    """Names of the MachinePools that own the object."""
    return {
        short_text_of(owner, "name")
        for owner in items_of(metadata, "ownerReferences")
        if isinstance(owner, Mapping)
        and text_of(owner, "kind") == MACHINE_POOL_KIND
        and text_of(owner, "apiVersion").startswith(_CLUSTER_API_GROUP_PREFIX)
    }


def _infrastructure(reference: Mapping[str, Any]) -> InfrastructureReference | NoInfrastructure:
    """Read a reference: ``{apiGroup, kind, name}`` in v1beta2, an ObjectReference in v1beta1.

    Both are to the Cluster's own namespace.
    """
    group, version = text_of(reference, "apiGroup"), ""
    if not group:
        group, _, version = text_of(reference, "apiVersion").rpartition("/")
    kind, name = text_of(reference, "kind"), text_of(reference, "name")
    if not (_DNS_NAME.fullmatch(group) and _KIND.fullmatch(kind) and _DNS_NAME.fullmatch(name)):
        return NoInfrastructure()
    if version and not _KIND.fullmatch(version):
        return NoInfrastructure()
    # There are few different values, and as many references as Machines.
    return InfrastructureReference(shared_text(group), shared_text(version), shared_text(kind), name)


def _infrastructure_of_machine(
    reference: Mapping[str, Any], namespace: str
) -> InfrastructureReference | NoInfrastructure:
    """A v1beta1 reference may have a namespace. Cluster API's webhook refuses another namespace, as does this."""
    if (reference.get("namespace") or namespace) != namespace:
        return NoInfrastructure()
    return _infrastructure(reference)


def bootstrap_is_ready(status: Mapping[str, Any]) -> bool:
    """Whether a Machine or MachinePool of either version has its bootstrap data; False without a status.

    A condition takes precedence over the boolean field, which Cluster API never resets.
    """
    for holder in (status, *(_nested(status, path) for path in _OTHER_VERSIONS_CONDITIONS)):
        conditions = {
            text_of(condition, "type"): text_of(condition, "status")
            for condition in items_of(holder, "conditions")
            if isinstance(condition, Mapping)
        }
        for name in _BOOTSTRAP_CONDITIONS:
            if name in conditions:
                return conditions[name] == "True"
    initialization = mapping_of(status, "initialization")
    return initialization.get("bootstrapDataSecretCreated") is True or status.get("bootstrapReady") is True


def is_paused(manifest: Mapping[str, Any]) -> bool:
    """``spec.paused``, or the annotation with any value (``util/annotations/helpers.go``)."""
    annotations = mapping_of(mapping_of(manifest, "metadata"), "annotations")
    return mapping_of(manifest, "spec").get("paused") is True or PAUSED_ANNOTATION in annotations


def _networks(blocks: list[Any]) -> list[IPv4Network | IPv6Network]:
    networks: list[IPv4Network | IPv6Network] = []
    for block in blocks:
        try:
            networks.append(network_of(str(block), strict=False))
        except ValueError:
            continue  # Cluster API's webhook refuses it; it names no addresses that need protection
    return networks


def _nested(parent: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    for key in path:
        parent = mapping_of(parent, key)
    return parent


def _addresses(status: Mapping[str, Any]) -> tuple[MachineAddress, ...]:
    """Every address, unreadable ones included."""
    found = (
        MachineAddress(shared_text(short_text_of(address, "type", _MAXIMUM_ADDRESS_TYPE_CHARACTERS)), text)
        for address in items_of(status, "addresses")[:_MAXIMUM_ADDRESSES]
        if isinstance(address, Mapping) and isinstance(address.get("address"), str)
        for text in split_addresses(address["address"])
    )
    return tuple(islice(found, _MAXIMUM_ADDRESSES))
