"""A cache of one of the management cluster's collections, parsed into values as objects arrive."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, ResourceNotServed
from signer.kube.resources import ATTESTED_NODES, IDENTITY_RESERVATIONS, NODE_ATTESTATION_POLICIES
from signer.model.decision import printable
from signer.model.fields import mapping_of, text_of
from signer.store.event_history import GONE, EventHistories
from signer.store.namespace_bound import UNLIMITED, NamespaceBound
from signer.store.retention import OWES_NOTHING, Owes, Retention
from signer.store.unreadable_log import UnreadableLog

Value = TypeVar("Value")
ObjectKey: TypeAlias = tuple[str, str]
"""Namespace and name."""

_LOG = logging.getLogger(__name__)
MAXIMUM_OBJECTS: Final = 1_000_000
"""Of one collection of the management cluster, whose API server is trusted. Tenants create these objects, and a refused
list stops the decisions of every tenant. A node has two IdentityReservations."""
_REMEMBERED_DELETIONS: Final = 1024
"""Far more than the deletions that can arrive during one call."""
APPLY_DEFINITIONS: Final = "apply what `node-attestation-controller crds` prints"
_OURS: Final = frozenset(
    resource.plural for resource in (ATTESTED_NODES, IDENTITY_RESERVATIONS, NODE_ATTESTATION_POLICIES)
)
"""The resources that these definitions define."""

Told = TypeVar("Told", contravariant=True)


class Changed(Protocol[Told]):
    """Callback for each change: the value before and after, None where there was or is none."""

    def __call__(self, key: ObjectKey, before: Told | None, after: Told | None) -> None:
        """One object was added, changed or deleted."""
        ...


@dataclass(frozen=True, slots=True)
class InTouch:
    """List and watch work, or have not failed yet."""


_IN_TOUCH: Final = InTouch()


@dataclass(frozen=True, slots=True)
class OutOfTouch:
    """List and watch keep failing; the cache may be stale."""

    seconds: float
    """Time since the first of the consecutive failures."""
    error: ApiError
    """The last failure."""


@dataclass(frozen=True, slots=True)
class _Readable(Generic[Value]):
    """The value that ``parse`` returned for an object."""

    value: Value


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """The reason for which ``parse`` refused an object."""

    message: str


def once(value: object) -> int:
    """``weigh`` of a cache whose objects all count once."""
    return 1


_PARSED: Final = "read"
"""Key of the parse result in an object that was cut down. Its value has a type that JSON cannot produce."""


class Cache(Generic[Value]):
    """A sink of ``list_and_watch`` that keeps every object as a parsed value.

    An object for which ``parse`` raises ValueError is left out and logged (:mod:`signer.store.unreadable_log`): another
    client wrote it. Of a namespace over its limit nothing is kept (:mod:`signer.store.namespace_bound`) but what still
    owes an end (:mod:`signer.store.retention`): the other objects are dropped, which ``changed`` cannot tell from
    deletions, so that a caller asks :meth:`drops` first.
    """

    def __init__(
        self,
        name: str,
        parse: Callable[[JsonObject], Value],
        changed: Changed[Value] | None = None,
        *,
        listed: Callable[[], None] = lambda: None,
        in_touch_again: Callable[[], None] = lambda: None,
        bound: NamespaceBound | None = None,
        bound_changed: Callable[[str], None] = lambda namespace: None,
        owes: Owes[Value] = OWES_NOTHING,
        weigh: Callable[[Value], int] = once,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``listed`` is called after each list, ``in_touch_again`` when list or watch works again after a failure.
        ``bound_changed`` is called with a namespace whose objects were dropped because it exceeds ``bound``, or are
        kept again. ``owes`` says which ones are kept all the same, and ``weigh`` how often an object counts.
        ``monotonic`` is a clock, in seconds, that measures how long list and watch have failed.
        """
        self.name = name
        self._bound = bound if bound is not None else NamespaceBound(name, UNLIMITED)
        self._retention = Retention(owes, lambda: self._bound.limit)
        self._weigh = weigh
        self._bound_changed = bound_changed
        self._listed_in: dict[str, list[JsonObject]] = {}
        """Items of the list under way, by namespace."""
        self._unreadable_log = UnreadableLog(name, monotonic)
        self._monotonic = monotonic
        self._failing_since: float | None = None
        self._last_activity_at = monotonic()
        self._last_error: ApiError | None = None
        self._parse = parse
        self._changed = changed
        self._listed = listed
        self._in_touch_again = in_touch_again
        self._values: dict[ObjectKey, Value] = {}
        self._versions: dict[ObjectKey, str] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()
        """UIDs of objects whose deletion the watch reported."""
        self.filled = asyncio.Event()
        """Set once the first list has arrived."""
        self.event_histories = EventHistories()
        """Subscribers to watch events alone: the cache also holds results of the controller's own calls.
        """

    def get(self, namespace: str, name: str) -> Value | None:
        """The object's value, or None if there is no readable one."""
        return self._values.get((namespace, name))

    def values(self) -> Iterable[Value]:
        """All values."""
        return self._values.values()

    def __len__(self) -> int:
        return len(self._values)

    def touch(self) -> InTouch | OutOfTouch:
        """Whether list and watch work, so that the cache is as current as they are.

        Silence is no failure: the watch of a quiet collection may send nothing for a minute.
        """
        if self._failing_since is None or self._last_error is None:
            return _IN_TOUCH
        return OutOfTouch(self._monotonic() - self._failing_since, self._last_error)

    def written(self, manifest: JsonObject) -> Value | None:
        """Store an object that the controller has just written or read, so that later decisions need not wait for the
        watch.

        Returns its value, or None if it is unreadable or known to be deleted. The watch has its own connection, so it
        may report the deletion before the response to the call arrives, and never reports it again.
        """
        if _uid(manifest) in self._gone:
            return None
        if self.drops(object_key(manifest)[0]):
            read = self._take_owed(manifest)
            return read.value if isinstance(read, _Readable) else None
        self._take_counted(manifest)  # a call that works says nothing about the watch
        return self._values.get(object_key(manifest))

    def found(self, manifest: JsonObject) -> None:
        """Store an object from a list that was read outside the watch, unless the cache already holds it: the watch may
        have a newer version.
        """
        if object_key(manifest) not in self._versions:
            self.written(manifest)

    def forget(self, namespace: str, name: str) -> None:
        """Remove an object that the controller has just deleted, or found deleted."""
        before = self._values.get((namespace, name))
        self._set((namespace, name), None)
        self._count_change((namespace, name), before)

    def drops(self, namespace: str) -> bool:
        """Whether the cache keeps no objects of the namespace, or not all: that one is missing says nothing."""
        return self._bound.is_over(namespace)

    def list_begins(self) -> None:
        """See :class:`~signer.kube.watch.Census`."""
        self._bound.list_begins()
        self._retention.list_begins()
        self._listed_in.clear()

    def added(self, item: JsonObject) -> None:
        """See :class:`~signer.kube.watch.Census`."""
        namespace = object_key(item)[0]
        if self._bound.exceeds(namespace):
            self._drop(namespace)

    def needs_list(self) -> bool:
        """See :class:`~signer.kube.watch.Census`."""
        return self._bound.needs_list(more=self._retention.wants_list())

    def parse_list_item(self, item: JsonObject) -> bool:
        """``keep`` of :func:`~signer.kube.watch.list_and_watch`: cuts ``item`` down to the part that :meth:`replaced`
        needs.

        A list is held until its last page has arrived. Whole objects may be large and may hold secrets, so they must
        not be held with it: each is parsed here, as its page arrives, and emptied. Returns false for an object beyond
        its namespace's limit that is dropped, and empties the earlier ones of that namespace that are dropped, too.
        """
        key, version = object_key(item), _version(item)
        fits = self._bound.fits_listed(key[0])
        read: _Readable[Value] | _Unreadable | None = None
        if fits:
            read = self._read_listed(key, version, item)
            more = self._more(read)
            fits = more == 0 or self._bound.fits_listed(key[0], more)
        if not fits:
            for earlier in self._listed_in.pop(key[0], ()):
                if not self._is_owed(object_key(earlier), earlier[_PARSED], listed=True):
                    earlier.clear()
            if not self._retention.keeps_any:
                return False
        if read is None:
            read = self._read_listed(key, version, item)
        if fits:
            self._listed_in.setdefault(key[0], []).append(item)
        elif not self._is_owed(key, read, listed=True):
            return False
        item.clear()
        item["metadata"] = {"namespace": key[0], "name": key[1], "resourceVersion": version}
        item[_PARSED] = read
        return True

    def _read_listed(self, key: ObjectKey, version: str, item: JsonObject) -> _Readable[Value] | _Unreadable:
        return self._kept(key) if version and self._versions.get(key) == version else self._read(item)

    def _more(self, read: _Readable[Value] | _Unreadable) -> int:
        """How many times an object counts besides once."""
        return self._weigh(read.value) - 1 if isinstance(read, _Readable) else 0

    def replaced(self, objects: Sequence[JsonObject]) -> None:
        """See :class:`~signer.kube.watch.Sink`."""
        read = [one for one in map(self._as_parsed, objects) if one]
        changed = self._bound.list_ends()
        self._retention.list_ends()
        self._listed_in.clear()
        kept = {object_key(manifest): manifest for manifest in read if manifest}  # an emptied one was dropped
        for key in [key for key in self._versions if key not in kept]:
            self._set(key, None)
        for manifest in kept.values():
            self._take(manifest)
        self.event_histories.listed()
        self._in_touch()
        self.filled.set()
        self._listed()
        for namespace in changed:
            self._log_over(namespace)
            self._bound_changed(namespace)

    def applied(self, item: JsonObject) -> None:
        """See :class:`~signer.kube.watch.Sink`."""
        self._in_touch()
        if self.event_histories:
            self.event_histories.observe((object_key(item), _version(item)))
        if not self.drops(object_key(item)[0]):
            self._take_counted(item)
            return
        if self._retention.keeps_any:
            self._take_owed(item)
        if self._weigh is not once:
            self._bound.may_be_smaller(object_key(item)[0])

    def removed(self, item: JsonObject) -> None:
        """See :class:`~signer.kube.watch.Sink`."""
        self._in_touch()
        if self.event_histories:
            self.event_histories.observe((object_key(item), GONE))
        key = object_key(item)
        before = self._values.get(key)
        self._bound.removed(key[0])
        if self.drops(key[0]) and self._weigh is not once:
            self._bound.shrank(key[0], self._more(self._read(item)))
        self._retention.removed(key)
        self._set(key, None)
        self._count_change(key, before)
        if uid := _uid(item):
            self._gone[uid] = None
            if len(self._gone) > _REMEMBERED_DELETIONS:
                self._gone.popitem(last=False)

    def synced(self) -> None:
        """See :class:`~signer.kube.watch.Sink`."""
        self._in_touch()

    def established(self) -> None:
        """See ``established`` of :func:`~signer.kube.watch.list_and_watch`."""
        self._in_touch()

    def failed(self, error: ApiError, retry_in_seconds: float) -> None:
        """See :class:`~signer.kube.watch.Sink`."""
        self._last_activity_at = self._monotonic()
        if self._failing_since is None:
            self._failing_since = self._last_activity_at
        self._last_error = error
        _LOG.warning(
            "cannot watch in the management cluster",
            extra={
                "resource": self.name,
                "error": f"{error}{self._remedy(error)}",
                "retryInSeconds": round(retry_in_seconds, 1),
            },
        )

    def _remedy(self, error: ApiError) -> str:
        """To append to the error's message; empty if none is known."""
        return f": {APPLY_DEFINITIONS}" if isinstance(error, ResourceNotServed) and self.name in _OURS else ""

    def quiet_seconds(self) -> float:
        """Time since list and watch last reported anything, success or failure."""
        return self._monotonic() - self._last_activity_at

    @property
    def last_activity_at(self) -> float:
        """When list and watch last reported anything, on the cache's clock."""
        return self._last_activity_at

    def _in_touch(self) -> None:
        self._last_activity_at = self._monotonic()
        failed = self._failing_since is not None
        self._failing_since = self._last_error = None
        if failed:
            self._in_touch_again()

    def _take_counted(self, item: JsonObject) -> None:
        key = object_key(item)
        before = self._values.get(key)
        self._take(item)
        self._count_change(key, before)

    def _count_change(self, key: ObjectKey, before: Value | None) -> None:
        """Count an object of a namespace within its limit as often as it counts now, instead of as before."""
        if self._weigh is once or self.drops(key[0]):
            return
        after = self._values.get(key)
        growth = (0 if after is None else self._weigh(after) - 1) - (0 if before is None else self._weigh(before) - 1)
        if growth < 0:
            self._bound.shrank(key[0], -growth)
        elif growth and self._bound.exceeds(key[0], growth):
            self._drop(key[0])

    def _drop(self, namespace: str) -> None:
        """The namespace is over its limit now."""
        self._log_over(namespace)
        for key in [key for key in self._versions if key[0] == namespace]:
            if not self._is_owed(key, self._kept(key)):
                self._set(key, None)
        self._bound_changed(namespace)

    def _log_over(self, namespace: str) -> None:
        if self.drops(namespace):
            over = self._bound.over_limit(namespace)
            _LOG.warning("a namespace is over its limit", extra={"namespace": namespace, "detail": str(over)})
        else:
            _LOG.info("a namespace is within its limit again", extra={"namespace": namespace, "resource": self.name})

    def _take(self, item: JsonObject) -> None:
        key, version = object_key(item), _version(item)
        if version and self._versions.get(key) == version:
            return  # our own write, reported by the watch
        read = item.get(_PARSED)
        if not isinstance(read, _Readable | _Unreadable):
            read = self._read(item)
        if isinstance(read, _Unreadable):
            self._unreadable_log.left_out(*key, read.message)
            self._set(key, None)
        else:
            self._set(key, read.value)
        self._versions[key] = version

    def _take_owed(self, item: JsonObject) -> _Readable[Value] | _Unreadable:
        """Keep an object of a namespace over its limit, if it still owes an end. Returns what it says."""
        key, read = object_key(item), self._read(item)
        if self._is_owed(key, read):
            self._take({**item, _PARSED: read})
        elif key in self._versions:
            self._set(key, None)
        return read

    def _is_owed(self, key: ObjectKey, read: _Readable[Value] | _Unreadable, *, listed: bool = False) -> bool:
        """Whether an object of a namespace over its limit is kept."""
        if isinstance(read, _Unreadable):
            return False
        return self._retention.keeps_listed(key, read.value) if listed else self._retention.keeps(key, read.value)

    def _as_parsed(self, manifest: JsonObject) -> JsonObject:
        """What :meth:`parse_list_item` leaves of an object of a list; empty if it is dropped."""
        if not manifest or _PARSED in manifest:
            return manifest
        own = dict(manifest)
        return own if self.parse_list_item(own) else {}

    def _read(self, item: JsonObject) -> _Readable[Value] | _Unreadable:
        try:
            return _Readable(self._parse(item))
        except ValueError as error:
            return _Unreadable(printable(str(error)))

    def _kept(self, key: ObjectKey) -> _Readable[Value] | _Unreadable:
        """The parse result of this version that the cache already holds."""
        value = self._values.get(key)
        return _Readable(value) if value is not None else _Unreadable("it could not be read before")

    def _set(self, key: ObjectKey, value: Value | None) -> None:
        before = self._values.get(key)
        self._versions.pop(key, None)
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value
        if self._changed is not None and (before is not None or value is not None):
            self._changed(key, before, value)


def object_key(manifest: JsonObject) -> ObjectKey:
    """Namespace and name of an object; empty strings where it has none."""
    metadata = mapping_of(manifest, "metadata")
    return text_of(metadata, "namespace"), text_of(metadata, "name")


def _uid(manifest: JsonObject) -> str:
    return text_of(mapping_of(manifest, "metadata"), "uid")


def _version(manifest: JsonObject) -> str:
    return text_of(mapping_of(manifest, "metadata"), "resourceVersion")
