"""Conditions and signer names in ``NodeAttestationPolicy.status``: what a person sees of one cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from attestors.registry import AttestorUnavailable, Registry
from attestors.wire.names import Purpose, SignerName
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, NotFound
from signer.kube.resources import NODE_ATTESTATION_POLICIES
from signer.model.cluster import ClusterKey
from signer.model.policy import Policy
from signer.model.record import format_time

_LOG = logging.getLogger(__name__)

READY: Final = "Ready"
CERTIFICATE_AUTHORITY_AVAILABLE: Final = "CertificateAuthorityAvailable"
WORKLOAD_CLUSTER_REACHABLE: Final = "WorkloadClusterReachable"
ATTESTORS_CONFIGURED: Final = "AttestorsConfigured"
AUTO_APPROVAL_REMOVED: Final = "AutoApprovalRemoved"


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


class StatusCalls(Protocol):
    """The calls that are used of :class:`~signer.kube.client.Client`."""

    async def get(self, path: str) -> JsonObject:
        """See Client."""
        ...

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        """See Client."""
        ...


class PolicyStatus:
    """Writes the status of one policy when it differs from what is there."""

    def __init__(self, client: StatusCalls, key: ClusterKey, registry: Registry, now: Callable[[], datetime]) -> None:
        self._client = client
        self._path = NODE_ATTESTATION_POLICIES.object(key.name, key.namespace)
        self._key = key
        self._registry = registry
        self._now = now
        self._written: JsonObject | None = None

    async def write(self, generation: int, policy: Policy | None, conditions: Sequence[PolicyCondition]) -> None:
        """Write if anything changed; a fault of the management cluster is logged and tried again at the next call."""
        try:
            if self._written is None:
                current = await self._client.get(self._path)
                self._written = current.get("status") or {}
            wanted = self._status(generation, policy, (_ready(conditions), *conditions), self._written)
            if wanted != self._written:
                await self._client.patch(f"{self._path}/status", {"status": wanted})
                self._written = wanted
        except NotFound:
            self._written = None
        except ApiError as error:
            self._written = None
            _LOG.info("cannot write a policy's status", extra={"cluster": str(self._key), "error": str(error)})

    def _status(
        self, generation: int, policy: Policy | None, conditions: Sequence[PolicyCondition], before: JsonObject
    ) -> JsonObject:
        known = {condition["type"]: condition for condition in before.get("conditions") or []}
        client, serving = self._signer_names(policy)
        return {
            "observedGeneration": generation,
            "clientSignerNames": client,
            "servingSignerNames": serving,
            "conditions": [
                self._condition(condition, generation, known.get(condition.type)) for condition in conditions
            ],
        }

    def _condition(self, condition: PolicyCondition, generation: int, before: JsonObject | None) -> dict[str, Any]:
        unchanged = before is not None and before.get("status") == condition.status
        return {
            "type": condition.type,
            "status": condition.status,
            "observedGeneration": generation,
            "lastTransitionTime": before["lastTransitionTime"] if before and unchanged else format_time(self._now()),
            "reason": condition.reason,
            "message": condition.message,
        }

    def _signer_names(self, policy: Policy | None) -> tuple[list[str], list[str]]:
        client: list[str] = []
        serving: list[str] = []
        for attestor in policy.authorized_attestors if policy is not None else ():
            client.append(str(SignerName(Purpose.CLIENT, attestor.provider)))
            try:
                if self._registry.load(attestor.provider).description.serves:
                    serving.append(str(SignerName(Purpose.SERVING, attestor.provider)))
            except AttestorUnavailable:
                continue  # AttestorsConfigured says so
        return client, serving


def _ready(conditions: Sequence[PolicyCondition]) -> PolicyCondition:
    for condition in conditions:
        if condition.met is not True:
            return PolicyCondition(READY, condition.met, condition.reason, condition.message)
    return PolicyCondition(READY, True, "Ready", "requests are decided")
