"""Restores bindings that Enforce removed from clusters whose NodeAttestationPolicy is gone, and cuts back their tokens.

A cluster with a policy is handled by its own task (:mod:`signer.controller.auto_approval.removal`). This module handles
clusters whose policy was deleted, perhaps while no controller ran. A deletion by ``clusterctl move`` does not count:
the policy continues in another management cluster, still with mode Enforce.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

from signer.configuration import AllowedAuthorities
from signer.controller.auto_approval.pool_tokens import GrantMissing, Intent, PoolTokens, Unfinished
from signer.controller.auto_approval.refusal import remove_refusal
from signer.controller.workload_access import MAXIMUM_BODY_BYTES, WorkloadAccessRefused, workload_connection
from signer.decision.authority_secrets import AuthorityUnavailable
from signer.decision.authority_source import AuthoritySource, ChosenSecrets
from signer.kube.backoff import Backoff
from signer.kube.calls import Get
from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.errors import ApiError, Forbidden, NotFound
from signer.kube.resource_limits import ResourceLimits
from signer.kube.resources import NODE_ATTESTATION_POLICIES
from signer.kube.tls import TlsMaterialRefused
from signer.kube.workqueue import WorkQueue
from signer.model.auto_approval import ClusterIdentity
from signer.model.bootstrap_token import PoolTokenIDs
from signer.model.cluster import ClusterKey, ClusterView, cluster_view
from signer.model.flow import Flow, PriorityLevel
from signer.model.policy import MachinePoolTokens, Mode, Policy
from signer.model.saved_bindings import BindingsNotSaved, OtherLineages
from signer.store.caches import Caches
from signer.store.removed_bindings import NothingSaved, RemovedBindings

_LOG = logging.getLogger(__name__)

RESYNC_SECONDS: Final = 300.0
"""How often all saved bindings are checked without a change."""
WORKERS: Final = 4
"""A workload cluster that does not respond blocks one worker until its call times out."""
CLUSTER_TIMEOUT_SECONDS: Final = 120.0
RETRY: Final = Backoff(base_seconds=5.0, maximum_seconds=600.0, jitter=0.5)


def _flow(cluster: ClusterKey) -> Flow:
    """One flow per namespace: a thousand clusters of one tenant, whose API servers hang, must not delay all others."""
    return Flow(PriorityLevel.PLAUSIBLE, cluster.namespace)


Connect = Callable[[Get, ClusterKey], Awaitable[ClusterConnection]]


class _NotNow(Exception):
    """Restoration must wait, for the reason in the message. A change of the Cluster or its policy triggers it again."""


class _Gone(_NotNow):
    """The Cluster no longer exists."""


class _StillExtended(Exception):
    """Some bootstrap tokens are not cut back yet; retried."""


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
        """``connect`` gives the connection to a workload cluster, or raises WorkloadAccessRefused.

        ``resource_limits`` are those of all workload clusters, because a hostile one's policy can be deleted too.
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
        """Clusters that have a policy or saved bindings; changes of others are ignored."""
        self._moving: set[ClusterKey] = set()
        """Clusters whose policy was last observed while a move deleted it."""
        self._extending: set[ClusterKey] = set()
        """Clusters whose policy once asked for extended bootstrap tokens, which may exist without saved bindings."""
        self._known_gone: set[ClusterKey] = set()
        """Deleted Clusters with saved bindings, which every resync finds again."""
        caches.on_cluster_change(self._on_change)
        caches.on_shards_changed(self._on_shards)

    async def run(self) -> None:
        """Restore until cancelled. Start it once the caches are filled."""
        for policy in self._caches.policies.values():
            self._note_policy(policy.cluster)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._resync_forever(), name="saved bindings")
            for number in range(WORKERS):
                tasks.create_task(self._work(), name=f"restoration worker {number}")

    def _on_change(self, cluster: ClusterKey) -> None:
        if not self._note_policy(cluster) and cluster in self._concerned:
            self._queue_if_due(cluster)

    def _on_shards(self) -> None:
        """Check all clusters again: a policy may have been deleted while another replica had the shard."""
        for cluster in list(self._concerned):
            self._queue_if_due(cluster)

    def _queue_if_due(self, cluster: ClusterKey) -> None:
        if not self._caches.watches(cluster.namespace):
            return  # all controllers save bindings in one namespace; this one does not watch the cluster's policies
        if self._caches.over_limits.of(cluster.namespace):
            return  # the policy may have been dropped; once the namespace is within its limits, this is called again
        if self._caches.policies.get(cluster.namespace, cluster.name) is not None:
            return
        if self._caches.shards.own(cluster):
            self._queue.add(cluster)
        elif self._caches.clusters.get(cluster.namespace, cluster.name) is None:
            self._forget(cluster)  # otherwise clusters of other replicas' shards would accumulate

    def _note_policy(self, cluster: ClusterKey) -> bool:
        """Remember what is needed once the policy is gone; returns whether there is a policy."""
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

    async def _resync_forever(self) -> None:
        while True:
            try:
                owners = await self._removed.owners()
                self._known_gone &= owners
                for cluster in owners:
                    self._concerned.add(cluster)
                    self._queue_if_due(cluster)
            except BindingsNotSaved as error:
                _LOG.warning("cannot list saved bindings", extra={"error": str(error)})
            await asyncio.sleep(RESYNC_SECONDS)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                async with asyncio.timeout(CLUSTER_TIMEOUT_SECONDS):
                    await self._restore(key)
            except _NotNow as reason:
                self._log_skipped(key, reason)
                if isinstance(reason, _Gone):
                    self._forget(key)
                    self._known_gone.add(key)
                self._queue.forget(key)
            except Exception as error:  # noqa: BLE001 - isolation: one cluster's failure must not end the worker
                self._retry(key, error)
            else:
                self._queue.forget(key)
                if self._caches.policies.get(key.namespace, key.name) is None:
                    self._forget(key)
            finally:
                self._queue.done(key)

    def _log_skipped(self, key: ClusterKey, reason: _NotNow) -> None:
        """Log why a cluster is skipped; once for a deleted Cluster, because its saved bindings stay forever."""
        if not (isinstance(reason, _Gone) and key in self._known_gone):
            _LOG.info("saved bindings are not restored now", extra={"cluster": str(key), "detail": str(reason)})

    def _forget(self, key: ClusterKey) -> None:
        """Forget a cluster with nothing left to do; resyncs find saved bindings of deleted Clusters again."""
        self._concerned.discard(key)
        self._moving.discard(key)
        self._extending.discard(key)

    def _retry(self, key: ClusterKey, error: Exception) -> None:
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
        """Cut back extended tokens, and restore the bindings that were removed from the cluster.

        Raises:
            _NotNow: the Cluster has a policy, is gone, paused, being deleted, or moving.
            BindingsNotSaved, AuthorityUnavailable, WorkloadAccessRefused, ApiError, _StillExtended: retried.
        """
        cluster = await self._require_without_policy(key)
        nothing_saved = isinstance(await self._removed.saved(key), NothingSaved)
        if nothing_saved and key not in self._extending:
            return
        connection = await self._connect(self._management, key)
        limits = self._resource_limits.of_namespace(key.namespace)
        client = Client(connection, maximum_body_bytes=MAXIMUM_BODY_BYTES, resource_limits=limits)
        async with client as workload:
            # First, because an extended token must never coincide with auto-approval.
            await self._end_extensions(key, workload)
            if self._caches.floors.of(key.namespace).mode is Mode.ENFORCE:
                raise _NotNow("the operator's floor for this namespace is mode Enforce, with or without a policy")
            await self._end_refusal(key, workload)
            if nothing_saved:
                return
            # Without a policy, none names other Secrets.
            choose = ChosenSecrets(key, self._caches, AllowedAuthorities())
            source = AuthoritySource(self._management, key, choose=choose, now=self._now, monotonic=self._monotonic)
            ca_cert_hash = (await source.authority()).serving.certificate.public_key_hash
            restored = await self._removed.restore(ClusterIdentity(key, cluster.uid, ca_cert_hash), workload)
        if isinstance(restored.others, OtherLineages):
            _LOG.warning(
                "only an administrator can restore some saved bindings",
                extra={"cluster": str(key), "detail": str(restored.others)},
            )
        if restored.not_restored:
            raise BindingsNotSaved("; ".join(str(one) for one in restored.not_restored))

    async def _end_extensions(self, key: ClusterKey, workload: Client) -> None:
        """Cut back all extended bootstrap tokens.

        Raises:
            _StillExtended: some are not cut back yet.
        """
        tokens = PoolTokenIDs(frozenset())  # none is extended any more
        match await PoolTokens(key, now=self._now).tend(workload, Intent.CUT_BACK, tokens):
            case Unfinished(message=message) | GrantMissing(message=message):
                raise _StillExtended(f"bootstrap tokens of MachinePools are still extended: {message}")
            case _:
                self._extending.discard(key)

    async def _end_refusal(self, key: ClusterKey, workload: Client) -> None:
        """Remove the admission policies of mode Enforce. A user that may not do that installed none.

        Raises:
            ApiError: from the workload cluster.
        """
        try:
            await remove_refusal(workload)
        except Forbidden as error:
            _LOG.warning(
                "cannot look for admission policies of mode Enforce", extra={"cluster": str(key), "error": str(error)}
            )

    async def _require_without_policy(self, key: ClusterKey) -> ClusterView:
        """The Cluster, after live reads that its bindings may be restored: the caches may lag behind a move.

        Raises:
            _NotNow: nothing may be restored.
        """
        if self._caches.over_limits.of(key.namespace):
            raise _NotNow("the namespace has more objects than the operator's limit")
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
        if not self._caches.watch_filter.selects(cluster):
            raise _NotNow("the Cluster does not match this controller's watch filter")
        return cluster
