"""Looks at what one cluster's decisions rest on, and says so in its policy's conditions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from signer.controller.status.policy_owner import PolicyOwner
from signer.controller.status.policy_status import PolicyStatus, permitted_in
from signer.controller.surroundings import Surroundings
from signer.decision.authority_source import AuthoritySource, AuthorityUnavailable
from signer.decision.decider import Decider
from signer.model import condition as condition_types
from signer.model.bootstrap_token import TracingInterrupted, TracingOff
from signer.model.cluster import ClusterKey
from signer.model.condition import PolicyCondition, with_ready
from signer.model.decision import printable
from signer.model.policy import Policy
from signer.store.caches import UnreadablePolicy
from signer.store.token_tracing import TracingOn


class StatusReconciler:
    """Surveys one workload cluster."""

    def __init__(self, key: ClusterKey, surroundings: Surroundings, authority_source: AuthoritySource) -> None:
        self._key = key
        self._around = surroundings
        self._authority_source = authority_source
        permits = permitted_in(key.namespace, surroundings.configuration, surroundings.registry)
        self.conditions: tuple[PolicyCondition, ...] = ()
        """What was found last, and whether it makes the policy ready."""
        self._owner = PolicyOwner(surroundings.management, surroundings.caches.version.clusters)
        self._status = PolicyStatus(
            surroundings.management,
            key,
            surroundings.registry,
            surroundings.now,
            permits,
            partial(surroundings.caches.policy_statuses.shown, key),
            surroundings.monotonic,
        )

    async def reconcile(
        self, decider: Decider, reachable: PolicyCondition, auto_approval: Callable[[], Sequence[PolicyCondition]]
    ) -> bool:
        """Write the policy's conditions, and the InfraCluster's signer names; returns whether there is a CA.

        ``auto_approval`` says what was found of the auto-approval, of the policy as it is at that moment.
        """
        authority = await self._authority_condition()
        policy = self._around.caches.policies.get(self._key.namespace, self._key.name)
        if policy is not None:
            tokens = self._tokens_condition()
            found = [self._attestors_condition(policy, decider), authority, reachable, *auto_approval(), tokens]
            followed = policy if isinstance(policy, Policy) else None
            self.conditions = with_ready(found, followed)
            await self._status.write(policy.generation, followed, found)
        cluster = self._around.caches.clusters.get(self._key.namespace, self._key.name)
        if isinstance(policy, Policy) and cluster is not None:
            await self._owner.ensure(cluster, policy)
            await self._around.infrastructure_status.publish(cluster, policy)
        return authority.met is True

    def _tokens_condition(self) -> PolicyCondition:
        kind = condition_types.BOOTSTRAP_TOKENS_TRACEABLE
        match self._around.bootstrap_tokens.tracing():
            case TracingOn():
                return PolicyCondition(kind, True, "Traced", "each token is followed to the Machine it was made for")
            case TracingOff(cause):
                return PolicyCondition(kind, False, "TracingOff", printable(cause))
            case TracingInterrupted(cause):
                return PolicyCondition(kind, None, "TracingInterrupted", printable(cause))

    async def _authority_condition(self) -> PolicyCondition:
        kind = condition_types.CERTIFICATE_AUTHORITY_AVAILABLE
        try:
            authority = await self._authority_source.authority()
        except AuthorityUnavailable as error:
            return PolicyCondition(kind, False, error.reason, str(error))
        end = authority.not_after
        if end <= self._around.now():
            return PolicyCondition(kind, False, "CertificateAuthorityExpired", f"expired at {end:%Y-%m-%d %H:%M} UTC")
        return PolicyCondition(kind, True, "Loaded", f"valid until {end:%Y-%m-%d}")

    def _attestors_condition(self, policy: Policy | UnreadablePolicy, decider: Decider) -> PolicyCondition:
        kind = condition_types.ATTESTORS_CONFIGURED
        if isinstance(policy, UnreadablePolicy):
            return PolicyCondition(kind, False, "PolicyInvalid", policy.message)
        broken = decider.attestors(policy).broken()
        if broken:
            reason = "AttestorNotAllowed" if any(one.forbidden for one in broken) else "AttestorUnavailable"
            return PolicyCondition(kind, False, reason, "; ".join(printable(one.message) for one in broken))
        return PolicyCondition(kind, True, "Configured", "every authorized attestor is ready")
