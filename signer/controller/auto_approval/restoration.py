"""Restores what Enforce removed from clusters whose NodeAttestationPolicy is gone, and ends what it extended.

A cluster with a policy is its own task's business (:mod:`signer.controller.auto_approval.removal`). This looks after
the others: the policy was deleted, perhaps while no controller ran. A deletion that is part of ``clusterctl move`` is
none: the policy lives on in another management cluster, and there still says Enforce.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

from signer.controller.auto_approval.pool_tokens import GrantMissing, Intent, PoolTokens, Unfinished
from signer.controller.workload_access import MAXIMUM_BODY_BYTES, WorkloadAccessRefused, workload_connection
from signer.decision.authority_source import AuthoritySource, AuthorityUnavailable
from signer.kube.backoff import Backoff
from signer.kube.calls import Get
from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.errors import ApiError, NotFound
from signer.kube.resource_limits import ResourceLimits
from signer.kube.resources import NODE_ATTESTATION_POLICIES
from signer.kube.tls import TlsMaterialRefused
from signer.kube.workqueue import WorkQueue
from signer.model.auto_approval import ClusterIdentity
from signer.model.bootstrap_token import PoolTokenIDs
from signer.model.cluster import ClusterKey, ClusterView, cluster_view
from signer.model.flow import Flow, PriorityLevel
from signer.model.policy import MachinePoolTokens, Policy
from signer.model.saved_bindings import BindingsNotSaved, OtherLineages
from signer.store.caches import ALL_PROVIDER_IDS, Caches, ProviderIDs
from signer.store.removed_bindings import NothingSaved, RemovedBindings

_LOG = logging.getLogger(__name__)

LOOK_SECONDS: Final = 300.0
"""How often all saved bindings are looked at when nothing asks for it."""
WORKERS: Final = 4
"""A workload cluster that does not answer holds up one of them, for as long as one call may take."""
CLUSTER_TIMEOUT_SECONDS: Final = 120.0
RETRY: Final = Backoff(base_seconds=5.0, maximum_seconds=600.0, jitter=0.5)


def _flow(cluster: ClusterKey) -> Flow:
    """Namespaces take turns: a thousand clusters of one tenant, whose API servers hang, must not hold up all others."""
    return Flow(PriorityLevel.PLAUSIBLE, cluster.namespace)


Connect = Callable[[Get, ClusterKey], Awaitable[ClusterConnection]]


class _NotNow(Exception):
    """It must wait; the message says for what. A change of the Cluster or its policy brings it up again."""


class _Gone(_NotNow):
    """There is no such Cluster any more."""


class _StillExtended(Exception):
    """Bootstrap tokens live longer than they would have without the policy; to be tried again."""


class Restoration:
    """Restores the clusters that have saved bindings and no policy."""

    def __init__(
        self,
        caches: Caches,
        management: Get,
        removed: RemovedBindings,
        *,
        resource_limits: ResourceLimits,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        connect: Connect = workload_connection,
    ) -> None:
        """``connect`` gives the connection to a workload cluster; it raises WorkloadAccessRefused. ``resource_limits``
        are those of all workload clusters: the policy of a hostile one can be deleted as well.
        """
        self._caches = caches
        self._resource_limits = resource_limits
        self._management = management
        self._removed = removed
        self._now = now
        self._monotonic = monotonic
        self._connect = connect
        self._queue: WorkQueue[ClusterKey] = WorkQueue(backoff=RETRY, flow_of=_flow)
        self._concerned: set[ClusterKey] = set()
        """Clusters that have a policy, or saved bindings: a change of another needs no look."""
        self._moving: set[ClusterKey] = set()
        """Clusters whose policy, when last seen, was being deleted by a move."""
        self._extending: set[ClusterKey] = set()
        """Clusters whose policy once asked for long-lived bootstrap tokens; they may have them, and nothing kept."""
        self._known_gone: set[ClusterKey] = set()
        """Clusters for which something is kept and that are gone: each look finds them again."""
        caches.on_change(self._on_change)
        caches.on_shards(self._on_shards)

    async def run(self) -> None:
        """Restore until cancelled. Begin when the inventory has been filled."""
        for policy in self._caches.policies.values():
            self._note_policy(policy.cluster)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look_for_ever(), name="saved bindings")
            for number in range(WORKERS):
                tasks.create_task(self._work(), name=f"restoration worker {number}")

    def _on_change(self, cluster: ClusterKey, provider_ids: ProviderIDs) -> None:
        if provider_ids != ALL_PROVIDER_IDS:
            return
        if not self._note_policy(cluster) and cluster in self._concerned:
            self._queue_if_due(cluster)

    def _on_shards(self) -> None:
        """A policy may have gone while its Cluster was another replica's, which may have ended since."""
        for cluster in list(self._concerned):
            self._queue_if_due(cluster)

    def _queue_if_due(self, cluster: ClusterKey) -> None:
        if not self._caches.watches(cluster.namespace):
            return  # what all controllers keep lies in one namespace, and of this one's policies nothing is known here
        if self._caches.policies.get(cluster.namespace, cluster.name) is not None:
            return
        if self._caches.shards.own(cluster):
            self._queue.add(cluster)
        elif self._caches.clusters.get(cluster.namespace, cluster.name) is None:
            self._forget(cluster)  # else all that ever were in other replicas' shards would be remembered

    def _note_policy(self, cluster: ClusterKey) -> bool:
        """Remember what will matter once the policy is gone; returns whether there is one."""
        policy = self._caches.policies.get(cluster.namespace, cluster.name)
        if policy is None:
            return False
        self._concerned.add(cluster)
        if isinstance(policy, Policy) and policy.machine_pool_tokens is MachinePoolTokens.EXTEND:
            self._extending.add(cluster)
        if policy.deleting_for_move:
            self._moving.add(cluster)
        else:
            self._moving.discard(cluster)
        return True

    async def _look_for_ever(self) -> None:
        while True:
            try:
                owners = await self._removed.owners()
                self._known_gone &= owners
                for cluster in owners:
                    self._concerned.add(cluster)
                    self._queue_if_due(cluster)
            except BindingsNotSaved as error:
                _LOG.warning("cannot look for saved bindings", extra={"error": str(error)})
            await asyncio.sleep(LOOK_SECONDS)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                async with asyncio.timeout(CLUSTER_TIMEOUT_SECONDS):
                    await self._restore(key)
            except _NotNow as reason:
                self._say(key, reason)
                if isinstance(reason, _Gone):
                    self._forget(key)
                    self._known_gone.add(key)
                self._queue.forget(key)
            except Exception as error:  # noqa: BLE001 - isolation: one cluster's fault never stops the others'
                self._again(key, error)
            else:
                self._queue.forget(key)
                if self._caches.policies.get(key.namespace, key.name) is None:
                    self._forget(key)
            finally:
                self._queue.done(key)

    def _say(self, key: ClusterKey, reason: _NotNow) -> None:
        """Of what is gone once: of many Clusters that were deleted, something is kept for ever."""
        if not (isinstance(reason, _Gone) and key in self._known_gone):
            _LOG.info("saved bindings are not restored now", extra={"cluster": str(key), "detail": str(reason)})

    def _forget(self, key: ClusterKey) -> None:
        """Nothing is left to do; what is kept of a Cluster that is gone is found again by the looks."""
        self._concerned.discard(key)
        self._moving.discard(key)
        self._extending.discard(key)

    def _again(self, key: ClusterKey, error: Exception) -> None:
        seconds = self._queue.retry(key)
        known = isinstance(
            error,
            ApiError
            | BindingsNotSaved
            | AuthorityUnavailable
            | WorkloadAccessRefused
            | TlsMaterialRefused
            | TimeoutError
            | _StillExtended,
        )
        _LOG.warning(
            "cannot restore what Enforce removed",
            exc_info=None if known else error,
            extra={
                "cluster": str(key),
                "error": str(error) or type(error).__name__,
                "retryInSeconds": round(seconds, 1),
            },
        )

    async def _restore(self, key: ClusterKey) -> None:
        """End what was extended, and restore what was removed.

        Raises:
            _NotNow: it has a policy, is gone, paused, being deleted, or moving.
            BindingsNotSaved, AuthorityUnavailable, WorkloadAccessRefused, ApiError, _StillExtended: to be tried again.
        """
        cluster = await self._require_without_policy(key)
        nothing_saved = isinstance(await self._removed.kept(key), NothingSaved)
        if nothing_saved and key not in self._extending:
            return
        connection = await self._connect(self._management, key)
        client = Client(connection, maximum_body_bytes=MAXIMUM_BODY_BYTES, resource_limits=self._resource_limits)
        async with client as workload:
            # Before the door is opened again: no token that was made to live long may find it open.
            await self._end_extensions(key, workload)
            if nothing_saved:
                return
            source = AuthoritySource(self._management, key, now=self._now, monotonic=self._monotonic)
            ca_cert_hash = (await source.authority()).client.certificate.public_key_hash
            restored = await self._removed.restore(ClusterIdentity(key, cluster.uid, ca_cert_hash), workload)
        if isinstance(restored.others, OtherLineages):
            _LOG.warning(
                "grants are kept that only a person can restore",
                extra={"cluster": str(key), "detail": str(restored.others)},
            )
        if restored.not_restored:
            raise BindingsNotSaved("; ".join(str(one) for one in restored.not_restored))

    async def _end_extensions(self, key: ClusterKey, workload: Client) -> None:
        """Bootstrap tokens of MachinePools live as long as they would have without the policy.

        Raises:
            _StillExtended: some do not yet.
        """
        tokens = PoolTokenIDs(frozenset())  # none is wanted any more
        match await PoolTokens(key, now=self._now).tend(workload, Intent.CUT_BACK, tokens):
            case Unfinished(message=message) | GrantMissing(message=message):
                raise _StillExtended(f"bootstrap tokens of MachinePools still live long: {message}")
            case _:
                self._extending.discard(key)

    async def _require_without_policy(self, key: ClusterKey) -> ClusterView:
        """The Cluster. Asked of the API server itself: the caches may lag behind a move.

        Raises:
            _NotNow: nothing may be restored.
        """
        if key in self._moving:
            raise _NotNow("the policy was deleted by a move to another management cluster")
        with contextlib.suppress(NotFound):
            await self._management.get(NODE_ATTESTATION_POLICIES.object(key.name, key.namespace))
            raise _NotNow("the cluster has a policy")
        try:
            manifest = await self._management.get(self._caches.version.clusters.object(key.name, key.namespace))
        except NotFound:
            raise _Gone("the Cluster is gone") from None
        cluster = cluster_view(manifest)
        if cluster.paused or cluster.deleting or cluster.deleting_for_move:
            raise _NotNow("the Cluster is paused, being deleted, or moving to another management cluster")
        if not self._caches.shards.own(key):
            raise _NotNow("the Cluster is in another replica's shard")
        if not self._caches.watch_filter.lets_in(cluster):
            raise _NotNow("the Cluster has another watch filter: it is another controller's, or nobody's")
        return cluster
