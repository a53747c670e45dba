"""Reports policies without a Cluster: neither a schema nor CEL can require that a policy has its Cluster's name.

No cluster task serves such a policy, so without this module a mistyped name would leave its status empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Final

from attestors.registry import Registry
from signer.configuration import Configuration
from signer.controller.status.over_limit import over_limit_conditions
from signer.controller.status.policy_status import PolicyStatus, permitted_in
from signer.kube.calls import GetPatch
from signer.model.cluster import EVERY_CLUSTER, ClusterKey
from signer.model.condition import WORKLOAD_CLUSTER_REACHABLE, PolicyCondition
from signer.model.policy import Policy
from signer.store.caches import Caches

CHECK_SECONDS: Final = 30.0
"""A policy without a Cluster in two consecutive checks is reported: it may be applied shortly before its Cluster."""
CLUSTER_NOT_FOUND: Final = "ClusterNotFound"


class UnservedPolicies:
    """Writes the status of policies without a Cluster; one instance serves the whole controller."""

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
        self._previous: frozenset[ClusterKey] = frozenset()
        self._statuses: dict[ClusterKey, PolicyStatus] = {}

    async def run(self) -> None:
        """Check periodically until cancelled. Start it once the caches are filled."""
        while True:
            await self.check()
            await asyncio.sleep(CHECK_SECONDS)

    async def check(self) -> None:
        """Write the status of unserved policies. Makes no call while nothing changes, and never raises ApiError.

        With a watch filter it does nothing: a missing Cluster has no label, so every controller would write.
        """
        if self._caches.watch_filter != EVERY_CLUSTER:
            return
        policies = {policy.cluster: policy for policy in self._caches.policies.values()}
        unserved = {
            key
            for key in policies
            # A name has a shard even without a Cluster.
            if self._caches.shards.own(key) and self._caches.clusters.get(key.namespace, key.name) is None
        }
        for key in self._statuses.keys() - unserved:
            del self._statuses[key]
        for key in sorted(unserved & self._previous, key=str):
            policy = policies[key]
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
            await self._statuses[key].write(policy.generation, readable, self._conditions(key))
        self._previous = frozenset(unserved)

    def _conditions(self, key: ClusterKey) -> tuple[PolicyCondition, ...]:
        if over := over_limit_conditions(self._caches, key.namespace):
            return over  # the Cluster may have been dropped
        return (
            PolicyCondition(
                WORKLOAD_CLUSTER_REACHABLE,
                False,
                CLUSTER_NOT_FOUND,
                f"namespace {key.namespace} has no Cluster {key.name}: a policy has the name of its Cluster",
            ),
        )
