"""Writes the status of a ``NodeAttestationPolicy``: its conditions, and the names of the signers that may be used."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from attestors.contract import Security
from attestors.registry import AttestorUnavailable, Registry
from attestors.wire.names import Purpose, SignerName
from signer.configuration import Configuration
from signer.kube.calls import GetPatch
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, NotFound
from signer.kube.resources import NODE_ATTESTATION_POLICIES
from signer.model.cluster import ClusterKey
from signer.model.condition import PolicyCondition, with_ready
from signer.model.kubernetes_time import format_time
from signer.model.policy import Policy
from signer.store import policy_statuses

_LOG = logging.getLogger(__name__)

SHOWN_LATE_SECONDS: Final = 10.0
"""For so long, what the watch shows of a status may be older than what was written or read last."""
READ_AGAIN_SECONDS: Final = 300.0
"""What others write over a status is put right at most this often: it may be a controller that does the same."""


@dataclass(frozen=True, slots=True)
class UsableSigners:
    """The signer names that kubelets of one cluster may use, in the policy's order of attestors."""

    attestors: tuple[str, ...]
    client: tuple[str, ...]
    serving: tuple[str, ...]


Permits: TypeAlias = Callable[[str], bool]
"""Whether the operator allows the attestor of that provider name to the policies of one namespace."""


def permitted_in(namespace: str, configuration: Configuration, registry: Registry) -> Permits:
    """What the controller's configuration allows to the policies of that namespace."""

    def permits(provider: str) -> bool:
        if not configuration.attestor(provider).allows(namespace):
            return False
        try:
            insecure = registry.load(provider).description.security is Security.INSECURE
        except AttestorUnavailable:
            return True  # it may be once it can be loaded
        return not insecure or configuration.insecure_allowed(namespace)

    return permits


def usable_signers(policy: Policy, registry: Registry, permits: Permits) -> UsableSigners:
    """The signers of the attestors that the policy authorizes and the operator permits."""
    attestors: list[str] = []
    client: list[str] = []
    serving: list[str] = []
    for attestor in policy.authorized_attestors:
        if not permits(attestor.provider):
            continue  # AttestorsConfigured says so
        attestors.append(attestor.provider)
        client.append(str(SignerName(Purpose.CLIENT, attestor.provider)))
        try:
            if registry.load(attestor.provider).description.serves:
                serving.append(str(SignerName(Purpose.SERVING, attestor.provider)))
        except AttestorUnavailable:
            continue  # AttestorsConfigured says so
    return UsableSigners(tuple(attestors), tuple(client), tuple(serving))


class PolicyStatus:
    """Writes the status of one policy when it differs from what is there.

    What somebody else writes over it is seen through the watch, and put right: a True out of a backup says nothing.
    """

    def __init__(
        self,
        client: GetPatch,
        key: ClusterKey,
        registry: Registry,
        now: Callable[[], datetime],
        permits: Permits,
        shown: Callable[[], str],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``permits``: see :func:`permitted_in`; the names of other attestors' signers are not published.

        ``shown`` says what the watch shows: see :meth:`~signer.store.policy_statuses.PolicyStatuses.shown`.
        ``monotonic`` is a clock, in seconds.
        """
        self._client = client
        self._path = NODE_ATTESTATION_POLICIES.object(key.name, key.namespace)
        self._key = key
        self._registry = registry
        self._now = now
        self._monotonic = monotonic
        self._permits = permits
        self._shown = shown
        self._written: JsonObject | None = None
        self._written_uid = ""
        self._standing = policy_statuses.NOT_SHOWN
        """The digest of what stood there when it was written or read last."""
        self._was_shown = False
        """Whether the watch has shown that."""
        self._stands_since = -math.inf
        self._read_again = -math.inf
        """When it was read because somebody else had written."""

    async def write(self, generation: int, policy: Policy | None, conditions: Sequence[PolicyCondition]) -> None:
        """Write if anything changed; a fault of the management cluster is logged and tried again at the next call."""
        try:
            if self._written is not None and self._somebody_else_wrote():
                self._written, self._read_again = None, self._monotonic()
            if self._written is None or policy is None or policy.uid != self._written_uid:
                current = await self._client.get(self._path)
                self._written = current.get("status") or {}
                self._written_uid = current["metadata"]["uid"]
                self._stands(current)
            wanted = self._status(generation, policy, with_ready(conditions, policy), self._written)
            if wanted != self._written:
                self._stands(await self._client.patch(f"{self._path}/status", {"status": wanted}))
                self._written = wanted
        except NotFound:
            self._written = None
        except ApiError as error:
            self._written = None
            _LOG.info("cannot write a policy's status", extra={"cluster": str(self._key), "error": str(error)})

    def _stands(self, manifest: JsonObject) -> None:
        digest = policy_statuses.status_digest(manifest)
        self._standing, self._was_shown, self._stands_since = digest, False, self._monotonic()

    def _somebody_else_wrote(self) -> bool:
        """Whether the watch shows what is not ours, and it is time to see to it."""
        shown = self._shown()
        if shown == self._standing:
            self._was_shown = True
            return False
        now = self._monotonic()
        may_be_older = not self._was_shown and now < self._stands_since + SHOWN_LATE_SECONDS
        return shown != policy_statuses.NOT_SHOWN and not may_be_older and now >= self._read_again + READ_AGAIN_SECONDS

    def _status(
        self, generation: int, policy: Policy | None, conditions: Sequence[PolicyCondition], before: JsonObject
    ) -> JsonObject:
        known = {condition["type"]: condition for condition in before.get("conditions") or []}
        signers = UsableSigners((), (), ())
        if policy is not None:
            signers = usable_signers(policy, self._registry, self._permits)
        return {
            "observedGeneration": generation,
            "attestors": ", ".join(signers.attestors) or "none",
            "clientSignerNames": list(signers.client),
            "servingSignerNames": list(signers.serving),
            "conditions": [
                self._condition(condition, generation, known.get(condition.type)) for condition in conditions
            ],
        }

    def _condition(self, condition: PolicyCondition, generation: int, before: JsonObject | None) -> dict[str, Any]:
        unchanged = before is not None and before.get("status") == condition.status
        return {
            "type": str(condition.type),
            "status": condition.status,
            "observedGeneration": generation,
            "lastTransitionTime": before["lastTransitionTime"] if before and unchanged else format_time(self._now()),
            "reason": condition.reason,
            "message": condition.message,
        }
