"""KubeadmConfigs: their API version, the index by bootstrap token, the cache, and rate-limited live lists.

Tenants write KubeadmConfigs, so each may be large and there may be many. Only a small view of each is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from signer.kube.calls import GetListWatch
from signer.kube.discovery import first_served
from signer.kube.errors import ApiError, Forbidden, ResourceNotServed, UnexpectedAnswer
from signer.kube.resources import KUBEADM_CONFIGS_V1BETA1, KUBEADM_CONFIGS_V1BETA2, Resource
from signer.model.bootstrap_token import (
    BootstrapConfigView,
    InvalidBootstrapConfig,
    TokenOwner,
    Unowned,
    bootstrap_config_view,
)
from signer.model.cluster import MACHINE_POOL_KIND
from signer.model.fields import MAXIMUM_NAME_CHARACTERS
from signer.store.cache import Cache, Changed, ObjectKey
from signer.store.namespace_bound import NamespaceBound

LIVE_LIST_SECONDS: Final = 10.0
"""Minimum time from the end of one live list of a namespace to the start of the next, and the time for which a live
list confirms a trace."""
LIVE_LIST_BYTES: Final = 64 * 1024 * 1024
LIVE_LIST_OBJECTS: Final = 20_000
LIVE_PAGE_OBJECTS: Final = 50
LIVE_LISTS_AT_ONCE: Final = 2
"""For all namespaces together: the calls that decisions wait for need connections too."""


class ConfigCache(Cache[BootstrapConfigView]):
    """A cache that stops when retrying is of no use: the grant is missing, or the resource is not served."""

    def __init__(
        self,
        changed: Changed[BootstrapConfigView],
        listed: Callable[[], None],
        failed: Callable[[], None],
        monotonic: Callable[[], float],
        bound: NamespaceBound,
        bound_changed: Callable[[str], None],
    ) -> None:
        super().__init__(
            bound.resource,
            bounded_view,
            changed,
            listed=listed,
            bound=bound,
            bound_changed=bound_changed,
            monotonic=monotonic,
        )
        self._tell_failed = failed
        self.refused = asyncio.Event()
        self.refusal: ApiError = ResourceNotServed("not refused")

    def failed(self, error: ApiError, retry_in_seconds: float) -> None:
        """See :class:`~signer.kube.watch.Sink`."""
        if isinstance(error, Forbidden | ResourceNotServed):
            self.refusal = error
            self.refused.set()
            return
        super().failed(error, retry_in_seconds)
        self._tell_failed()


@dataclass(slots=True)
class ConfigIndex:
    """KubeadmConfigs that hold a token, by token ID, and those of MachinePools."""

    _by_token: dict[tuple[str, str], dict[ObjectKey, BootstrapConfigView]] = field(default_factory=dict)
    _of_pools: dict[ObjectKey, BootstrapConfigView] = field(default_factory=dict)

    def holding(self, namespace: str, token_id: str) -> Iterable[BootstrapConfigView]:
        """The KubeadmConfigs of the namespace that hold the token, with and without an owner."""
        return self._by_token.get((namespace, token_id), {}).values()

    def of_pools(self) -> Iterable[BootstrapConfigView]:
        """The KubeadmConfigs that MachinePools own."""
        return self._of_pools.values()

    def put(self, key: ObjectKey, view: BootstrapConfigView) -> None:
        """Add a KubeadmConfig that the index does not hold. One without a token is left out."""
        if not view.token_id:
            return
        self._by_token.setdefault((view.namespace, view.token_id), {})[key] = view
        if isinstance(view.owner, TokenOwner) and view.owner.kind == MACHINE_POOL_KIND:
            self._of_pools[key] = view

    def drop(self, key: ObjectKey, view: BootstrapConfigView) -> None:
        """Remove a KubeadmConfig; ``view`` is the one that was added."""
        holders = self._by_token.get((view.namespace, view.token_id), {})
        holders.pop(key, None)
        if not holders:
            self._by_token.pop((view.namespace, view.token_id), None)
        self._of_pools.pop(key, None)


async def discover_kubeadm_configs(client: GetListWatch) -> Resource:
    """The newest API version in which KubeadmConfigs are served. Their API group also holds kinds of other providers.

    Raises:
        ResourceNotServed: no version is served, or none yet.
        ApiError: the API server cannot be asked.
    """
    return await first_served(client, KUBEADM_CONFIGS_V1BETA2, KUBEADM_CONFIGS_V1BETA1)


def bounded_view(manifest: Mapping[str, Any]) -> BootstrapConfigView:
    """Parse a KubeadmConfig into a view that holds only names.

    Raises:
        InvalidBootstrapConfig: it has no name or namespace, or its owner's name or UID is too long to be one.
    """
    view = bootstrap_config_view(manifest)
    owner = () if isinstance(view.owner, Unowned) else (view.owner.name, view.owner.uid)
    if max(map(len, (*owner, view.cluster_name))) > MAXIMUM_NAME_CHARACTERS:  # an owner reference may say anything
        raise InvalidBootstrapConfig("the name of its owner or Cluster is longer than names are")
    return view


# Live lists


@dataclass(frozen=True, slots=True)
class LiveList:
    """The result of one list of a namespace."""

    began: float
    index: ConfigIndex


@dataclass(frozen=True, slots=True)
class NotListed:
    """The last list of the namespace failed or was interrupted, and the next one may not begin yet."""

    cause: str


_NOT_LISTED: Final = NotListed("KubeadmConfigs have not been listed lately")


@dataclass(slots=True)
class _LastList:
    """The last list of one namespace; times are seconds of a monotonic clock."""

    ended: float = float("-inf")
    answer: LiveList | NotListed = _NOT_LISTED
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)


class LiveConfigs:
    """KubeadmConfigs read from the API server: bounded lists that concurrent callers share, at most one each
    ``LIVE_LIST_SECONDS`` for each namespace.

    The holder of a bootstrap token can make any number of requests that are refused, so each must not cost a list.
    """

    def __init__(self, client: GetListWatch, monotonic: Callable[[], float]) -> None:
        """``monotonic`` is a clock, in seconds."""
        self._client = client
        self._monotonic = monotonic
        self._slots = asyncio.Semaphore(LIVE_LISTS_AT_ONCE)
        self._last: dict[str, _LastList] = {}

    async def look(self, resource: Resource, namespace: str) -> LiveList | NotListed:
        """List the namespace's KubeadmConfigs, or return the last list if it ended within ``LIVE_LIST_SECONDS``.

        A caller that needs to know the age of the list reads ``LiveList.began``.
        """
        self._drop_expired()
        last = self._last.setdefault(namespace, _LastList())
        async with last.one_at_a_time:
            if self._may_list(last):
                async with self._slots:
                    await self._list(resource.collection(namespace), last)
            return last.answer

    def _may_list(self, last: _LastList) -> bool:
        return self._monotonic() >= last.ended + LIVE_LIST_SECONDS

    def _drop_expired(self) -> None:
        for last in self._last.values():
            if isinstance(last.answer, LiveList) and self._may_list(last):
                last.answer = _NOT_LISTED

    async def _list(self, path: str, last: _LastList) -> None:
        began = self._monotonic()
        last.answer = NotListed("the list of KubeadmConfigs was broken off")
        try:
            last.answer = LiveList(began, await self._read(path))
        except ApiError as error:
            last.answer = NotListed(f"KubeadmConfigs cannot be listed: {error}")
        finally:
            last.ended = self._monotonic()

    async def _read(self, path: str) -> ConfigIndex:
        index, count = ConfigIndex(), 0
        pages = self._client.list_pages(path, limit=LIVE_PAGE_OBJECTS, maximum_bytes=LIVE_LIST_BYTES)
        async with contextlib.aclosing(pages):
            async for page in pages:
                count += len(page["items"])
                if count > LIVE_LIST_OBJECTS:
                    raise UnexpectedAnswer(f"the list holds more than {LIVE_LIST_OBJECTS} objects", status=200)
                for view in _views(page["items"]):
                    index.put((view.namespace, view.name), view)
                page["items"].clear()  # before the next page is read
        return index


def _views(items: Iterable[object]) -> Iterable[BootstrapConfigView]:
    """The views of the readable items of a list."""
    for item in items:
        if isinstance(item, dict):
            try:
                yield bounded_view(item)
            except InvalidBootstrapConfig:
                continue
