"""What the condition ``ContainerAccessReady`` of a policy says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from signer.model.condition import ConditionType

CONTAINER_ACCESS_READY: Final = ConditionType("ContainerAccessReady", lambda policy: False)
"""It never counts toward Ready: kubelets get their certificates all the same."""

CONNECTED: Final = "Connected"
AUTHORITIES_NOT_AVAILABLE: Final = "AuthoritiesNotAvailable"
FOREIGN_OBJECT: Final = "ForeignObject"
FORBIDDEN: Final = "Forbidden"
GATEWAY_NAMESPACE_MISSING: Final = "GatewayNamespaceMissing"
NOT_REMOVED: Final = "NotRemoved"
FAILED: Final = "Failed"
STAYS: Final = "what the gateway has stays as it is"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the gateway's connection is not as it should be."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class NoProblem:
    """It is as it should be, or has not been looked at."""


@dataclass(frozen=True, slots=True)
class Connected:
    """The gateway can reach the workload cluster."""


__all__ = [
    "AUTHORITIES_NOT_AVAILABLE",
    "CONNECTED",
    "CONTAINER_ACCESS_READY",
    "FAILED",
    "FORBIDDEN",
    "FOREIGN_OBJECT",
    "GATEWAY_NAMESPACE_MISSING",
    "NOT_REMOVED",
    "STAYS",
    "Connected",
    "NoProblem",
    "Problem",
]
