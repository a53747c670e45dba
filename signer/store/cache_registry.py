"""The caches of the management cluster's collections, each declared by the part that needs it.

A declaration says what is cached, how an object is read, who hears of a change, and whether decisions rest on it. What
is registered is listed and watched, counted as in or out of touch, and shown by the metrics, whoever registered it.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NoReturn

from signer.kube.calls import List, ListWatch
from signer.kube.client import JsonObject, Parameters
from signer.kube.errors import ResourceNotServed
from signer.kube.resources import Resource
from signer.kube.watch import list_and_watch
from signer.store.cache import Cache, Changed, Value
from signer.store.cluster_api import NotServed

APPLY_DEFINITIONS: Final = "apply what `node-attestation-controller crds` prints"


class Scope(enum.Enum):
    """Of which namespaces the objects are."""

    WATCHED = enum.auto()
    """Those whose Clusters are served: all, or the one that the controller is limited to."""
    OWN = enum.auto()
    """The controller's own."""


@dataclass(frozen=True, slots=True)
class CacheDeclaration(Generic[Value]):
    """One collection that somebody needs cached."""

    resource: Resource | NotServed
    """Where the management cluster does not have it, the cache stays empty and nothing waits for it."""
    parse: Callable[[JsonObject], Value]
    """Raises ValueError for an object that is to be left out."""
    scope: Scope
    needed_by_decisions: bool
    """Whether nothing is decided before its first list, nor while it is out of touch, and requests that wait for the
    management cluster are woken when it is in touch again."""
    changed: Changed[Value] | None = None
    listed: Callable[[], None] = lambda: None
    """Called after each list."""
    selectors: Parameters = field(default_factory=dict)
    """``labelSelector`` and ``fieldSelector``, of every list and watch."""
    after: Cache[Any] | None = None
    """Listed only when that one has had its first list; it must be registered before."""
    begins: Callable[[], None] = lambda: None
    """Called before the first list."""
    name: str = ""
    """In metrics and messages; the resource's plural where it is empty."""


class AlreadyRegistered(ValueError):
    """A cache of that name is registered already: metrics could not tell the two apart."""


@dataclass(frozen=True, slots=True)
class _Registered:
    cache: Cache[Any]
    declaration: CacheDeclaration[Any]
    path: str


class CacheRegistry:
    """What is cached of the management cluster; in the order of registration, in which everything is listed."""

    def __init__(
        self,
        namespaces: Mapping[Scope, str | None],
        *,
        in_touch_again: Callable[[], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``namespaces``: None for all. ``in_touch_again`` is called when a cache that decisions need is watched again
        after it could not be. ``monotonic`` is a clock, in seconds.
        """
        self._namespaces = namespaces
        self._in_touch_again = in_touch_again
        self._monotonic = monotonic
        self._registered: tuple[_Registered, ...] = ()
        self._needed: tuple[Cache[Any], ...] = ()
        self._begun = False

    def register(self, declaration: CacheDeclaration[Value]) -> Cache[Value]:
        """The cache, empty until :meth:`start` or :meth:`fill`.

        Raises:
            AlreadyRegistered: there is one of that name.
            RuntimeError: the caches are filled or watched already; it would stay empty.
        """
        resource, needed = declaration.resource, declaration.needed_by_decisions
        name = declaration.name or ("" if isinstance(resource, NotServed) else resource.plural)
        if self._begun:
            raise RuntimeError(f"cache {name} is registered after the caches were started")
        cache = Cache(
            name,
            declaration.parse,
            declaration.changed,
            listed=declaration.listed,
            in_touch_again=self._in_touch_again if needed else lambda: None,
            monotonic=self._monotonic,
        )
        if isinstance(resource, NotServed):
            return cache
        if any(one.cache.name == name for one in self._registered):
            raise AlreadyRegistered(f"there is a cache {name} already; give this one a name of its own")
        path = resource.collection(self._namespaces[declaration.scope])
        self._registered += (_Registered(cache, declaration, path),)
        if needed:
            self._needed += (cache,)
        return cache

    def watched(self) -> Iterator[Cache[Any]]:
        """Every cache that is kept."""
        return (one.cache for one in self._registered)

    def needed_by_decisions(self) -> tuple[Cache[Any], ...]:
        """Those that decisions rest on."""
        return self._needed

    def start(self, tasks: asyncio.TaskGroup, client: ListWatch) -> None:
        """Keep every cache up to date as long as ``tasks`` run."""
        self._begun = True
        for one in self._registered:
            tasks.create_task(_watch(client, one), name=f"watch {one.cache.name}")

    async def fill(self, source: List) -> None:
        """List everything once.

        Raises:
            ApiError: a collection cannot be listed.
        """
        self._begun = True
        for one in self._registered:
            one.declaration.begins()
            one.cache.replaced(await _listed(source, one))

    async def filled(self) -> None:
        """Wait until every cache that decisions need has had its first list."""
        for cache in self._needed:
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
        keep=cache.holds_of_list,
        standing=cache.standing,
    )


async def _listed(source: List, one: _Registered) -> list[JsonObject]:
    objects: list[JsonObject] = []
    async with contextlib.aclosing(source.list_pages(one.path, one.declaration.selectors or None)) as pages:
        try:
            async for page in pages:
                objects += [item for item in page["items"] if one.cache.holds_of_list(item)]
        except ResourceNotServed as error:
            raise ResourceNotServed(
                f"{one.path} is not served there: {APPLY_DEFINITIONS}", status=error.status
            ) from error
    return objects
