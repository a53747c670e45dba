"""The bindings that Enforce removed from workload clusters, saved so that they can be restored.

The controller's own namespace holds one ConfigMap for each Cluster, with an entry for each lineage
(:mod:`signer.model.saved_bindings`). The controller writes it before it deletes a binding, and removes a lineage after
all its bindings are restored. So a crash at any point leaves each binding in the cluster, in the ConfigMap, or in both.
Bindings of another lineage are left to an operator: the controller cannot know whether they were removed from this
cluster.

A ConfigMap that somebody made unusable keeps Enforce from removing nothing: the controller copies it to another one,
and begins anew.

Two rules prevent the loss of a binding between two controllers, or by a call that is still under way after a crash:

- A saved binding includes its UID and resourceVersion, so saving another version changes the ConfigMap. The ConfigMap
  is deleted, or loses a lineage, only at the resourceVersion that was read before the bindings were restored.
- A binding that still has the UID and resourceVersion that were to be deleted is annotated and unannotated once. A
  deletion under way, which names that resourceVersion, then fails.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from signer.kube.calls import GetCreatePatch, Manage
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from signer.kube.resources import CONFIG_MAPS
from signer.model.auto_approval import ClusterIdentity, ClusterRoleBinding, shown
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred, printable
from signer.model.fields import items_of, mapping_of, text_of
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
    sealed_lineage,
    set_aside_name,
)
from signer.model.seal import Authentic, ControllerKeys, Generation, KeyUse, Seals
from signer.store.restore_binding import BindingNotRestored, GrantChanged, restore_binding

_LOG = logging.getLogger(__name__)

SAVED_LABEL: Final = "attestation.cluster.x-k8s.io/removed-grants"
"""Label of every ConfigMap of this module; its value is the namespace of the Cluster."""
MAXIMUM_CLUSTERS: Final = 10_000
MAXIMUM_CLUSTERS_OF_NAMESPACE: Final = 1_000
"""Limit for each namespace of Clusters: tenants choose the names of Clusters, and saved bindings outlive their Cluster.
"""
_ATTEMPTS: Final = 8


@dataclass(frozen=True, slots=True)
class NothingSaved:
    """No binding was removed, or all are restored."""


@dataclass(frozen=True, slots=True)
class NotRestored:
    """A binding that stays saved, because restoring it would be wrong or is forbidden."""

    name: str
    cause: str

    def __str__(self) -> str:
        return f"ClusterRoleBinding {shown(self.name)}: {self.cause}"


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of restoring the saved bindings."""

    back: tuple[str, ...]
    not_restored: tuple[NotRestored, ...]
    others: OtherLineages | NothingSaved


class RemovedBindings:
    """The ConfigMaps with removed bindings, in the controller's own namespace."""

    def __init__(self, management: Manage, namespace: str, keys: Callable[[], ControllerKeys]) -> None:
        """``keys`` raises Deferred while there are none."""
        self._management = management
        self._namespace = namespace
        self._keys = keys
        self._clusters_of: Counter[str] = Counter()
        """Number of ConfigMaps by namespace of the Clusters: those of the last list, and those created since."""

    async def saved(self, cluster: ClusterKey) -> SavedBindings | NothingSaved:
        """The saved bindings of that Cluster, of every lineage.

        Raises:
            BindingsNotSaved: they cannot be read.
        """
        try:
            manifest = await self._management.get(self._path(cluster))
        except NotFound:
            return NothingSaved()
        except ApiError as error:
            raise self._unavailable(cluster, error) from error
        try:
            return self._verified(parse_saved(manifest))
        except ValueError as error:
            raise BindingsNotSaved(
                f"ConfigMap {self._shown(cluster)} cannot be read ({error}): repair or delete it"
            ) from error

    async def _saved_or_set_aside(self, cluster: ClusterKey) -> SavedBindings | NothingSaved:
        """The saved bindings, after a ConfigMap that cannot be read is set aside.

        Raises:
            GrantChanged: another client changed it meanwhile.
            BindingsNotSaved: it cannot be set aside.
        """
        try:
            manifest = await self._management.get(self._path(cluster))
            try:
                return self._verified(parse_saved(manifest))
            except ValueError as error:
                metadata = await self._set_aside(cluster, manifest, str(error))
                uid, version = text_of(metadata, "uid"), text_of(metadata, "resourceVersion")
                await self._management.delete(self._path(cluster), uid=uid, resource_version=version)
        except NotFound:
            pass
        except Conflict:
            raise GrantChanged from None
        except ApiError as error:
            raise self._unavailable(cluster, error) from error
        return NothingSaved()

    async def _set_aside(self, cluster: ClusterKey, manifest: JsonObject, why: str) -> Mapping[str, Any]:
        """Copy what the ConfigMap holds, for a person. An earlier copy stays. Returns the metadata without finalizers.

        Raises:
            ApiError: from the management cluster.
        """
        name = set_aside_name(cluster)
        _LOG.error(
            "the saved bindings cannot be used: somebody changed them; they are set aside",
            extra={"cluster": str(cluster), "configMap": f"{self._namespace}/{name}", "error": printable(why)},
        )
        body: JsonObject = {
            "apiVersion": CONFIG_MAPS.api_version,
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": self._namespace},
            **{key: manifest[key] for key in ("data", "binaryData") if key in manifest},
        }
        with contextlib.suppress(AlreadyExists):
            await self._management.create(CONFIG_MAPS.collection(self._namespace), body)
        found = mapping_of(manifest, "metadata")
        if not items_of(found, "finalizers"):
            return found
        version = {key: text_of(found, key) for key in ("uid", "resourceVersion")}
        freed = await self._management.patch(self._path(cluster), {"metadata": {**version, "finalizers": None}})
        return mapping_of(freed, "metadata")

    def _verified(self, saved: SavedBindings) -> SavedBindings:
        """With the lineages apart that the controller did not write so.

        Raises:
            BindingsNotSaved: there is no controller key now.
        """
        seals = self._seals()
        verified = {
            name: seals.verify(one.seal, partial(sealed_lineage, saved.cluster, name, one))
            for name, one in saved.lineages.items()
        }
        good = {name: one for name, one in saved.lineages.items() if isinstance(verified[name], Authentic)}
        changed = {name: one for name, one in saved.lineages.items() if name not in good}
        has_current_seals = Authentic(Generation.PREVIOUS) not in verified.values()
        return replace(saved, lineages=good, changed=changed, has_current_seals=has_current_seals)

    def _seals(self) -> Seals:
        try:
            return Seals(self._keys(), KeyUse.REMOVED_BINDINGS)
        except Deferred as error:
            raise BindingsNotSaved(f"saved bindings have seals, and {error.defer.message}") from error

    def _data(
        self, cluster: ClusterKey, lineages: Mapping[str, Lineage], changed: Mapping[str, Lineage]
    ) -> dict[str, str]:
        """``data`` with a seal for each lineage. Those that somebody changed keep theirs, and count for the limits."""
        seals = self._seals()
        sealed = {
            name: replace(one, seal=seals.seal(sealed_lineage(cluster, name, one))) for name, one in lineages.items()
        }
        return saved_data(cluster, {**changed, **sealed})

    def key_identifier(self) -> str:
        """Of the key that seals now.

        Raises:
            BindingsNotSaved: there is no controller key now.
        """
        return self._seals().key_identifier

    async def owners(self) -> frozenset[ClusterKey]:
        """The Clusters that have saved bindings. Unreadable ConfigMaps are logged and left out, and so are those beyond
        :data:`MAXIMUM_CLUSTERS`: no tenant can stop this for all others.

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
                        _LOG.error("bindings of too many clusters are saved", extra={"lookedAt": MAXIMUM_CLUSTERS})
                        break
        except ApiError as error:
            raise BindingsNotSaved(f"the ConfigMaps with removed bindings cannot be listed: {error}") from error
        self._clusters_of = Counter(cluster.namespace for cluster in found)
        return frozenset(found)

    async def save(self, owner: ClusterIdentity, bindings: Sequence[ClusterRoleBinding]) -> None:
        """Return once all bindings are saved; only then may they be deleted.

        Of two bindings of one name, the later one replaces the earlier.

        Raises:
            BindingsNotSaved: they are not saved.
        """
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(GrantChanged):
                before = await self._saved_or_set_aside(owner.key)
                new = {binding.name: binding for binding in bindings}
                if isinstance(before, SavedBindings):
                    await self._write(before, before.with_bindings(owner, {**before.of(owner).bindings, **new}))
                else:
                    lineage = Lineage().continued(owner, new)
                    await self._create(owner.key, self._data(owner.key, {lineage_field(owner): lineage}, {}))
                return
        raise BindingsNotSaved(f"others keep changing ConfigMap {self._shown(owner.key)}")

    async def remember(self, owner: ClusterIdentity) -> None:
        """Return once there is a ConfigMap for the Cluster, even if nothing was removed: its restoration also takes
        away what Enforce installed in the workload cluster.

        Raises:
            BindingsNotSaved: there is none.
        """
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(GrantChanged):
                if isinstance(await self._saved_or_set_aside(owner.key), NothingSaved):
                    await self.save(owner, ())
                return
        raise BindingsNotSaved(f"others keep changing ConfigMap {self._shown(owner.key)}")

    async def update_lineage(self, owner: ClusterIdentity) -> None:
        """Record the cluster's current UID and CA in the lineage of its saved bindings, if there are any.

        Call this when the UID or the CA of a cluster has changed, or the controller key. If another of them changed
        later too, before another write, the saved bindings would no longer be attributed to the cluster.

        Raises:
            BindingsNotSaved: the saved bindings cannot be read or changed.
        """
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(GrantChanged):
                saved = await self.saved(owner.key)
                if isinstance(saved, NothingSaved):
                    return
                lineage = saved.of(owner)
                if lineage.uids and not (lineage.knows(owner) and saved.has_current_seals):
                    await self._write(saved, saved.with_bindings(owner, lineage.bindings))
                return
        raise BindingsNotSaved(f"others keep changing ConfigMap {self._shown(owner.key)}")

    async def restore(self, owner: ClusterIdentity, workload: GetCreatePatch) -> Restored:
        """Restore the bindings that were removed from that cluster, under whichever UID and CA it was known then.

        A binding that exists is not changed. If it is being deleted, the saved one is kept until the name is free. A
        binding whose ClusterRole grants anything but automatic approval stays saved too: the ConfigMap or the role may
        have been tampered with.

        Raises:
            BindingsNotSaved: the saved bindings cannot be read or changed.
            ApiError: from the workload cluster; bindings that are not restored stay saved.
        """
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(GrantChanged):
                saved = await self.saved(owner.key)
                if isinstance(saved, NothingSaved):
                    return Restored((), (), NothingSaved())
                return await self._restore(owner, saved, workload)
        raise BindingsNotSaved(f"others keep changing ConfigMap {self._shown(owner.key)}, or the bindings in it")

    async def _restore(self, owner: ClusterIdentity, saved: SavedBindings, workload: GetCreatePatch) -> Restored:
        back: list[str] = []
        not_restored: list[NotRestored] = []
        lineage = saved.of(owner)
        for binding in lineage.bindings.values():
            try:
                await restore_binding(binding, workload)
            except BindingNotRestored as refusal:
                not_restored.append(NotRestored(binding.name, str(refusal)))
            else:
                back.append(binding.name)
        others = self._others(owner, saved)
        if not not_restored and isinstance(others, NothingSaved):
            await self._remove(saved)
        elif back or (lineage.bindings and not lineage.knows(owner)):
            rest = {name: binding for name, binding in lineage.bindings.items() if name not in back}
            await self._write(saved, saved.with_bindings(owner, rest))
        for name in back:
            _LOG.info("restored a binding of automatic approval", extra={"cluster": str(owner), "binding": name})
        return Restored(tuple(back), tuple(not_restored), others)

    def _others(self, owner: ClusterIdentity, saved: SavedBindings) -> OtherLineages | NothingSaved:
        fields = tuple(sorted(name for name, one in saved.lineages.items() if one.bindings and not one.is_of(owner)))
        changed = tuple(sorted(saved.changed))
        if not fields and not changed:
            return NothingSaved()
        return OtherLineages(self._namespace, saved_name(owner.key), fields, changed)

    async def _create(self, cluster: ClusterKey, data: dict[str, str]) -> None:
        if self._clusters_of[cluster.namespace] >= MAXIMUM_CLUSTERS_OF_NAMESPACE:
            raise BindingsNotSaved(
                f"bindings of {MAXIMUM_CLUSTERS_OF_NAMESPACE} clusters of namespace {cluster.namespace} are saved: "
                f"delete the ConfigMaps with label {SAVED_LABEL}={cluster.namespace} of clusters that are gone"
            )
        labels = {SAVED_LABEL: cluster.namespace}
        body = {
            "apiVersion": CONFIG_MAPS.api_version,
            "kind": "ConfigMap",
            "metadata": {"name": saved_name(cluster), "namespace": self._namespace, "labels": labels},
            "data": data,
        }
        self._clusters_of[cluster.namespace] += 1  # before the call, during which other tasks read it
        try:
            await self._management.create(CONFIG_MAPS.collection(self._namespace), body)
        except ApiError as error:
            self._clusters_of[cluster.namespace] -= 1
            if isinstance(error, AlreadyExists):
                raise GrantChanged from None
            raise self._unavailable(cluster, error) from error

    async def _write(self, before: SavedBindings, lineages: Mapping[str, Lineage]) -> None:
        metadata = {"uid": before.uid, "resourceVersion": before.resource_version}
        gone: dict[str, str | None] = dict.fromkeys(before.lineages)  # a merge patch removes a field that is null
        path = self._path(before.cluster)
        try:
            try:
                data = {**gone, **self._data(before.cluster, lineages, before.changed)}
            except BindingsNotSaved as error:
                data = {**gone, **dict.fromkeys(before.changed), **self._data(before.cluster, lineages, {})}
                if not before.changed:
                    raise
                await self._set_aside(before.cluster, await self._management.get(path), str(error))
            await self._management.patch(path, {"metadata": metadata, "data": data})
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
