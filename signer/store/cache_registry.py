"""The caches of the management cluster's collections, each declared by the component that needs it.

A declaration says which collection is cached, how an object is parsed, which callback receives its changes, and whether
decisions need it. Every registered collection is listed and watched, counted as in or out of touch, and shown in the
metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn

from signer.kube.calls import List, ListWatch
from signer.kube.client import JsonObject, Parameters
from signer.kube.errors import Forbidden, ResourceNotServed
from signer.kube.resources import Resource
from signer.kube.watch import list_and_watch
from signer.model.namespace_limits import NOTHING_IS_DECIDED
from signer.store.cache import APPLY_DEFINITIONS, MAXIMUM_OBJECTS, Cache, Changed, Value, once
from signer.store.cluster_api import NotServed
from signer.store.namespace_bound import UNLIMITED, NamespaceBound, OverLimits
from signer.store.retention import OWES_NOTHING, Owes


class Scope(enum.Enum):
    """The namespaces of the objects."""

    WATCHED = enum.auto()
    """The namespaces whose Clusters are served: all, or the one to which the controller is limited."""
    OWN = enum.auto()
    """The controller's own namespace."""


@dataclass(frozen=True, slots=True)
class CacheDeclaration(Generic[Value]):
    """One collection to be cached."""

    resource: Resource | NotServed
    """If the management cluster does not serve it, the cache stays empty and nothing waits for it."""
    parse: Callable[[JsonObject], Value]
    """Raises ValueError for an object to be left out."""
    scope: Scope
    needed_by_decisions: bool
    """If true, nothing is decided before the first list of the collection or while it is out of touch, and requests
    that wait for the management cluster are woken when it is in touch again.
    """
    changed: Changed[Value] | None = None
    listed: Callable[[], None] = lambda: None
    """Called after each list."""
    selectors: Parameters = field(default_factory=dict)
    """``labelSelector`` and ``fieldSelector`` of every list and watch."""
    after: Cache[Any] | None = None
    """Another cache, registered before, whose first list must arrive before this collection is listed."""
    begins: Callable[[], None] = lambda: None
    """Called before the first list."""
    name: str = ""
    """Name in metrics and messages; defaults to the resource's plural."""
    limit: int = UNLIMITED
    """The largest number of objects in one namespace that are kept."""
    owes: Owes[Value] = OWES_NOTHING
    """Says which ones are kept beyond the limit."""
    weigh: Callable[[Value], int] = once
    """How often an object counts toward the limit."""
    counting: str = ""
    """Which objects count several times, for messages."""
    consequence: str = NOTHING_IS_DECIDED
    """What becomes of a namespace over the limit, for messages."""
    over_limits: OverLimits | None = None
    """Gets the limit, instead of the registry's: for collections that decisions do not need."""


class AlreadyRegistered(ValueError):
    """A cache of that name is registered already; metrics could not tell the two apart."""


@dataclass(frozen=True, slots=True)
class _Registered:
    cache: Cache[Any]
    declaration: CacheDeclaration[Any]
    path: str


class CacheRegistry:
    """The caches of the management cluster, in the order of registration, which is also the order of their lists."""

    def __init__(
        self,
        namespaces: Mapping[Scope, str | None],
        *,
        in_touch_again: Callable[[], None],
        over_limits: OverLimits | None = None,
        bound_changed: Callable[[str], None] = lambda namespace: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``namespaces`` maps a scope to its namespace, None for all. ``in_touch_again`` is called when the watch of a
        cache that decisions need works again after a failure. ``over_limits`` gets the bounds of all caches, and
        ``bound_changed`` is called with a namespace that exceeds one, or no longer does. ``monotonic`` is a clock, in
        seconds.
        """
        self._over_limits = over_limits if over_limits is not None else OverLimits()
        self._bound_changed = bound_changed
        self._namespaces = namespaces
        self._in_touch_again = in_touch_again
        self._monotonic = monotonic
        self._registered: tuple[_Registered, ...] = ()
        self.needed_by_decisions: tuple[Cache[Any], ...] = ()
        """The caches that decisions need, which each decision looks at."""
        self._begun = False

    def register(self, declaration: CacheDeclaration[Value]) -> Cache[Value]:
        """Add a cache, which is empty until :meth:`start` or :meth:`fill`.

        Raises:
            AlreadyRegistered: a cache of that name exists.
            RuntimeError: the caches are filled or watched already, so this one would stay empty.
        """
        resource, needed = declaration.resource, declaration.needed_by_decisions
        name = declaration.name or ("" if isinstance(resource, NotServed) else resource.plural)
        if self._begun:
            raise RuntimeError(f"cache {name} is registered after the caches were started")
        over_limits = declaration.over_limits if declaration.over_limits is not None else self._over_limits
        bound = NamespaceBound(
            name, declaration.limit, declaration.consequence, declaration.counting, monotonic=self._monotonic
        )
        cache = Cache(
            name,
            declaration.parse,
            declaration.changed,
            listed=declaration.listed,
            in_touch_again=self._in_touch_again if needed else lambda: None,
            bound=over_limits.add(bound),
            bound_changed=self._bound_changed,
            owes=declaration.owes,
            weigh=declaration.weigh,
            monotonic=self._monotonic,
        )
        if isinstance(resource, NotServed):
            return cache
        if any(one.cache.name == name for one in self._registered):
            raise AlreadyRegistered(f"there is a cache {name} already; give this one a name of its own")
        path = resource.collection(self._namespaces[declaration.scope])
        self._registered += (_Registered(cache, declaration, path),)
        if needed:
            self.needed_by_decisions += (cache,)
        return cache

    def watched(self) -> Iterator[Cache[Any]]:
        """Every registered cache."""
        return (one.cache for one in self._registered)

    def start(self, tasks: asyncio.TaskGroup, client: ListWatch) -> None:
        """Keep every cache up to date as long as ``tasks`` run."""
        self._begun = True
        for one in self._registered:
            tasks.create_task(_watch(client, one), name=f"watch {one.cache.name}")

    async def fill(self, source: List) -> None:
        """List every collection once.

        Raises:
            ApiError: a collection cannot be listed.
        """
        for refused in (await self.fill_readable(source)).values():
            raise refused

    async def fill_readable(self, source: List) -> Mapping[str, Forbidden]:
        """List every collection once that may be listed; returns the refusals of the others, by the cache's name.

        Raises:
            ApiError: another error.
        """
        self._begun = True
        refused: dict[str, Forbidden] = {}
        for one in self._registered:
            one.declaration.begins()
            try:
                one.cache.replaced(await _listed(source, one))
            except Forbidden as error:
                refused[one.cache.name] = error
        return refused

    async def filled(self) -> None:
        """Wait for the first list of every cache that decisions need."""
        for cache in self.needed_by_decisions:
            await cache.filled.wait()


async def _watch(client: ListWatch, one: _Registered) -> NoReturn:
    declaration, cache = one.declaration, one.cache
    if declaration.after is not None:
        await declaration.after.filled.wait()
    declaration.begins()
    await list_and_watch(
        client,
        one.path,
        sink=cache,
        params=declaration.selectors,
        keep=cache.parse_list_item,
        maximum_objects=MAXIMUM_OBJECTS,
        established=cache.established,
        census=cache,
    )


async def _listed(source: List, one: _Registered) -> list[JsonObject]:
    objects: list[JsonObject] = []
    one.cache.list_begins()
    async with contextlib.aclosing(source.list_pages(one.path, one.declaration.selectors or None)) as pages:
        try:
            async for page in pages:
                objects += [item for item in page["items"] if one.cache.parse_list_item(item)]
        except ResourceNotServed as error:
            raise ResourceNotServed(
                f"{one.path} is not served there: {APPLY_DEFINITIONS}", status=error.status
            ) from error
    return objects
