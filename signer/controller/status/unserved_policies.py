"""Policies that no Cluster has: neither a schema nor CEL can say that a policy is named as its Cluster.

Nobody serves such a policy, so nobody else writes its status; a mistyped name would show as silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final

from attestors.registry import Registry
from signer.configuration import Configuration
from signer.controller.status.policy_status import PolicyStatus, permitted_in
from signer.kube.calls import GetPatch
from signer.model.cluster import EVERY_CLUSTER, ClusterKey
from signer.model.condition import WORKLOAD_CLUSTER_REACHABLE, PolicyCondition
from signer.model.policy import Policy
from signer.store.caches import Caches

LOOK_SECONDS: Final = 30.0
"""A policy that has no Cluster at two looks in a row says so: it may be applied a moment before its Cluster."""
CLUSTER_NOT_FOUND: Final = "ClusterNotFound"


class UnservedPolicies:
    """Writes the status of policies without a Cluster; one for the whole controller."""

    def __init__(
        self,
        client: GetPatch,
        caches: Caches,
        registry: Registry,
        configuration: Configuration,
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._caches = caches
        self._registry = registry
        self._configuration = configuration
        self._now = now
        self._seen: frozenset[ClusterKey] = frozenset()
        self._statuses: dict[ClusterKey, PolicyStatus] = {}

    async def run(self) -> None:
        """Look until cancelled; to be started once the inventory is filled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Write what is due; costs no call while nothing changes. Never raises ApiError.

        With a watch filter nothing is due: what is not there has no label, so each of several controllers would write.
        """
        if self._caches.watch_filter != EVERY_CLUSTER:
            return
        policies = {policy.cluster: policy for policy in self._caches.policies.values()}
        unserved = {
            key
            for key in policies
            # A name without a Cluster has a shard all the same.
            if self._caches.shards.own(key) and self._caches.clusters.get(key.namespace, key.name) is None
        }
        for key in self._statuses.keys() - unserved:
            del self._statuses[key]
        for key in sorted(unserved & self._seen, key=str):
            policy = policies[key]
            condition = PolicyCondition(
                WORKLOAD_CLUSTER_REACHABLE,
                False,
                CLUSTER_NOT_FOUND,
                f"namespace {key.namespace} has no Cluster {key.name}: a policy has the name of its Cluster",
            )
            if key not in self._statuses:
                permits = permitted_in(key.namespace, self._configuration, self._registry)
                self._statuses[key] = PolicyStatus(
                    self._client,
                    key,
                    self._registry,
                    self._now,
                    permits,
                    partial(self._caches.policy_statuses.shown, key),
                )
            readable = policy if isinstance(policy, Policy) else None
            await self._statuses[key].write(policy.generation, readable, [condition])
        self._seen = frozenset(unserved)
