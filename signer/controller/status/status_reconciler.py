"""Reconciles the status of one cluster's policy: one condition for everything that decisions depend on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Protocol

from signer.controller.status.condition_log import ConditionLog
from signer.controller.status.infrastructure_status import InfrastructureStatus
from signer.controller.status.over_limit import access_over_limit_conditions, over_limit_conditions
from signer.controller.status.policy_owner import PolicyOwner
from signer.controller.status.policy_status import PolicyStatus
from signer.decision.authority_secrets import AuthorityUnavailable
from signer.decision.authority_sharing import AuthoritySharing, hashes_of
from signer.decision.authority_source import AuthoritySource
from signer.decision.decider import Decider
from signer.model import condition as condition_types
from signer.model.bootstrap_token import TracingInterrupted, TracingOff
from signer.model.cluster import ClusterKey
from signer.model.condition import PolicyCondition, with_ready
from signer.model.decision import Deferred, printable
from signer.model.floors import NO_FLOOR, below_floors
from signer.model.policy import MatchMachines, Policy
from signer.model.reasons import Reason
from signer.model.serving_networks import OperatorNetworks
from signer.rules.request import key_is_shared
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.caches import Caches, UnreadablePolicy
from signer.store.published_authorities import authorities_to_publish
from signer.store.token_tracing import TracingOn

_MOST_SHOWN: Final = 3
"""Machines, and addresses of each, in a message."""
_SHOWN_CLAIMS: Final = 3


class ConditionSource(Protocol):
    """Has conditions for one cluster's policy: its connection, or a service that runs for the cluster."""

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """The current conditions."""
        ...


class StatusReconciler:
    """Writes the status of one cluster's policy, and the signer names on its InfraCluster."""

    def __init__(
        self,
        key: ClusterKey,
        *,
        caches: Caches,
        authority_source: AuthoritySource,
        sharing: AuthoritySharing,
        decider: Decider,
        bootstrap_tokens: BootstrapTokens,
        policy_owner: PolicyOwner,
        policy_status: PolicyStatus,
        infrastructure_status: InfrastructureStatus,
        operator_networks: OperatorNetworks,
        sources: Sequence[ConditionSource],
        now: Callable[[], datetime],
        credentials: Callable[[], dict[str, Any]] = dict,
        ssh: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        """``sources`` have further conditions, in the order in which the policy shows them; ``credentials`` returns
        ``status.credentials`` and ``ssh`` ``status.ssh``, empty for none.
        """
        self._key = key
        self._caches = caches
        self._authority_source = authority_source
        self._sharing = sharing
        self._decider = decider
        self._bootstrap_tokens = bootstrap_tokens
        self._policy_owner = policy_owner
        self._policy_status = policy_status
        self._infrastructure_status = infrastructure_status
        self._operator_networks = operator_networks
        self._sources = sources
        self._credentials = credentials
        self._ssh = ssh
        self._now = now
        self._condition_log = ConditionLog(key)
        self.conditions: tuple[PolicyCondition, ...] = ()
        """The conditions of the last reconciliation, including ``Ready``."""
        self.authority_available = True
        """Whether the cluster's CA could sign at the last reconciliation."""

    async def reconcile(self) -> None:
        """Determine the policy's current conditions, and write them if they changed."""
        authority = await self._authority_condition()
        policy = self._caches.policies.get(self._key.namespace, self._key.name)
        if policy is not None:
            others = [condition for source in self._sources for condition in source.conditions]
            found = [
                *self._key_conditions(),
                *over_limit_conditions(self._caches, self._key.namespace),
                *access_over_limit_conditions(self._caches, self._key.namespace),
                self._attestors_condition(policy),
                authority,
                *self._sharing_conditions(),
                *others,
                self._tokens_condition(),
                self._addresses_condition(),
                *self._networks_conditions(policy),
                *self._floors_conditions(policy),
                *self._claims_conditions(policy),
            ]
            followed = policy if isinstance(policy, Policy) else None
            self.conditions = with_ready(found, followed)
            self._condition_log.found(found)
            await self._policy_status.write(
                policy.generation, followed, found, self._credentials(), self._ssh(), self._authorities(policy.uid)
            )
        cluster = self._caches.clusters.get(self._key.namespace, self._key.name)
        if isinstance(policy, Policy) and cluster is not None:
            await self._policy_owner.ensure(cluster, policy)
            await self._infrastructure_status.publish(cluster, policy)
        self.authority_available = authority.met is True

    def _key_conditions(self) -> tuple[PolicyCondition, ...]:
        """None while the key is available. It is the operator's, and most tenants need not know of it."""
        try:
            self._caches.authentic.require_keys()
        except Deferred as deferred:
            kind = condition_types.CONTROLLER_KEY_AVAILABLE
            return (PolicyCondition(kind, False, deferred.defer.reason, deferred.defer.message),)
        return ()

    def _tokens_condition(self) -> PolicyCondition:
        kind = condition_types.BOOTSTRAP_TOKENS_TRACEABLE
        match self._bootstrap_tokens.tracing():
            case TracingOn():
                return PolicyCondition(
                    kind, True, "Traced", "each token of a KubeadmConfig is traced to the Machine it was made for"
                )
            case TracingOff(cause):
                return PolicyCondition(kind, False, "TracingOff", printable(cause))
            case TracingInterrupted(cause):
                return PolicyCondition(kind, None, "TracingInterrupted", printable(cause))

    def _addresses_condition(self) -> PolicyCondition:
        kind = condition_types.MACHINE_ADDRESSES_READABLE
        if over := over_limit_conditions(self._caches, self._key.namespace):
            return replace(over[0], type=kind, met=None)
        count = self._caches.names.count_unreadable(self._key)
        if not count:
            return PolicyCondition(kind, True, "Readable", "every address of the Machines has one reading")
        # All of them are many, if a tenant likes: thousands of Machines, each with hundreds of addresses.
        machines = self._caches.names.unreadable(self._key, _MOST_SHOWN)
        shown = [f"{machine}: {', '.join(machine.unreadable_addresses[:_MOST_SHOWN])}" for machine in machines]
        more = f"; and {count - _MOST_SHOWN} more Machines" if count > _MOST_SHOWN else ""
        return PolicyCondition(kind, False, "Unreadable", printable("; ".join(shown) + more))

    def _networks_conditions(self, policy: Policy | UnreadablePolicy) -> tuple[PolicyCondition, ...]:
        """One condition, if the policy names networks."""
        if isinstance(policy, UnreadablePolicy) or not policy.serving_networks:
            return ()
        kind = condition_types.SERVING_NETWORKS_ALLOWED
        allowed = self._operator_networks.allowed(policy.serving_networks, self._key.namespace)
        forbidden = [str(network) for network in policy.serving_networks if network not in allowed]
        if not forbidden:
            return (PolicyCondition(kind, True, "Allowed", "the operator allows every network of the policy"),)
        message = (
            f"not used, because the operator does not allow them in namespace {self._key.namespace}: "
            f"{', '.join(forbidden)}"
        )
        return (PolicyCondition(kind, False, "NetworkNotAllowed", message),)

    def _floors_conditions(self, policy: Policy | UnreadablePolicy) -> tuple[PolicyCondition, ...]:
        """One condition, where the operator has set a floor."""
        if isinstance(policy, UnreadablePolicy) or self._caches.floors.of(self._key.namespace) == NO_FLOOR:
            return ()
        kind = condition_types.FLOORS_MET
        if not policy.shortfalls:
            return (PolicyCondition(kind, True, "Met", "the policy is not below the operator's floors"),)
        return (PolicyCondition(kind, False, "BelowFloor", printable(below_floors(policy.shortfalls))),)

    def _claims_conditions(self, policy: Policy | UnreadablePolicy) -> tuple[PolicyCondition, ...]:
        """Whether Machines show the provider IDs that were claimed for them; none unless the policy allows claims."""
        if isinstance(policy, UnreadablePolicy) or policy.match_machines is MatchMachines.NEVER:
            return ()
        kind = condition_types.CLAIMED_PROVIDER_IDS_AGREE
        try:
            self._caches.require_current(self._key.namespace)
            disproven = self._caches.disproven_claims_of(self._key)
        except Deferred as error:
            return (PolicyCondition(kind, None, str(error.defer.reason), error.defer.message),)
        if not disproven:
            return (PolicyCondition(kind, True, "Agree", "no Machine shows another provider ID than its node claims"),)
        shown = ", ".join(
            f"node {record.node_name} of Machine {record.machine.name}" for record in disproven[:_SHOWN_CLAIMS]
        )
        more = " and others" if len(disproven) > _SHOWN_CLAIMS else ""
        text = f"Machines show other provider IDs than their nodes claim: {shown}{more}"
        return (PolicyCondition(kind, False, str(Reason.PROVIDER_ID_DISAGREES), printable(text)),)

    async def _authority_condition(self) -> PolicyCondition:
        kind = condition_types.CERTIFICATE_AUTHORITY_AVAILABLE
        try:
            authority = await self._authority_source.authority()
        except AuthorityUnavailable as error:
            return PolicyCondition(kind, False, error.reason, str(error))
        end = authority.not_after
        if end <= self._now():
            return PolicyCondition(kind, False, "CertificateAuthorityExpired", f"expired at {end:%Y-%m-%d %H:%M} UTC")
        return PolicyCondition(kind, True, "Loaded", f"valid until {end:%Y-%m-%d}")

    def _sharing_conditions(self) -> tuple[PolicyCondition, ...]:
        """One condition, if another Cluster has one of the cluster's CAs too. An issuer alone stops only the nodes that
        name it, so it is reported and does not make the policy unready.
        """
        kind = condition_types.CERTIFICATE_AUTHORITY_NOT_SHARED
        try:
            found = [self._sharing.shared(authority) for authority in self._authority_source.last_read()]
        except Deferred as error:
            return (PolicyCondition(kind, None, str(error.defer.reason), error.defer.message),)
        for shared in found:
            if shared.keys:
                reason = str(Reason.CERTIFICATE_AUTHORITY_SHARED)
                return (PolicyCondition(kind, False, reason, printable(key_is_shared(self._key, shared))),)
            if shared.issuers:
                issuers = ", ".join(sorted(shared.issuers))
                text = f"another Cluster has these issuers too, so evidence that names one waits: {issuers}"
                return (PolicyCondition(kind, True, "IssuerShared", printable(text)),)
        return ()

    def _authorities(self, policy_uid: str) -> dict[str, Any] | None:
        """``status.certificateAuthorities``; None to leave it as it is."""
        for authority in self._authority_source.last_read():
            with contextlib.suppress(Deferred):
                keys = self._caches.authentic.keys()
                return authorities_to_publish(self._key, policy_uid, hashes_of(authority), keys)
        return None

    def _attestors_condition(self, policy: Policy | UnreadablePolicy) -> PolicyCondition:
        kind = condition_types.ATTESTORS_CONFIGURED
        if isinstance(policy, UnreadablePolicy):
            return PolicyCondition(kind, False, "PolicyInvalid", policy.message)
        broken = self._decider.attestors(policy).broken()
        if broken:
            reason = "AttestorNotAllowed" if any(one.forbidden for one in broken) else "AttestorUnavailable"
            return PolicyCondition(kind, False, reason, "; ".join(printable(one.message) for one in broken))
        return PolicyCondition(kind, True, "Configured", "every authorized attestor is ready")
