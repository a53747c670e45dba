"""The bounded window of past changes of one resource, and the watchers that follow it.

A watch that starts at a resourceVersion older than the window is told 410 Expired, as with a compacted etcd or a watch
cache that has moved on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .selectors import Fields, Selector
from .status import expired

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""

Encode = Callable[["Stored"], bytes]


@dataclass(slots=True, eq=False)
class Stored:
    """One version of one object. ``value`` is never changed once it is here: a change makes another Stored."""

    value: dict[str, Any]
    revision: int
    views: dict[tuple[str, int], bytes] = field(default_factory=dict, repr=False)
    """The encoded object by served version and schema generation, filled on demand."""

    @property
    def key(self) -> Key:
        metadata = self.value["metadata"]
        return metadata.get("namespace", ""), metadata["name"]


@dataclass(slots=True, eq=False)
class Change:
    """One write: ``before`` is None for a creation, ``deleted`` says that ``after`` is the last state of the object."""

    revision: int
    before: Stored | None
    after: Stored
    deleted: bool = False
    lines: dict[tuple[str, str, int], bytes] = field(default_factory=dict, repr=False)

    def vanished(self) -> Stored:
        """What a watcher sees last of an object that no longer matches: its old state at the version of the change."""
        old = self.before or self.after
        metadata = {**old.value["metadata"], "resourceVersion": str(self.revision)}
        return Stored({**old.value, "metadata": metadata}, self.revision)


@dataclass(frozen=True, slots=True)
class View:
    """What one watcher wants to see: which namespace and objects, and in which served version."""

    namespace: str
    selector: Selector
    fields: Fields
    version: tuple[str, int]
    encode: Encode

    def sees(self, stored: Stored) -> bool:
        if self.namespace and stored.value["metadata"].get("namespace") != self.namespace:
            return False
        return self.selector.empty or self.selector.matches(stored.value, self.fields)

    def line(self, change: Change) -> bytes | None:
        """The watch event for a change, or None when it is not this watcher's business.

        An object that starts or stops matching the selector appears as ADDED or DELETED.
        """
        before = change.before is not None and self.sees(change.before)
        after = not change.deleted and self.sees(change.after)
        if after:
            event = "MODIFIED" if before else "ADDED"
        elif before:
            event = "DELETED"
        else:
            return None
        key = (event, *self.version)
        line = change.lines.get(key)
        if line is None:
            shown = change.after if after or change.deleted else change.vanished()
            line = change.lines[key] = event_line(event, self.encode(shown))
        return line


def event_line(event: str, encoded: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (event.encode(), encoded)


class Watcher:
    """The lines that one open watch has not sent yet. Too many of them close the stream, as on the real server."""

    __slots__ = ("limit", "overflowed", "pending", "stopped", "view", "wake")

    def __init__(self, view: View, limit: int) -> None:
        self.view = view
        self.pending: deque[bytes] = deque()
        self.wake = asyncio.Event()
        self.limit = limit
        self.overflowed = False
        self.stopped = False

    def offer(self, change: Change) -> None:
        line = self.view.line(change)
        if line is None or self.overflowed:
            return
        self.pending.append(line)
        self.overflowed = len(self.pending) > self.limit
        self.wake.set()

    def take(self) -> bytes:
        """Everything that is waiting, as one write."""
        lines = b"".join(self.pending)
        self.pending.clear()
        self.wake.clear()
        return lines

    def stop(self) -> None:
        self.stopped = True
        self.wake.set()


class WatchLog:
    """Changes of one resource in order, at most ``window`` of them."""

    def __init__(self, window: int, revision: int) -> None:
        self._changes: deque[Change] = deque(maxlen=window)
        self._forgotten = revision
        self._watchers: set[Watcher] = set()

    @property
    def watchers(self) -> int:
        return len(self._watchers)

    def append(self, change: Change) -> None:
        if len(self._changes) == self._changes.maxlen:
            self._forgotten = self._changes[0].revision if self._changes else change.revision
        self._changes.append(change)
        for watcher in self._watchers:
            watcher.offer(change)

    def compact(self, revision: int) -> None:
        """Forget everything up to and including ``revision``."""
        while self._changes and self._changes[0].revision <= revision:
            self._changes.popleft()
        self._forgotten = max(self._forgotten, revision)

    def since(self, revision: int) -> list[Change]:
        """Changes after ``revision``. Raises APIError 410 when some of them are forgotten."""
        if revision < self._forgotten:
            raise expired(f"too old resource version: {revision} ({self._forgotten})")
        newer: list[Change] = []
        for change in reversed(self._changes):
            if change.revision <= revision:
                break
            newer.append(change)
        newer.reverse()
        return newer

    def undo(self, revision: int) -> Iterator[Change]:
        """Changes after ``revision``, newest first, to go back to the state at that revision."""
        return reversed(self.since(revision))

    def open(self, view: View, limit: int) -> Watcher:
        watcher = Watcher(view, limit)
        self._watchers.add(watcher)
        return watcher

    def close(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    def stop_watchers(self) -> None:
        for watcher in list(self._watchers):
            watcher.stop()
