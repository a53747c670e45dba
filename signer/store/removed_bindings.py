"""What Enforce removed from workload clusters, kept so that it can be restored.

One ConfigMap in the controller's own namespace for each Cluster, with an entry for each lineage
(:mod:`signer.model.saved_bindings`). It is written before a binding is deleted, and a lineage is taken out after every
binding of it is back; so a crash at any point leaves each binding in the cluster, in the ConfigMap, or in both. What
was removed from a cluster of another lineage is left to a person, for the controller cannot know whether that was this
cluster.

Two controllers, or a call of ours that is still on its way after a crash, must not lose a binding between them:

- what is kept names each binding's UID and resourceVersion, so that keeping another one changes the ConfigMap, which is
  removed, or loses a lineage, only at the resourceVersion that was read before the bindings were put back;
- a binding that is still the very object that was to be deleted (UID and resourceVersion) is marked and unmarked once,
  so that a deletion under way, which names that resourceVersion, fails.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from signer.kube.calls import GetCreatePatch, Manage
from signer.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from signer.kube.resources import CONFIG_MAPS
from signer.model.auto_approval import ClusterIdentity, ClusterRoleBinding, shown
from signer.model.cluster import ClusterKey
from signer.model.decision import printable
from signer.model.fields import mapping_of, text_of
from signer.model.saved_bindings import (
    BindingsNotSaved,
    Lineage,
    OtherLineages,
    SavedBindings,
    lineage_field,
    parse_owner,
    parse_saved,
    saved_data,
    saved_name,
)
from signer.store.restore_binding import BindingNotRestored, GrantChanged, restore_binding

_LOG = logging.getLogger(__name__)

SAVED_LABEL: Final = "attestation.cluster.x-k8s.io/removed-grants"
"""On every ConfigMap of this module; its value is the namespace of the Cluster."""
MAXIMUM_CLUSTERS: Final = 10_000
MAXIMUM_CLUSTERS_OF_NAMESPACE: Final = 1_000
"""Tenants name Clusters as they like, and what is kept of one outlives it; so much of the controller's namespace may a
namespace of theirs fill."""
_ATTEMPTS: Final = 8


@dataclass(frozen=True, slots=True)
class NothingSaved:
    """Nothing was removed, or all of it is back."""


@dataclass(frozen=True, slots=True)
class NotRestored:
    """A binding that stays kept, because giving it back would be wrong or is not allowed."""

    name: str
    cause: str

    def __str__(self) -> str:
        return f"ClusterRoleBinding {shown(self.name)}: {self.cause}"


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of the kept bindings."""

    back: tuple[str, ...]
    not_restored: tuple[NotRestored, ...]
    others: OtherLineages | NothingSaved


class RemovedBindings:
    """The ConfigMaps with removed bindings, in the controller's own namespace."""

    def __init__(self, management: Manage, namespace: str) -> None:
        self._management = management
        self._namespace = namespace
        self._clusters_of: Counter[str] = Counter()
        """By namespace of the Clusters: ConfigMaps as they were last listed, and those made since."""

    async def kept(self, cluster: ClusterKey) -> SavedBindings | NothingSaved:
        """What is kept for that Cluster, of whatever lineage.

        Raises:
            BindingsNotSaved: it cannot be read.
        """
        try:
            manifest = await self._management.get(self._path(cluster))
        except NotFound:
            return NothingSaved()
        except ApiError as error:
            raise self._unavailable(cluster, error) from error
        try:
            return parse_saved(manifest)
        except ValueError as error:
            raise BindingsNotSaved(
                f"ConfigMap {self._shown(cluster)} cannot be read ({error}): mend or delete it"
            ) from error

    async def owners(self) -> frozenset[ClusterKey]:
        """The Clusters for which something is kept; what cannot be read is logged and left out, and so is what is more
        than :data:`MAXIMUM_CLUSTERS`: nobody may switch this off for all others.

        Raises:
            BindingsNotSaved: the ConfigMaps cannot be listed.
        """
        found: set[ClusterKey] = set()
        try:
            pages = self._management.list_pages(CONFIG_MAPS.collection(self._namespace), {"labelSelector": SAVED_LABEL})
            async with contextlib.aclosing(pages):
                async for page in pages:
                    for manifest in page["items"]:
                        found |= _owner_of(manifest)
                    if len(found) > MAXIMUM_CLUSTERS:
                        _LOG.error("grants of too many clusters are kept", extra={"lookedAt": MAXIMUM_CLUSTERS})
                        break
        except ApiError as error:
            raise BindingsNotSaved(f"the ConfigMaps with removed grants cannot be listed: {error}") from error
        self._clusters_of = Counter(cluster.namespace for cluster in found)
        return frozenset(found)

    async def keep(self, owner: ClusterIdentity, bindings: Sequence[ClusterRoleBinding]) -> None:
        """Return once all of them are kept; only then may they be deleted.

        Of two bindings of one name, the later one is what was there.

        Raises:
            BindingsNotSaved: they are not kept.
        """
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(GrantChanged):
                before = await self.kept(owner.key)
                new = {binding.name: binding for binding in bindings}
                if isinstance(before, SavedBindings):
                    await self._write(before, before.with_bindings(owner, {**before.of(owner).bindings, **new}))
                else:
                    lineage = Lineage().continued(owner, new)
                    await self._create(owner.key, saved_data(owner.key, {lineage_field(owner): lineage}))
                return
        raise BindingsNotSaved(f"others keep changing ConfigMap {self._shown(owner.key)}")

    async def follow(self, owner: ClusterIdentity) -> None:
        """Return once the lineage of what is kept for that cluster, if anything is, knows both of its marks.

        To be called when a cluster has another UID or CA than before. What is kept would be lost to it if the other
        mark changed too before anything else was written.

        Raises:
            BindingsNotSaved: what is kept cannot be read or changed.
        """
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(GrantChanged):
                kept = await self.kept(owner.key)
                if isinstance(kept, SavedBindings) and (lineage := kept.of(owner)).uids and not lineage.knows(owner):
                    await self._write(kept, kept.with_bindings(owner, lineage.bindings))
                return
        raise BindingsNotSaved(f"others keep changing ConfigMap {self._shown(owner.key)}")

    async def restore(self, owner: ClusterIdentity, workload: GetCreatePatch) -> Restored:
        """Restore what was removed from that cluster, under whichever UID and CA it was known then.

        A binding that exists is left as it is; where it is being deleted, what is kept stays kept until the name is
        free. So does one whose ClusterRole would grant anything but automatic approval: the ConfigMap, or the role, may
        have been tampered with.

        Raises:
            BindingsNotSaved: what is kept cannot be read or changed.
            ApiError: from the workload cluster; what is not back is still kept.
        """
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(GrantChanged):
                kept = await self.kept(owner.key)
                if isinstance(kept, NothingSaved):
                    return Restored((), (), NothingSaved())
                return await self._restore(owner, kept, workload)
        raise BindingsNotSaved(f"others keep changing ConfigMap {self._shown(owner.key)}, or the bindings in it")

    async def _restore(self, owner: ClusterIdentity, kept: SavedBindings, workload: GetCreatePatch) -> Restored:
        back: list[str] = []
        not_restored: list[NotRestored] = []
        lineage = kept.of(owner)
        for binding in lineage.bindings.values():
            try:
                await restore_binding(binding, workload)
            except BindingNotRestored as refusal:
                not_restored.append(NotRestored(binding.name, str(refusal)))
            else:
                back.append(binding.name)
        others = self._others(owner, kept)
        if not not_restored and isinstance(others, NothingSaved):
            await self._remove(kept)
        elif back or (lineage.bindings and not lineage.knows(owner)):
            rest = {name: binding for name, binding in lineage.bindings.items() if name not in back}
            await self._write(kept, kept.with_bindings(owner, rest))
        for name in back:
            _LOG.info("gave back a grant of automatic approval", extra={"cluster": str(owner), "binding": name})
        return Restored(tuple(back), tuple(not_restored), others)

    def _others(self, owner: ClusterIdentity, kept: SavedBindings) -> OtherLineages | NothingSaved:
        fields = tuple(sorted(name for name, one in kept.lineages.items() if one.bindings and not one.is_of(owner)))
        return OtherLineages(self._namespace, saved_name(owner.key), fields) if fields else NothingSaved()

    async def _create(self, cluster: ClusterKey, data: dict[str, str]) -> None:
        if self._clusters_of[cluster.namespace] >= MAXIMUM_CLUSTERS_OF_NAMESPACE:
            raise BindingsNotSaved(
                f"grants of {MAXIMUM_CLUSTERS_OF_NAMESPACE} clusters of namespace {cluster.namespace} are kept: delete "
                f"the ConfigMaps with label {SAVED_LABEL}={cluster.namespace} of clusters that are gone"
            )
        labels = {SAVED_LABEL: cluster.namespace}
        body = {
            "apiVersion": CONFIG_MAPS.api_version,
            "kind": "ConfigMap",
            "metadata": {"name": saved_name(cluster), "namespace": self._namespace, "labels": labels},
            "data": data,
        }
        self._clusters_of[cluster.namespace] += 1  # before the call: others ask meanwhile
        try:
            await self._management.create(CONFIG_MAPS.collection(self._namespace), body)
        except ApiError as error:
            self._clusters_of[cluster.namespace] -= 1
            if isinstance(error, AlreadyExists):
                raise GrantChanged from None
            raise self._unavailable(cluster, error) from error

    async def _write(self, before: SavedBindings, lineages: Mapping[str, Lineage]) -> None:
        metadata = {"uid": before.uid, "resourceVersion": before.resource_version}
        gone: dict[str, str | None] = dict.fromkeys(before.lineages)  # a merge patch takes out what is null
        data = {**gone, **saved_data(before.cluster, lineages)}
        try:
            await self._management.patch(self._path(before.cluster), {"metadata": metadata, "data": data})
        except (NotFound, Conflict):
            raise GrantChanged from None
        except ApiError as error:
            raise self._unavailable(before.cluster, error) from error

    async def _remove(self, before: SavedBindings) -> None:
        try:
            await self._management.delete(
                self._path(before.cluster), uid=before.uid, resource_version=before.resource_version
            )
        except (NotFound, Conflict):
            raise GrantChanged from None
        except ApiError as error:
            raise self._unavailable(before.cluster, error) from error

    def _path(self, cluster: ClusterKey) -> str:
        return CONFIG_MAPS.object(saved_name(cluster), self._namespace)

    def _shown(self, cluster: ClusterKey) -> str:
        return f"{self._namespace}/{saved_name(cluster)}"

    def _unavailable(self, cluster: ClusterKey, error: ApiError) -> BindingsNotSaved:
        return BindingsNotSaved(f"ConfigMap {self._shown(cluster)} of the management cluster: {error}")


def _owner_of(manifest: Any) -> set[ClusterKey]:
    try:
        return {parse_owner(manifest if isinstance(manifest, Mapping) else {})}
    except ValueError as error:
        name = text_of(mapping_of(manifest, "metadata"), "name") if isinstance(manifest, Mapping) else ""
        _LOG.warning(
            "saved bindings cannot be read", extra={"configMap": printable(name), "error": printable(str(error))}
        )
        return set()
