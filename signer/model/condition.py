"""Conditions of a ``NodeAttestationPolicy``: their types, and which of them count toward Ready."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from signer.model.policy import MatchMachines, Mode, Policy, UntraceableTokens


class ConditionType(str):
    """The name of a condition type, and the policies for which such a condition counts toward Ready.

    A feature that a policy does not use does not make it unready. Each part of the controller declares the types of its
    own conditions; those of the core are below.
    """

    __slots__ = ("counts_toward_ready",)

    counts_toward_ready: Callable[[Policy | None], bool]
    """Takes the policy; None for an invalid one."""

    def __new__(cls, name: str, counts_toward_ready: Callable[[Policy | None], bool] = lambda policy: True) -> Self:
        made = super().__new__(cls, name)
        made.counts_toward_ready = counts_toward_ready
        return made


def under_enforce(policy: Policy | None) -> bool:
    """For conditions that matter in mode Enforce only, such as AutoApprovalRemoved."""
    return policy is not None and policy.mode is Mode.ENFORCE


def _where_untraceable_tokens_are_refused(policy: Policy | None) -> bool:
    return policy is not None and policy.untraceable_tokens is UntraceableTokens.REFUSE


def _where_networks_are_named(policy: Policy | None) -> bool:
    return policy is not None and bool(policy.serving_networks)


def _where_provider_ids_are_claimed(policy: Policy | None) -> bool:
    return policy is not None and policy.match_machines is MatchMachines.WITHOUT_PROVIDER_ID


def _where_a_role_has_no_attestor(policy: Policy | None) -> bool:
    return policy is not None and bool(policy.roles_without_attestor)


READY: Final = ConditionType("Ready")
CONTROLLER_KEY_AVAILABLE: Final = ConditionType("ControllerKeyAvailable")
NAMESPACE_WITHIN_LIMITS: Final = ConditionType("NamespaceWithinLimits")
ACCESS_WITHIN_LIMITS: Final = ConditionType("AccessWithinLimits", lambda policy: False)
"""Nodes wait for no access grant."""
CLOCKS_AGREE: Final = ConditionType("ClocksAgree")
CERTIFICATE_AUTHORITY_AVAILABLE: Final = ConditionType("CertificateAuthorityAvailable")
CERTIFICATE_AUTHORITY_TRUSTED: Final = ConditionType("CertificateAuthorityTrusted")
CERTIFICATE_AUTHORITY_NOT_SHARED: Final = ConditionType("CertificateAuthorityNotShared")
WORKLOAD_CLUSTER_REACHABLE: Final = ConditionType("WorkloadClusterReachable")
SIGNERS_GRANTED: Final = ConditionType("SignersGranted")
ATTESTORS_CONFIGURED: Final = ConditionType("AttestorsConfigured")
AUTO_APPROVAL_REMOVED: Final = ConditionType("AutoApprovalRemoved", under_enforce)
BUILTIN_REQUESTS_REFUSED: Final = ConditionType("BuiltinRequestsRefused", lambda policy: False)
"""Where it is False, the removal of bindings does alone what it did before Kubernetes 1.30."""
BOOTSTRAP_TOKENS_TRACEABLE: Final = ConditionType("BootstrapTokensTraceable", _where_untraceable_tokens_are_refused)
MACHINE_ADDRESSES_READABLE: Final = ConditionType("MachineAddressesReadable", lambda policy: False)
"""An infrastructure provider writes addresses, and no setting of the policy changes them."""
CONTROL_PLANE_NAMES_READ: Final = ConditionType("ControlPlaneNamesRead", lambda policy: False)
"""The names in the API servers' certificates are known all the same."""
SERVICE_NETWORKS_KNOWN: Final = ConditionType("ServiceNetworksKnown")
SERVING_NETWORKS_ALLOWED: Final = ConditionType("ServingNetworksAllowed", _where_networks_are_named)
FLOORS_MET: Final = ConditionType("FloorsMet", _where_a_role_has_no_attestor)
"""A policy below a floor is raised to it, which changes nothing about its readiness: but no policy can be raised to an
attestor that it does not authorize.
"""
CLAIMED_PROVIDER_IDS_AGREE: Final = ConditionType("ClaimedProviderIDsAgree", _where_provider_ids_are_claimed)
MACHINE_POOL_TOKENS_EXTENDED: Final = ConditionType("MachinePoolTokensExtended", under_enforce)

WAITING_FOR_ATTESTATION: Final = "WaitingForAttestation"
"""Reason of AutoApprovalRemoved: auto-approval of first certificates is proven to be removed. Renewals are still
auto-approved until every Machine is attested."""


@dataclass(frozen=True, slots=True)
class PolicyCondition:
    """One condition to be written. ``met`` None means Unknown."""

    type: ConditionType
    met: bool | None
    reason: str
    message: str
    """Never empty: API servers of 1.20 treat an empty string in a custom resource as missing."""

    @property
    def status(self) -> str:
        """``True``, ``False`` or ``Unknown``."""
        return "Unknown" if self.met is None else str(self.met)


def with_ready(conditions: Sequence[PolicyCondition], policy: Policy | None) -> tuple[PolicyCondition, ...]:
    """The conditions with Ready, which summarizes them, first. ``policy`` is None for an invalid one."""
    return (_ready(conditions, policy), *conditions)


def _ready(conditions: Sequence[PolicyCondition], policy: Policy | None) -> PolicyCondition:
    """Ready repeats the first counting condition that is False, else the first Unknown one; else it is True."""
    counted = [one for one in conditions if one.type.counts_toward_ready(policy)]
    for met in (False, None):
        for condition in counted:
            if condition.met is met:
                return PolicyCondition(READY, met, condition.reason, condition.message)
    return PolicyCondition(READY, True, "Ready", "requests are decided")
