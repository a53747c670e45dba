"""Keeps the rotation's admission policy installed in the management cluster, and knows whether it is in force.

The policy answers people early and asks for the verb ``rotate-ca``; the controller checks every order itself in any
case. So nothing waits for this module, and none of its failures stops anything: a condition says what is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Final, Protocol

from signer.admission.discovery import NotServed
from signer.admission.installation import Installed, NotAllowed, NotInstalled, try_install
from signer.admission.proof import NotProven, Proven, prove
from signer.configuration import RotationSettings
from signer.kube.backoff import Backoff
from signer.kube.calls import DryRun, Get, Replace
from signer.kube.resources import NODE_ATTESTATION_POLICIES
from signer.model.condition import ConditionType, PolicyCondition
from signer.model.decision import printable
from signer.model.policy import Policy
from signer.rotation.admission_policy import OPERATIONS_POLICY, OPERATIONS_PROOF
from signer.store.caches import Caches

_LOG = logging.getLogger(__name__)
GUARDED_SECONDS: Final = 600.0
"""How often the policy is installed and proven again while it is in force, or not served."""
NOT_GUARDED: Final = Backoff(base_seconds=5.0, maximum_seconds=GUARDED_SECONDS, jitter=0.2)
"""Between attempts otherwise: an API server applies a new policy only after some seconds."""

OPERATIONS_GUARDED: Final = ConditionType("RotationOperationsGuarded", lambda policy: False)
"""Where it is False, everybody who may edit a NodeAttestationPolicy may order a rotation. It does not count toward
Ready: the cluster's certificates are as good as before."""
_NAME: Final = OPERATIONS_POLICY.name
_MEANWHILE: Final = "meanwhile everybody who may edit this NodeAttestationPolicy may order a rotation"
_NOT_TRIED: Final = PolicyCondition(
    OPERATIONS_GUARDED, None, "NotTried", f"the controller has not yet installed admission policy {_NAME}"
)


class GuardCalls(Get, Replace, DryRun, Protocol):
    """Installs the policy, and sends the dry runs that prove it."""


class OperationsGuard:
    """Installs and proves the policy; one instance serves the whole controller."""

    def __init__(self, client: GuardCalls, caches: Caches, settings: RotationSettings, random: Random) -> None:
        """``settings`` say in which namespaces the controller may patch policies, as the proof does by dry run."""
        self._client = client
        self._caches = caches
        self._settings = settings
        self._random = random
        self._failures = 0
        self._watchers: list[Callable[[], None]] = []
        self.condition: PolicyCondition = _NOT_TRIED
        """The result of the last attempt, for the policies of clusters with a rotation."""

    @contextmanager
    def telling(self, changed: Callable[[], None]) -> Iterator[None]:
        """Call ``changed`` within the block whenever the condition has changed."""
        self._watchers.append(changed)
        try:
            yield
        finally:
            self._watchers.remove(changed)

    async def run(self) -> None:
        """Install and prove until cancelled. Start it once the caches are filled."""
        while True:
            pause = await self.look()
            await asyncio.sleep(pause)

    async def look(self) -> float:
        """Install and prove once; returns how many seconds to wait before the next time. Never raises ApiError."""
        self._found(await self._attempt())
        if self.condition.met or self.condition.reason == "NotServed":
            self._failures = 0
            return GUARDED_SECONDS
        self._failures += 1
        return NOT_GUARDED.delay(self._failures - 1, self._random)

    def _found(self, condition: PolicyCondition) -> None:
        if condition == self.condition:
            return
        self.condition = condition
        log = _LOG.info if condition.met or condition.reason == "NotServed" else _LOG.warning
        log(
            "admission policy for rotations",
            extra={"object": _NAME, "reason": condition.reason, "detail": condition.message},
        )
        for changed in list(self._watchers):
            changed()

    async def _attempt(self) -> PolicyCondition:
        match await try_install(OPERATIONS_POLICY, self._client):
            case Installed():
                return await self._prove("it is in force: orders need the verb rotate-ca")
            case NotServed():
                return _not_served()
            case NotAllowed(message):
                return await self._installed_by_others(message)
            case NotInstalled(message):
                return _not("NotProven", message)

    async def _installed_by_others(self, refusal: str) -> PolicyCondition:
        """An administrator may have installed it, or taken the right away after it was installed."""
        proven = await self._prove("it is in force, and the controller may not change it")
        if proven.met or proven.reason == "NotServed":
            return proven
        cure = "grant what docs/rotation.md lists (in the chart, rotation.admissionPolicy)"
        return _not("Forbidden", f"the controller may not install it: {refusal}; {cure}")

    async def _prove(self, message: str) -> PolicyCondition:
        keys = sorted(
            (policy.cluster.namespace, policy.cluster.name)
            for policy in self._caches.policies.values()
            if isinstance(policy, Policy)
            and self._settings.allows(policy.cluster.namespace)
            and self._caches.shards.own(policy.cluster)
        )
        if not keys:
            return _not("NotProven", "the controller knows no NodeAttestationPolicy on which it may try it")
        namespace, name = keys[0]
        path = NODE_ATTESTATION_POLICIES.object(name, namespace)
        match await prove(OPERATIONS_POLICY, OPERATIONS_PROOF, path, self._client):
            case Proven():
                return PolicyCondition(OPERATIONS_GUARDED, True, "Proven", f"admission policy {_NAME}: {message}")
            case NotServed():
                return _not_served()
            case NotProven(why):
                return _not("NotProven", why)


def _not(reason: str, why: str) -> PolicyCondition:
    return PolicyCondition(
        OPERATIONS_GUARDED, False, reason, printable(f"admission policy {_NAME}: {why}; {_MEANWHILE}")
    )


def _not_served() -> PolicyCondition:
    return _not(
        "NotServed",
        "the management cluster serves no ValidatingAdmissionPolicies (Kubernetes before 1.30); the controller checks "
        "every order itself, but not who gave it",
    )


__all__ = ["GUARDED_SECONDS", "NOT_GUARDED", "OPERATIONS_GUARDED", "GuardCalls", "OperationsGuard"]
