"""Reads what may open other ways into a cluster's nodes: KubeadmConfigs and InfraMachines, by one list of each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from signer.kube.calls import Get, List
from signer.kube.discovery import first_served
from signer.kube.errors import ApiError, Forbidden, NotFound, ResourceNotServed
from signer.kube.resources import KUBEADM_CONFIGS_V1BETA1, KUBEADM_CONFIGS_V1BETA2, Resource
from signer.model.cluster import CLUSTER_NAME_LABEL, ClusterKey, InfrastructureReference, MachineView
from signer.model.decision import printable
from signer.model.fields import mapping_of, text_of
from signer.ssh.ways_in import (
    KUBEADM_CONFIG,
    Way,
    WaysIn,
    knows_fields_of,
    ways_of_bootstrap_config,
    ways_of_infrastructure,
)
from signer.store.infrastructure_definition import (
    INFRASTRUCTURE_GROUP,
    OtherDefinition,
    definition_path,
    served_versions,
)

MAXIMUM_KINDS: Final = 8
"""Kinds of InfraMachines of one Cluster."""
MAXIMUM_OBJECTS: Final = 20_000
_PAGE_OBJECTS: Final = 100
_PAGE_BYTES: Final = 64 * 1024 * 1024


class ManagementCalls(Get, List, Protocol):
    """The calls to the management cluster."""


async def read_ways_in(client: ManagementCalls, key: ClusterKey, machines: Iterable[MachineView]) -> WaysIn:
    """What the management cluster shows of one Cluster. What cannot be read is in the result."""
    ways = WaysIn()
    await _read_bootstrap_configs(client, key, ways)
    references: dict[tuple[str, str, str], InfrastructureReference] = {}
    for machine in machines:
        if machine.cluster == key and isinstance(machine.infrastructure, InfrastructureReference):
            one = machine.infrastructure
            references.setdefault((one.api_group, one.version, one.kind), one)
    for reference in list(references.values())[:MAXIMUM_KINDS]:
        await _read_infrastructure(client, key, reference, ways)
    if len(references) > MAXIMUM_KINDS:
        ways.unknown(f"the Cluster has more than {MAXIMUM_KINDS} kinds of InfraMachines")
    return ways


async def _read_bootstrap_configs(client: ManagementCalls, key: ClusterKey, ways: WaysIn) -> None:
    try:
        resource = await first_served(client, KUBEADM_CONFIGS_V1BETA2, KUBEADM_CONFIGS_V1BETA1)
        count = await _read(client, key, resource, ways_of_bootstrap_config, ways)
    except ResourceNotServed:
        ways.unknown(f"there are no {KUBEADM_CONFIG}s; other bootstrap data is not read")
        return
    except ApiError as error:
        ways.unknown(_not_readable(KUBEADM_CONFIG, error))
        return
    if count == 0:
        ways.unknown(f"the Cluster has no {KUBEADM_CONFIG}; other bootstrap data is not read")


async def _read_infrastructure(
    client: ManagementCalls, key: ClusterKey, reference: InfrastructureReference, ways: WaysIn
) -> None:
    kind = printable(reference.kind)
    if reference.api_group != INFRASTRUCTURE_GROUP:
        ways.unknown(f"{kind} is not of {INFRASTRUCTURE_GROUP}")
        return

    def of_kind(manifest: Mapping[str, Any]) -> Iterator[Way]:
        return ways_of_infrastructure(reference.kind, manifest)

    try:
        versions = served_versions(await client.get(definition_path(reference)), reference)
        if isinstance(versions, OtherDefinition) or not versions:
            ways.unknown(f"no version of {kind} is served")
            return
        await _read(client, key, versions[0].resource, of_kind, ways)
    except (ApiError, ValueError) as error:
        ways.unknown(_not_readable(kind, error))
        return
    if not knows_fields_of(reference.kind):
        ways.unknown(f"of kind {kind}, only fields whose names speak of SSH keys are read")


async def _read(
    client: ManagementCalls,
    key: ClusterKey,
    resource: Resource,
    ways_of: Callable[[Mapping[str, Any]], Iterator[Way]],
    ways: WaysIn,
) -> int:
    """Read all objects with the Cluster's label; how many there were."""
    selected = {"labelSelector": f"{CLUSTER_NAME_LABEL}={key.name}"}
    pages = client.list_pages(
        resource.collection(key.namespace), selected, limit=_PAGE_OBJECTS, maximum_bytes=_PAGE_BYTES
    )
    count = 0
    async for page in pages:
        for item in page["items"]:
            count += 1
            if count > MAXIMUM_OBJECTS:
                ways.unknown(f"there are more than {MAXIMUM_OBJECTS} {resource.plural}")
                return count
            if isinstance(item, Mapping):
                ways.add(ways_of(item), text_of(mapping_of(item, "metadata"), "name"))
    return count


def _not_readable(kind: str, error: ApiError | ValueError) -> str:
    match error:
        case Forbidden():
            return f"{kind}s may not be listed, or the definition may not be read: a grant is missing"
        case NotFound():
            return f"the definition of {kind} does not exist"
        case _:
            return f"{kind}s cannot be read: {printable(str(error))}"


__all__ = ["MAXIMUM_KINDS", "ManagementCalls", "read_ways_in"]
