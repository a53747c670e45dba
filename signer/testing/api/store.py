"""The objects, their one resourceVersion counter, and the log of changes of every resource."""

from __future__ import annotations

from typing import Any

from .watch_log import Change, Key, Stored, WatchLog

Collections = tuple[str, str]
"""API group and plural: what identifies a resource whatever the version."""


class Collection:
    """All objects of one resource."""

    __slots__ = ("_order", "identity", "log", "objects", "writes")

    def __init__(self, identity: Collections, window: int, revision: int) -> None:
        self.identity = identity
        self.objects: dict[Key, Stored] = {}
        self.log = WatchLog(window, revision)
        self._order: list[Key] | None = None
        self.writes = 0

    def order(self) -> list[Key]:
        """Keys as etcd orders them: by namespace, then by name."""
        if self._order is None:
            self._order = sorted(self.objects)
        return self._order

    def at(self, revision: int) -> dict[Key, Stored]:
        """The objects as they were at ``revision``. Raises APIError 410 when that is forgotten."""
        objects = dict(self.objects)
        for change in self.log.undo(revision):
            if change.before is None:
                objects.pop(change.after.key, None)
            else:
                objects[change.before.key] = change.before
        return objects

    def put(self, stored: Stored) -> Change:
        before = self.objects.get(stored.key)
        if before is None:
            self._order = None
        self.objects[stored.key] = stored
        return self._record(Change(stored.revision, before, stored))

    def remove(self, last: Stored) -> Change:
        before = self.objects.pop(last.key)
        self._order = None
        return self._record(Change(last.revision, before, last, deleted=True))

    def _record(self, change: Change) -> Change:
        self.writes += 1
        self.log.append(change)
        return change


class Store:
    """Every collection, one monotonic revision. Used from one thread: the API's event loop."""

    def __init__(self, *, window: int) -> None:
        self._window = window
        self._collections: dict[Collections, Collection] = {}
        self.revision = 1
        self._compacted = 0
        self._owned: dict[str, set[tuple[Collections, Key]]] = {}

    def collection(self, group: str, plural: str) -> Collection:
        found = self._collections.get((group, plural))
        if found is None:
            found = self._collections[group, plural] = Collection((group, plural), self._window, self._compacted)
        return found

    def namespaced_objects(self, namespace: str) -> list[tuple[Collections, Stored]]:
        return [
            (identity, stored)
            for identity, collection in self._collections.items()
            for key, stored in list(collection.objects.items())
            if key[0] == namespace
        ]

    def everything(self) -> list[tuple[Collections, Stored]]:
        return [
            (identity, stored)
            for identity, collection in self._collections.items()
            for stored in list(collection.objects.values())
        ]

    def write(self, collection: Collection, value: dict[str, Any]) -> Stored:
        """Store ``value`` with the next resourceVersion; takes ownership of ``value``."""
        self.revision += 1
        value["metadata"]["resourceVersion"] = str(self.revision)
        stored = Stored(value, self.revision)
        for owner in value["metadata"].get("ownerReferences") or ():
            self._owned.setdefault(owner["uid"], set()).add((collection.identity, stored.key))
        collection.put(stored)
        return stored

    def owned_by(self, uid: str) -> set[tuple[Collections, Key]]:
        """Keys of objects that name, or have named, this owner; the caller must check whether they still do."""
        return self._owned.get(uid, set())

    def remove(self, collection: Collection, stored: Stored) -> Stored:
        """Delete; the last state carries the resourceVersion of its deletion, as etcd's watch reports it."""
        self.revision += 1
        metadata = {**stored.value["metadata"], "resourceVersion": str(self.revision)}
        last = Stored({**stored.value, "metadata": metadata}, self.revision)
        collection.remove(last)
        return last

    def compact(self) -> None:
        """Compact the history: watches from older resourceVersions get 410."""
        self._compacted = self.revision
        for collection in self._collections.values():
            collection.log.compact(self.revision)

    def stop_watchers(self) -> None:
        for collection in self._collections.values():
            collection.log.stop_watchers()
