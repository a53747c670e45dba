"""Reports on a policy that its namespace is over a limit, so that nothing there is decided, or no access given."""

from __future__ import annotations

from signer.model.condition import ACCESS_WITHIN_LIMITS, NAMESPACE_WITHIN_LIMITS, PolicyCondition
from signer.model.decision import printable
from signer.model.reasons import Reason
from signer.store.caches import Caches


def access_over_limit_conditions(caches: Caches, namespace: str) -> tuple[PolicyCondition, ...]:
    """One condition while the namespace has too many access grants, approvals or bastions; else none."""
    over = caches.access_over_limits.of(namespace)
    if not over:
        return ()
    message = printable("; ".join(map(str, over)))
    return (PolicyCondition(ACCESS_WITHIN_LIMITS, False, str(Reason.NAMESPACE_OVER_LIMIT), message),)


def over_limit_conditions(caches: Caches, namespace: str) -> tuple[PolicyCondition, ...]:
    """One condition while the namespace is over a limit; else none, because most tenants need not know of limits."""
    over = caches.over_limits.of(namespace)
    if not over:
        return ()
    message = printable("; ".join(map(str, over)))
    return (PolicyCondition(NAMESPACE_WITHIN_LIMITS, False, str(Reason.NAMESPACE_OVER_LIMIT), message),)
