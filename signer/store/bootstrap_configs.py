"""KubeadmConfigs as they are mirrored: which version is served, the index by token, and when asking on is of no use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, Forbidden, NotFound
from signer.kube.resources import KUBEADM_CONFIGS_V1BETA1, KUBEADM_CONFIGS_V1BETA2, Resource
from signer.kube.watch import Source
from signer.model.bootstrap_token import (
    BootstrapConfigView,
    InvalidBootstrapConfig,
    Unowned,
    bootstrap_config_view,
)
from signer.model.cluster import MACHINE_POOL_KIND
from signer.store.mirror import Changed, Mirror, ObjectKey


class ConfigCalls(Source, Protocol):
    """The calls that are used of :class:`~signer.kube.client.Client`."""

    async def get(self, path: str) -> JsonObject:
        """See Client."""
        ...


class ConfigMirror(Mirror[BootstrapConfigView]):
    """A mirror that knows when asking on is of no use: no grant, or no such resource."""

    def __init__(
        self,
        changed: Changed[BootstrapConfigView],
        listed: Callable[[], None],
        failed: Callable[[], None],
        monotonic: Callable[[], float],
    ) -> None:
        super().__init__("kubeadmconfigs", bootstrap_config_view, changed, monotonic=monotonic)
        self._tell_listed = listed
        self._tell_failed = failed
        self.refused = asyncio.Event()
        self.refusal: ApiError = NotFound("not refused")

    def replaced(self, objects: Sequence[JsonObject]) -> None:
        """See :class:`~signer.kube.watch.Sink`."""
        super().replaced(objects)
        self._tell_listed()

    def failed(self, error: ApiError, retry_in_seconds: float) -> None:
        """See :class:`~signer.kube.watch.Sink`."""
        if isinstance(error, Forbidden | NotFound):
            self.refusal = error
            self.refused.set()
            return
        super().failed(error, retry_in_seconds)
        self._tell_failed()


@dataclass(slots=True)
class ConfigIndex:
    """KubeadmConfigs with a token, by its ID; and those of MachinePools."""

    _by_token: dict[tuple[str, str], dict[ObjectKey, BootstrapConfigView]] = field(default_factory=dict)
    _of_pools: dict[ObjectKey, BootstrapConfigView] = field(default_factory=dict)

    def holding(self, namespace: str, token_id: str) -> Iterable[BootstrapConfigView]:
        """Those of the namespace that hold the token."""
        return self._by_token.get((namespace, token_id), {}).values()

    def of_pools(self) -> Iterable[BootstrapConfigView]:
        """Those that MachinePools own."""
        return self._of_pools.values()

    def put(self, key: ObjectKey, view: BootstrapConfigView) -> None:
        """Add one that is not there; one without a token or without an owner leads nowhere."""
        if not view.token_id or isinstance(view.owner, Unowned):
            return
        self._by_token.setdefault((view.namespace, view.token_id), {})[key] = view
        if view.owner.kind == MACHINE_POOL_KIND:
            self._of_pools[key] = view

    def drop(self, key: ObjectKey, view: BootstrapConfigView) -> None:
        """Take one out, as it was when it was put in."""
        holders = self._by_token.get((view.namespace, view.token_id), {})
        holders.pop(key, None)
        if not holders:
            self._by_token.pop((view.namespace, view.token_id), None)
        self._of_pools.pop(key, None)


async def discover_kubeadm_configs(client: ConfigCalls) -> Resource:
    """The version in which KubeadmConfigs are served; other providers' kinds are in the same API group.

    Raises:
        NotFound: in neither.
        ApiError: it cannot be asked.
    """
    for resource in (KUBEADM_CONFIGS_V1BETA2, KUBEADM_CONFIGS_V1BETA1):
        try:
            served = await client.get(f"/apis/{resource.group}/{resource.version}")
        except NotFound:
            continue
        names = served.get("resources")
        if isinstance(names, list) and any(
            isinstance(one, dict) and one.get("name") == resource.plural for one in names
        ):
            return resource
    raise NotFound("no version of KubeadmConfigs is served")


def config_views(items: Iterable[object]) -> Iterable[BootstrapConfigView]:
    """The readable ones of a list's items."""
    for item in items:
        if isinstance(item, dict):
            try:
                yield bootstrap_config_view(item)
            except InvalidBootstrapConfig:
                continue
