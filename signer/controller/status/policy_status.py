"""Writes the status of a ``NodeAttestationPolicy``: its conditions and usable signer names."""

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
from signer.model.fields import format_time
from signer.model.policy import Policy
from signer.store import policy_statuses, published_authorities

_LOG = logging.getLogger(__name__)

WATCH_LAG_SECONDS: Final = 10.0
"""For this long, the status in the watch may be older than the last write or read."""
RESTORE_SECONDS: Final = 300.0
"""A status that another client overwrote is restored at most this often: the client may be a controller that does the
same."""


@dataclass(frozen=True, slots=True)
class UsableSigners:
    """The signer names that kubelets of one cluster may use, in the policy's order of attestors."""

    attestors: tuple[str, ...]
    client: tuple[str, ...]
    serving: tuple[str, ...]


Permits: TypeAlias = Callable[[str], bool]
"""Whether the operator allows an attestor, by provider name, in one namespace's policies."""


def permitted_in(namespace: str, configuration: Configuration, registry: Registry) -> Permits:
    """The attestors that the controller's configuration allows in a namespace's policies."""

    required = configuration.floors.of(namespace).required

    def permits(provider: str) -> bool:
        if not configuration.attestor(provider).allows(namespace) or not required.accepts_for_some_role(provider):
            return False
        try:
            insecure = registry.load(provider).description.security is Security.INSECURE
        except AttestorUnavailable:
            return True  # it may be usable once it can be loaded
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
    """Writes the status of one policy when it differs from the current one.

    If another client overwrites the status, the watch shows it and the controller restores its own: for example, a True
    from a restored backup means nothing.
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
        """Only signers of attestors that ``permits`` allows are published; see :func:`permitted_in`.

        ``shown`` returns the digest of the status in the watch; see
        :meth:`~signer.store.policy_statuses.PolicyStatuses.shown`. ``monotonic`` is a clock, in seconds.
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
        self._current_digest = policy_statuses.NOT_SHOWN
        """Digest of the status as last written or read."""
        self._was_shown = False
        """Whether the watch has shown that status."""
        self._current_since = -math.inf
        self._restored_at = -math.inf
        """When the status was last read because another client had written it."""

    async def write(
        self,
        generation: int,
        policy: Policy | None,
        conditions: Sequence[PolicyCondition],
        credentials: JsonObject | None = None,
        ssh: JsonObject | None = None,
        authorities: JsonObject | None = None,
    ) -> None:
        """Write the status if it changed. A failure is logged and retried at the next call.

        ``credentials`` is ``status.credentials``, and ``ssh`` is ``status.ssh``; empty or None for none.
        ``authorities`` is ``status.certificateAuthorities``; None leaves it as it is.
        """
        try:
            if self._written is not None and self._was_overwritten():
                self._written, self._restored_at = None, self._monotonic()
            if self._written is None or policy is None or policy.uid != self._written_uid:
                current = await self._client.get(self._path)
                self._written = current.get("status") or {}
                self._written_uid = current["metadata"]["uid"]
                self._note_current(current)
            desired = self._status(generation, policy, with_ready(conditions, policy), self._written)
            published = self._written.get(published_authorities.FIELD) if authorities is None else authorities
            parts = {"credentials": credentials, "ssh": ssh, published_authorities.FIELD: published}
            desired |= {name: part for name, part in parts.items() if part}
            if desired != self._written:
                patch = _replacing(desired, self._written)
                self._note_current(await self._client.patch(f"{self._path}/status", {"status": patch}))
                self._written = desired
        except NotFound:
            self._written = None
        except ApiError as error:
            self._written = None
            _LOG.info("cannot write a policy's status", extra={"cluster": str(self._key), "error": str(error)})

    def _note_current(self, manifest: JsonObject) -> None:
        digest = policy_statuses.status_digest(manifest)
        self._current_digest, self._was_shown, self._current_since = digest, False, self._monotonic()

    def _was_overwritten(self) -> bool:
        """Whether the watch shows a status of another client, and enough time has passed to restore ours."""
        shown = self._shown()
        if shown == self._current_digest:
            self._was_shown = True
            return False
        now = self._monotonic()
        may_be_older = not self._was_shown and now < self._current_since + WATCH_LAG_SECONDS
        return shown != policy_statuses.NOT_SHOWN and not may_be_older and now >= self._restored_at + RESTORE_SECONDS

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


def _replacing(desired: JsonObject, before: JsonObject) -> JsonObject:
    """The merge patch that makes ``before`` what is desired in its parts: fields that are gone become null."""
    parts = [name for name in ("credentials", "ssh") if name in before]
    return {**desired, **{name: _with_nulls(desired.get(name), before[name]) for name in parts}}


def _with_nulls(desired: Any, before: Any) -> Any:
    if not isinstance(desired, dict) or not isinstance(before, dict):
        return desired
    gone = {key: None for key in before if key not in desired}
    return {**gone, **{key: _with_nulls(value, before.get(key)) for key, value in desired.items()}}
