"""kube-controller-manager's work after a deletion: deletes dependents of an owner, and contents of a namespace.

Dependents are removed at once rather than in the background; owners that never existed are not looked for.
"""

from __future__ import annotations

from .identity import ADMINISTRATOR
from .operations import DeleteOptions, Operations
from .resource_types import Served
from .store import Collections
from .watch_log import Stored


class GarbageCollector:
    """Reacts to removals. Attach it to ``Operations.after_removal``."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def after_removal(self, served: Served, stored: Stored, options: DeleteOptions) -> None:
        """Called when an object is removed, or when a namespace starts to terminate."""
        found = stored.value["metadata"]
        if served.type.identity == ("", "namespaces"):
            self._empty(found["name"])
            return
        self._dependents(found["uid"], orphan=options.orphan)
        if namespace := found.get("namespace"):
            self._finish(namespace)

    def _dependents(self, uid: str, *, orphan: bool) -> None:
        store = self._operations.store
        for identity, key in list(store.owned_by(uid)):
            stored = store.collection(*identity).objects.get(key)
            if stored is None:
                continue
            owners = stored.value["metadata"].get("ownerReferences") or []
            others = [owner for owner in owners if owner.get("uid") != uid]
            if len(others) == len(owners):
                continue
            if others or orphan:
                metadata = {name: item for name, item in stored.value["metadata"].items() if name != "ownerReferences"}
                if others:
                    metadata["ownerReferences"] = others
                store.write(store.collection(*identity), {**stored.value, "metadata": metadata})
            else:
                self._delete(identity, stored)

    def _delete(self, identity: Collections, stored: Stored) -> None:
        served = self._operations.catalogue.type(identity).storage
        namespace, name = stored.key
        self._operations.delete(served, namespace, name, ADMINISTRATOR, DeleteOptions())

    def _empty(self, namespace: str) -> None:
        for identity, stored in self._operations.store.namespaced_objects(namespace):
            if stored.key in self._operations.store.collection(*identity).objects:
                self._delete(identity, stored)
        self._finish(namespace)

    def _finish(self, namespace: str) -> None:
        """Remove a terminating namespace after its last object."""
        store = self._operations.store
        collection = store.collection("", "namespaces")
        holder = collection.objects.get(("", namespace))
        if holder is None or "deletionTimestamp" not in holder.value["metadata"]:
            return
        if not store.namespaced_objects(namespace):
            store.remove(collection, holder)
