"""Looks at what one cluster's decisions rest on, and says so in its policy's conditions."""

from __future__ import annotations

from typing import Final

from signer.controller import conditions as condition_types
from signer.controller.adjudicator import Adjudicator
from signer.controller.authority_source import AuthoritySource, AuthorityUnavailable
from signer.controller.conditions import PolicyCondition, PolicyStatus
from signer.controller.surroundings import Surroundings
from signer.model.cluster import ClusterKey
from signer.model.policy import Mode, Policy
from signer.store.inventory import UnreadablePolicy

# Said rather than passed over: who asks for Enforce must not believe that kubeadm's side door is shut.
_ENFORCE_HAS_NO_EFFECT: Final = PolicyCondition(
    condition_types.AUTO_APPROVAL_REMOVED,
    False,
    "NotSupported",
    "this release does not remove kubeadm's automatic approval: mode Enforce works like Observe",
)


class Surveyor:
    """Surveys one workload cluster."""

    def __init__(self, key: ClusterKey, surroundings: Surroundings, authority_source: AuthoritySource) -> None:
        self._key = key
        self._around = surroundings
        self._authority_source = authority_source
        self._status = PolicyStatus(surroundings.management, key, surroundings.registry, surroundings.now)

    async def survey(self, adjudicator: Adjudicator, reachable: PolicyCondition) -> bool:
        """Write the policy's conditions; returns whether there is a CA to sign with."""
        authority = await self._authority_condition()
        policy = self._around.inventory.policies.get(self._key.namespace, self._key.name)
        if policy is not None:
            found = [self._attestors_condition(policy, adjudicator), authority, reachable]
            if isinstance(policy, Policy) and policy.mode is Mode.ENFORCE:
                found.append(_ENFORCE_HAS_NO_EFFECT)
            await self._status.write(policy.generation, policy if isinstance(policy, Policy) else None, found)
        return authority.met is True

    async def _authority_condition(self) -> PolicyCondition:
        kind = condition_types.CERTIFICATE_AUTHORITY_AVAILABLE
        try:
            authority = await self._authority_source.authority()
        except AuthorityUnavailable as error:
            return PolicyCondition(kind, False, error.reason, str(error))
        end = authority.signing.certificate.not_after
        if end <= self._around.now():
            return PolicyCondition(kind, False, "CertificateAuthorityExpired", f"expired at {end:%Y-%m-%d %H:%M} UTC")
        return PolicyCondition(kind, True, "Loaded", f"valid until {end:%Y-%m-%d}")

    def _attestors_condition(self, policy: Policy | UnreadablePolicy, adjudicator: Adjudicator) -> PolicyCondition:
        kind = condition_types.ATTESTORS_CONFIGURED
        if isinstance(policy, UnreadablePolicy):
            return PolicyCondition(kind, False, "PolicyInvalid", policy.message)
        configuration = self._around.configuration
        for attestor in policy.authorized_attestors:
            if not configuration.attestor(attestor.provider).allows(self._key.namespace):
                return PolicyCondition(
                    kind, False, "AttestorNotAllowed", f"this controller does not allow {attestor.provider} here"
                )
        broken = adjudicator.attestors(policy).broken()
        if broken:
            return PolicyCondition(kind, False, "AttestorUnavailable", "; ".join(one.message for one in broken))
        return PolicyCondition(kind, True, "Configured", "every authorized attestor is ready")
