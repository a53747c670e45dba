"""The management cluster's data for one decision: read once, so that all checks see the same state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from attestors.registry import Registry
from signer.audit.decision_inputs import DecisionInputs
from signer.configuration import Configuration
from signer.decision.attestor_set import AttestorSet
from signer.model.cluster import ClusterKey, ClusterView
from signer.model.decision import Deferred
from signer.model.policy import Policy
from signer.model.reasons import Reason
from signer.store.caches import Caches, UnreadablePolicy

_BROKEN_SECONDS: Final = 60.0
"""After this time, the cause of an attestor's failed preparation, such as a missing file, may be resolved."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One cluster at one moment."""

    cluster: ClusterView
    policy: Policy
    attestors: AttestorSet
    now: datetime
    decision_inputs: DecisionInputs = field(default_factory=DecisionInputs, repr=False, compare=False)
    """The decision records its inputs here, for the audit log."""
    audited: bool = field(default=False, compare=False)
    """Whether there is an audit log, so that inputs that take time to record are recorded too."""


class Snapshots:
    """Takes snapshots of one cluster, and keeps its attestors while its policy is unchanged."""

    def __init__(
        self,
        key: ClusterKey,
        configuration: Configuration,
        registry: Registry,
        caches: Caches,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._key = key
        self._configuration = configuration
        self._registry = registry
        self._caches = caches
        self._now = now
        self._monotonic = monotonic
        self._attestors: AttestorSet | None = None
        self._attestors_made = 0.0

    def take(self) -> Snapshot:
        """The cluster in its current state.

        Raises:
            Deferred: the management cluster is out of touch, or there is no valid policy.
        """
        cluster, policy = self._current()
        return Snapshot(cluster, policy, self.attestors(policy), self._now())

    def _current(self) -> tuple[ClusterView, Policy]:
        """The Cluster and its policy.

        Raises:
            Deferred: the management cluster is out of touch, or there is no valid policy.
        """
        self._caches.require_current(self._key.namespace)
        cluster = self._caches.clusters.get(self._key.namespace, self._key.name)
        policy = self._caches.policies.get(self._key.namespace, self._key.name)
        if cluster is None:
            raise Deferred(Reason.POLICY_INVALID, f"there is no Cluster {self._key}")
        if policy is None:
            raise Deferred(
                Reason.POLICY_INVALID,
                f"there is no NodeAttestationPolicy {self._key}, and without one the Cluster is not touched",
            )
        if isinstance(policy, UnreadablePolicy):
            raise Deferred(Reason.POLICY_INVALID, f"NodeAttestationPolicy {self._key}: {policy.message}")
        return cluster, policy

    def require_unchanged(self, snapshot: Snapshot) -> None:
        """Check that Cluster and policy are unchanged: attestation may take long, and a Cluster that is paused
        meanwhile is being moved to another controller.

        Raises:
            Deferred: the Cluster or its policy has changed.
        """
        if self._current() != (snapshot.cluster, snapshot.policy):
            raise Deferred(
                Reason.RESERVATION_PENDING,
                "the Cluster or its policy changed while the request was judged",
                timedelta(seconds=0.1),
            )

    def attestors(self, policy: Policy) -> AttestorSet:
        """The attestors under this policy; kept while the policy is unchanged and none of them is broken."""
        kept = self._attestors
        # Within tuples, an object equals itself without a comparison of its fields: the usual case.
        if kept is None or (kept.policy,) != (policy,) or (self._is_old() and kept.any_broken):
            kept = self._attestors = AttestorSet(
                policy, self._configuration, self._registry, self._caches.authentic.challenge_keys
            )
            self._attestors_made = self._monotonic()
        return kept

    def _is_old(self) -> bool:
        return self._monotonic() - self._attestors_made > _BROKEN_SECONDS
