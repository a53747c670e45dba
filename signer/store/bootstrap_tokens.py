"""The Machine or MachinePool for which a bootstrap token was made, from the KubeadmConfigs of the management cluster.

This cache is separate from :mod:`signer.store.caches`: KubeadmConfigs hold live tokens, so an operator may deny the
controller access to them, and other bootstrap providers have none. Tracing is then off, with a cause, and is retried;
all else goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from random import SystemRandom
from typing import Final, NoReturn

from signer.kube.backoff import Backoff
from signer.kube.calls import GetListWatch
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, Forbidden, ResourceNotServed
from signer.kube.resources import KUBEADM_CONFIGS_V1BETA2
from signer.kube.watch import list_and_watch
from signer.model.bootstrap_token import (
    BootstrapConfigView,
    InvalidRequester,
    NodeAsks,
    NodeRequester,
    PoolTokenIDs,
    TokenAsks,
    TokenOwner,
    TokenRequester,
    Trace,
    TracedTo,
    TracingInterrupted,
    TracingOff,
    Untraceable,
    requester_of,
)
from signer.model.cluster import MACHINE_POOL_KIND, ClusterKey, MachineView
from signer.model.decision import Deferred, Refused
from signer.model.machine_pool import MachinePoolView
from signer.model.policy import Policy
from signer.model.reasons import Reason
from signer.model.record import unidentified
from signer.rules.claim import TokenFacts, token_is_the_machines
from signer.store import token_tracing
from signer.store.bootstrap_configs import (
    LIVE_LIST_SECONDS,
    ConfigCache,
    ConfigIndex,
    LiveConfigs,
    LiveList,
    NotListed,
    discover_kubeadm_configs,
)
from signer.store.cache import MAXIMUM_OBJECTS, Cache, InTouch, ObjectKey
from signer.store.caches import Caches, ProviderIDs, Wake
from signer.store.namespace_bound import NamespaceBound
from signer.store.token_tracing import TokenTracing, Tracing, TracingOn

_LOG = logging.getLogger(__name__)
REFUSED_BACKOFF: Final = Backoff(base_seconds=5.0, maximum_seconds=300.0, jitter=0.5)
"""Delays after tracing was turned off: a grant or a CRD may be added at any time."""
DISCOVERY_BACKOFF: Final = Backoff(base_seconds=0.2, maximum_seconds=30.0, jitter=0.5)
"""Delays while API discovery fails."""
_JUST_CHANGED_SECONDS: Final = 1.0


class BootstrapTokens:
    """The KubeadmConfigs by token ID, and whether they can be relied upon."""

    def __init__(
        self,
        client: GetListWatch,
        caches: Caches,
        *,
        watch_namespace: str | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``watch_namespace`` limits KubeadmConfigs to one namespace, as in :class:`~signer.store.caches.Caches`.

        ``monotonic`` is a clock, in seconds.
        """
        self._state = TokenTracing(monotonic)
        self.answered = self._state.answered
        """Set once the first list has arrived, failed or timed out. Until then requests with a token wait."""
        self._client = client
        self._caches = caches
        self._watch_namespace = watch_namespace
        self._monotonic = monotonic
        self._random = SystemRandom()
        self._wakes: list[Wake] = []
        self._index = ConfigIndex()
        self._bound = caches.over_limits.add(
            NamespaceBound("kubeadmconfigs", caches.limits.kubeadm_configs, monotonic=monotonic)
        )
        self._configs = self._new_cache()
        self._resource = KUBEADM_CONFIGS_V1BETA2
        self._live = LiveConfigs(client, monotonic)

    def on_change(self, wake: Wake) -> None:
        """Call ``wake`` with the cluster and the provider IDs that a change of a KubeadmConfig concerns."""
        self._wakes.append(wake)

    # Queries

    def tracing(self) -> Tracing:
        """Whether tokens are traced now, and if not, why."""
        return self._state.now(self._configs.touch())

    def trace(self, cluster: ClusterKey, token_id: str) -> Trace:
        """Trace a token to its owners in the cache."""
        tracing = self.tracing()
        if not isinstance(tracing, TracingOn):
            return tracing
        return self._traced(cluster, self._index.holding(cluster.namespace, token_id))

    async def trace_live(self, cluster: ClusterKey, token_id: str) -> Trace:
        """Trace a token to its owners with a live list.

        The result is taken from a list that began after this call, or from one that began within the last
        ``LIVE_LIST_SECONDS`` if the cache is in touch and agrees with it now. Otherwise, and after any failure, it is
        an interruption, which neither refuses nor confirms the token.
        """
        asked = self._monotonic()
        found = await self._live.look(self._resource, cluster.namespace)
        if isinstance(found, NotListed):
            return TracingInterrupted(found.cause)
        traced = self._traced(cluster, found.index.holding(cluster.namespace, token_id))
        if found.began >= asked or (self._is_recent(found) and traced == self.trace(cluster, token_id)):
            return traced
        return TracingInterrupted("KubeadmConfigs were listed a moment ago, and are not listed again yet")

    def _is_recent(self, found: LiveList) -> bool:
        """Whether the cache can be relied on to have seen every change since that list."""
        in_touch = isinstance(self._configs.touch(), InTouch)
        return in_touch and self._monotonic() - found.began <= LIVE_LIST_SECONDS

    def asks(self, cluster: ClusterKey, username: str) -> NodeAsks | TokenAsks:
        """The kind of requester, with the trace of its token.

        Raises:
            Refused: the requester is neither a node nor a bootstrap token.
        """
        requester = _requester(username)
        return (
            NodeAsks() if isinstance(requester, NodeRequester) else TokenAsks(self.trace(cluster, requester.token_id))
        )

    async def require_token_of_machine(self, username: str, machine: MachineView, policy: Policy) -> None:
        """Check the bootstrap token, and confirm a refusal with the API server before raising it.

        This method either returns without having awaited anything, or raises. So all that the caller has read is still
        current when it returns.

        Raises:
            Refused: the token was made for another Machine, and the API server has just confirmed it.
            Deferred: the owner cannot be determined, or the KubeadmConfigs have just changed.
        """
        try:
            token_is_the_machines(TokenFacts(self.asks(machine.cluster, username), machine, policy))
        except Refused as refusal:
            requester = _requester(username)
            if isinstance(requester, NodeRequester):
                raise
            live = await self.trace_live(machine.cluster, requester.token_id)
            token_is_the_machines(TokenFacts(TokenAsks(live), machine, policy))
            raise Deferred(
                Reason.BOOTSTRAP_TOKEN_UNTRACEABLE,
                "the KubeadmConfig of the bootstrap token has just changed",
                timedelta(seconds=_JUST_CHANGED_SECONDS),
            ) from refusal

    def pool_tokens(self, cluster: ClusterKey) -> PoolTokenIDs | TracingOff | TracingInterrupted:
        """The tokens that only the cluster's MachinePools use, which exist and are not being deleted.

        A token that another KubeadmConfig holds too does not count. A thief that may write KubeadmConfigs could name a
        pool as the owner of its own, and keep the stolen token of a Machine from expiring.
        """
        tracing = self.tracing()
        if not isinstance(tracing, TracingOn):
            return tracing
        named = {view.token_id for view in self._index.of_pools() if self._is_of_living_pool(view, cluster)}
        return PoolTokenIDs(frozenset(token_id for token_id in named if self._is_of_pools_alone(token_id, cluster)))

    def _is_of_pools_alone(self, token_id: str, cluster: ClusterKey) -> bool:
        return all(self._is_of_living_pool(view, cluster) for view in self._index.holding(cluster.namespace, token_id))

    def _is_of_living_pool(self, view: BootstrapConfigView, cluster: ClusterKey) -> bool:
        """Whether its owner is a pool of the Cluster that exists: by UID, for a former pool of that name is another."""
        owner = view.owner
        if not isinstance(owner, TokenOwner) or owner.kind != MACHINE_POOL_KIND:
            return False
        pool = self._caches.machine_pools.get(owner.namespace, owner.name)
        return pool is not None and (pool.cluster, pool.uid) == (cluster, owner.uid) and not pool.deleting

    # The cache

    async def list_once(self) -> None:
        """List the KubeadmConfigs once, for a command that does not keep watching. After a failure, tracing gives the
        cause.
        """
        try:
            self._resource = await discover_kubeadm_configs(self._client)
            objects: list[JsonObject] = []
            self._configs.list_begins()
            async with contextlib.aclosing(
                self._client.list_pages(self._resource.collection(self._watch_namespace))
            ) as pages:
                async for page in pages:
                    objects += [item for item in page["items"] if self._configs.parse_list_item(item)]
        except ApiError as error:
            self._state.one_list_failed(_ended_by(error))
        else:
            self._configs.replaced(objects)

    async def run(self) -> NoReturn:
        """Keep the cache up to date until cancelled. While KubeadmConfigs cannot be read, retry with backoff."""
        self._state.begins()
        too_long = asyncio.get_running_loop().call_later(token_tracing.INTERRUPTION_SECONDS, self.answered.set)
        try:
            await self._watch_for_ever()
        finally:
            too_long.cancel()

    async def _watch_for_ever(self) -> NoReturn:
        refusals = failures = 0
        while True:
            began = self._monotonic()
            ended = await self._watch_until_refused()
            if self._monotonic() - began > REFUSED_BACKOFF.maximum_seconds:
                refusals = failures = 0
            if isinstance(ended, TracingOff) and self._state.is_lasting(ended):
                self._state.turned_off(ended)
                delay, refusals, failures = REFUSED_BACKOFF.delay(refusals, self._random), refusals + 1, 0
            else:
                delay, failures = DISCOVERY_BACKOFF.delay(failures, self._random), failures + 1
                if isinstance(ended, TracingOff):
                    delay = min(delay, self._state.refused_seconds / 4)
                else:
                    self._state.discovery_failed(ended)
            await asyncio.sleep(delay)

    async def _watch_until_refused(self) -> TracingOff | TracingInterrupted:
        """List and watch; returns why this ended."""
        try:
            self._resource = await discover_kubeadm_configs(self._client)
        except ApiError as error:
            return _ended_by(error)
        self._index = ConfigIndex()
        configs = self._configs = self._new_cache()
        watching = asyncio.create_task(
            list_and_watch(
                self._client,
                self._resource.collection(self._watch_namespace),
                sink=configs,
                keep=configs.parse_list_item,
                maximum_objects=MAXIMUM_OBJECTS,
                established=configs.established,
                census=configs,
            ),
            name="watch kubeadmconfigs",
        )
        refused = asyncio.create_task(configs.refused.wait())
        try:
            await asyncio.wait({watching, refused}, return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
            return _ended_by(configs.refusal)
        finally:
            watching.cancel()
            refused.cancel()
            await asyncio.gather(watching, refused, return_exceptions=True)

    def _new_cache(self) -> ConfigCache:
        self._bound.reset()
        return ConfigCache(
            self._changed,
            self._listed,
            self._state.failed,
            self._monotonic,
            self._bound,
            self._caches.bound_changed,
        )

    def _listed(self) -> None:
        self._state.listed(len(self._configs))

    def _changed(self, key: ObjectKey, before: BootstrapConfigView | None, after: BootstrapConfigView | None) -> None:
        if before == after:
            return
        if before is not None:
            self._index.drop(key, before)
        if after is not None:
            self._index.put(key, after)
        told: set[tuple[ClusterKey, ProviderIDs]] = set()
        for view in (before, after, *self._left_alone(before)):
            if view is not None and view.token_id and isinstance(view.owner, TokenOwner):
                told.add((self._cluster_of(view, view.owner), self._provider_ids(view.owner)))
        for cluster, provider_ids in told:
            if provider_ids:
                for wake in self._wakes:
                    wake(cluster, provider_ids)

    def _left_alone(self, before: BootstrapConfigView | None) -> tuple[BootstrapConfigView, ...]:
        """The KubeadmConfig whose owner now is the only one of the former token: its request may have waited for that.

        An operator may have preset one token for thousands, so this looks at two of them.
        """
        if before is None or not before.token_id:
            return ()
        holders = iter(self._index.holding(before.namespace, before.token_id))
        first = next(holders, None)
        return () if first is None or any(one.owner != first.owner for one in holders) else (first,)

    def _provider_ids(self, owner: TokenOwner) -> ProviderIDs:
        """The keys whose requests wait for a token of this owner: provider IDs, or that of a Machine without one."""
        if owner.kind == MACHINE_POOL_KIND:
            pool = self._caches.machine_pools.get(owner.namespace, owner.name)
            return frozenset() if pool is None else pool.provider_ids
        machine = self._caches.machines.get(owner.namespace, owner.name)
        if machine is None:
            return frozenset()
        return frozenset({machine.provider_id or unidentified(machine.name)})

    def _cluster_of(self, view: BootstrapConfigView, owner: TokenOwner) -> ClusterKey:
        """The owner's Cluster, which cannot change; while the owner is not cached, the Cluster that the label names."""
        owners: Cache[MachineView] | Cache[MachinePoolView] = (
            self._caches.machine_pools if owner.kind == MACHINE_POOL_KIND else self._caches.machines
        )
        known = owners.get(owner.namespace, owner.name)
        return ClusterKey(view.namespace, view.cluster_name) if known is None else known.cluster

    def _traced(self, cluster: ClusterKey, views: Iterable[BootstrapConfigView]) -> TracedTo | Untraceable:
        owners: set[TokenOwner] = set()
        held_elsewhere = False
        for view in views:
            if isinstance(view.owner, TokenOwner) and self._cluster_of(view, view.owner) == cluster:
                owners.add(view.owner)
            else:
                held_elsewhere = True
        return TracedTo(frozenset(owners), held_elsewhere) if owners else Untraceable()


def _ended_by(error: ApiError) -> TracingOff | TracingInterrupted:
    if isinstance(error, Forbidden):
        return TracingOff(f"the grant to list and watch kubeadmconfigs is missing: {error}")
    if isinstance(error, ResourceNotServed):
        return TracingOff("the management cluster serves no KubeadmConfigs")
    return TracingInterrupted(f"KubeadmConfigs cannot be looked for: {error}")


def _requester(username: str) -> NodeRequester | TokenRequester:
    try:
        return requester_of(username)
    except InvalidRequester as error:
        raise Refused(Reason.REQUESTER_NOT_ALLOWED, f"requested by {username}: {error}") from error
