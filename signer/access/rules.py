"""What policy and operator allow one grant. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from attestors.wire.ssh.container_names import Pod
from signer.access.facts import GrantForbidden, GrantRules, GrantsNotAllowed, RulesAnswer, RulesUnknown
from signer.access.lifetimes import Lifetime
from signer.configuration import AccessPermission
from signer.model.access import AccessGrant, AsPolicySays, BastionOf, Container, InvalidAccessGrant, NoBastion
from signer.model.access.grant import parse_bastion_choice
from signer.model.access_policy import DEFAULT_TIME_TO_LIVE, MAXIMUM_LIFETIME, AccessRules
from signer.model.policy import Policy
from signer.model.ssh_access import SSHSettings


def access_rules(policy: object) -> AccessRules | GrantsNotAllowed | RulesUnknown:
    """``spec.ssh.access`` of the cached policy."""
    if policy is None:
        return GrantsNotAllowed("the Cluster has no NodeAttestationPolicy")
    if not isinstance(policy, Policy):
        return RulesUnknown("the NodeAttestationPolicy is invalid")
    if not isinstance(policy.ssh, SSHSettings) or not isinstance(policy.ssh.access, AccessRules):
        return GrantsNotAllowed("spec.ssh.access of the NodeAttestationPolicy is missing: the policy allows no grants")
    return policy.ssh.access


def rules_of(
    grant: AccessGrant | InvalidAccessGrant, namespace: str, policy: object, permission: AccessPermission
) -> RulesAnswer:
    """What is allowed. ``policy`` is the cached one, None if there is none."""
    if not permission.allows(namespace):
        return GrantsNotAllowed(f"the operator's configuration allows no grants in namespace {namespace}")
    rules = access_rules(policy)
    if not isinstance(rules, AccessRules):
        return rules
    if isinstance(grant, InvalidAccessGrant):
        return GrantForbidden("the grant is invalid")
    for refused, message in (
        (not rules.allows_reason(grant.reason), "spec.reason does not have the form that the policy demands"),
        (not rules.allows_ticket(grant.ticket), "spec.ticket does not have the form that the policy demands"),
        (
            not all(map(rules.minimum_prefixes.allows, grant.ingress)),
            "spec.ingress has a network that is wider than the policy allows",
        ),
        (
            isinstance(grant.duration, timedelta) and grant.duration > rules.maximum_lifetime,
            "spec.duration is longer than maxLifetime of the policy",
        ),
    ):
        if refused:
            return GrantForbidden(message)
    bastion = grant.bastion
    if isinstance(grant.target, Container):
        if isinstance(bastion, BastionOf) and not isinstance(grant.target.of, Pod):
            return GrantForbidden(
                "a bastion leads to nodes, which know no workloads: name the Pod, or leave spec.bastion out"
            )
        if isinstance(bastion, AsPolicySays):
            bastion = NoBastion()  # the gateway is reached without one
    if isinstance(bastion, AsPolicySays):
        bastion = parse_bastion_choice(rules.bastion.provider)
    if isinstance(bastion, BastionOf):
        if bastion.provider not in permission.bastions_in(namespace):
            return GrantForbidden(f"the operator allows no bastions of provider {bastion.provider} here")
        if not grant.ingress:
            return GrantForbidden("a grant with a bastion names in spec.ingress where its creator connects from")
    is_own = isinstance(bastion, NoBastion) or bastion.provider != rules.bastion.provider
    return GrantRules(
        certificate_duration=rules.certificate_duration,
        required_approvals=max(rules.approvals, permission.approvals_in(namespace)),
        bastion=bastion,
        settings={} if is_own else rules.bastion.settings,
    )


def lifetime_of(
    stated: timedelta | AsPolicySays, created: datetime, policy: object, permission: AccessPermission
) -> Lifetime:
    """The bounds of a grant's life, of the duration that it states. It ends although the policy cannot be read now: by
    the widest bounds then.
    """
    rules = access_rules(policy)
    maximum, time_to_live = MAXIMUM_LIFETIME, DEFAULT_TIME_TO_LIVE
    if isinstance(rules, AccessRules):
        maximum, time_to_live = rules.maximum_lifetime, rules.time_to_live
    asked = stated if isinstance(stated, timedelta) else maximum
    return Lifetime(created, min(asked, maximum, permission.maximum_lifetime), time_to_live)


__all__ = ["access_rules", "lifetime_of", "rules_of"]
