"""A small view of a MachinePool and its instances, for Cluster API v1beta1 and v1beta2 alike.

Source of the fields: Cluster API v1.14 ``api/core/v1beta1/machinepool_types.go`` and its v1beta2. The infrastructure
provider fills ``spec.providerIDList`` by polling its cloud, so an instance may post a request before it is listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from signer.model.cluster import (
    MACHINE_POOL_KIND,
    MAXIMUM_PROVIDER_ID_CHARACTERS,
    ClusterKey,
    MachineView,
    bootstrap_is_ready,
    is_paused,
)
from signer.model.fields import items_of, mapping_of, text_of

MAXIMUM_PROVIDER_IDS: Final = 10_000
"""The limit of Cluster API's own schema. Entries beyond it are not read."""


@dataclass(frozen=True, slots=True)
class MachinePoolView:
    """The fields of a MachinePool that decisions need."""

    cluster: ClusterKey
    name: str
    uid: str
    provider_ids: frozenset[str]
    bootstrap_ready: bool
    paused: bool
    deleting: bool
    replicas: int = 0
    """Number of instances, actual or desired, whichever is more; their provider IDs need not be known."""

    def __str__(self) -> str:
        return f"{MACHINE_POOL_KIND} {self.cluster.namespace}/{self.name}"

    def unlisted(self) -> MachineView:
        """A placeholder for the instances that are not listed. No identity can be attested for it."""
        return self._instance("")

    def instance(self, provider_id: str) -> MachineView:
        """The instance with that provider ID.

        Raises:
            KeyError: the pool does not list it.
        """
        if provider_id not in self.provider_ids:
            raise KeyError(provider_id)
        return self._instance(provider_id)

    def _instance(self, provider_id: str) -> MachineView:
        return MachineView(
            cluster=self.cluster,
            kind=MACHINE_POOL_KIND,
            name=self.name,
            uid=self.uid,
            provider_id=provider_id,
            addresses=(),
            infrastructure_name="",
            node_ref="",
            bootstrap_ready=self.bootstrap_ready,
            paused=self.paused,
            deleting=self.deleting,
        )


def machine_pool_view(manifest: Mapping[str, Any]) -> MachinePoolView:
    """Read a MachinePool of either version."""
    metadata, spec, status = (mapping_of(manifest, key) for key in ("metadata", "spec", "status"))
    return MachinePoolView(
        cluster=ClusterKey(text_of(metadata, "namespace"), text_of(spec, "clusterName")),
        name=text_of(metadata, "name"),
        uid=text_of(metadata, "uid"),
        provider_ids=frozenset(
            provider_id
            for provider_id in items_of(spec, "providerIDList")[:MAXIMUM_PROVIDER_IDS]
            if isinstance(provider_id, str) and 0 < len(provider_id) <= MAXIMUM_PROVIDER_ID_CHARACTERS
        ),
        bootstrap_ready=bootstrap_is_ready(status),
        paused=is_paused(manifest),
        deleting=metadata.get("deletionTimestamp") is not None,
        replicas=max(_count(spec, 1), _count(status, 0)),
    )


def _count(parent: Mapping[str, Any], default: int) -> int:
    value = parent.get("replicas")
    return value if isinstance(value, int) and not isinstance(value, bool) else default
