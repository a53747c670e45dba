"""Conditions of a ``NodeAttestationPolicy``: their types, and which of them make it ready."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from signer.model.policy import Mode, Policy, UntraceableTokens

READY: Final = "Ready"
CERTIFICATE_AUTHORITY_AVAILABLE: Final = "CertificateAuthorityAvailable"
WORKLOAD_CLUSTER_REACHABLE: Final = "WorkloadClusterReachable"
ATTESTORS_CONFIGURED: Final = "AttestorsConfigured"
AUTO_APPROVAL_REMOVED: Final = "AutoApprovalRemoved"
BOOTSTRAP_TOKENS_TRACEABLE: Final = "BootstrapTokensTraceable"
MACHINE_POOL_TOKENS_EXTENDED: Final = "MachinePoolTokensExtended"

WAITING_FOR_ATTESTATION: Final = "WaitingForAttestation"
"""Reason of AutoApprovalRemoved: first certificates are proven shut, and renewal is left to those not attested yet."""


class Counting(enum.Enum):
    """Whether a condition counts toward Ready."""

    TOWARD_READY = "toward Ready"
    INFORMATION = "information"


def counting(kind: str, policy: Policy | None) -> Counting:
    """Whether a condition of that type counts toward Ready under that policy; None is one that cannot be followed.

    What a policy does not ask for does not make it unready: that kubeadm's approval is in place under Observe, or that
    bootstrap tokens cannot be traced where untraceable ones are allowed.
    """
    under_enforce = (AUTO_APPROVAL_REMOVED, MACHINE_POOL_TOKENS_EXTENDED)
    if kind in under_enforce and (policy is None or policy.mode is not Mode.ENFORCE):
        return Counting.INFORMATION
    if kind == BOOTSTRAP_TOKENS_TRACEABLE and (
        policy is None or policy.untraceable_tokens is not UntraceableTokens.REFUSE
    ):
        return Counting.INFORMATION
    return Counting.TOWARD_READY


@dataclass(frozen=True, slots=True)
class PolicyCondition:
    """One condition as it should be; ``met`` None means Unknown."""

    type: str
    met: bool | None
    reason: str
    message: str
    """Never empty: API servers of 1.20 take an empty string in a custom resource for a missing one."""

    @property
    def status(self) -> str:
        """``True``, ``False`` or ``Unknown``."""
        return "Unknown" if self.met is None else str(self.met)


def with_ready(conditions: Sequence[PolicyCondition], policy: Policy | None) -> tuple[PolicyCondition, ...]:
    """The conditions, after the one that sums them up; ``policy`` None is one that cannot be followed."""
    return (_ready(conditions, policy), *conditions)


def _ready(conditions: Sequence[PolicyCondition], policy: Policy | None) -> PolicyCondition:
    """The first condition that counts and is False; else the first that is Unknown; else it is ready."""
    counted = [one for one in conditions if counting(one.type, policy) is Counting.TOWARD_READY]
    for met in (False, None):
        for condition in counted:
            if condition.met is met:
                return PolicyCondition(READY, met, condition.reason, condition.message)
    return PolicyCondition(READY, True, "Ready", "requests are decided")
