"""Has a workload cluster's API server refuse requests to built-in client signers, while its policy says Enforce.

The removal of bindings leaves a gap: what puts them back gives certificates until the next check. API servers that
serve validating admission policies refuse the requests themselves. The removal goes on beside it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from signer.admission.discovery import NotServed, served_admission
from signer.admission.installation import (
    Installed,
    NotAllowed,
    NotInstalled,
    Presence,
    Written,
    presence,
    remove,
    try_install,
)
from signer.admission.proof import NotProven, prove
from signer.controller.auto_approval.findings import Situation, is_untouchable, listed
from signer.controller.auto_approval.refusal_policies import NODES, PROOF_PATH, TOKENS, RefusalPolicy
from signer.kube.calls import Delete, DryRun, Get, Replace
from signer.kube.errors import ApiError, Forbidden
from signer.model import condition as condition_types
from signer.model.condition import PolicyCondition
from signer.model.decision import printable
from signer.model.saved_bindings import BindingsNotSaved
from signer.store.removed_bindings import RemovedBindings

_LOG = logging.getLogger(__name__)
TIMEOUT_SECONDS: Final = 60.0
"""Limit for one check of one cluster; every call has its own, shorter timeout."""
POLICIES: Final = (TOKENS, NODES)
NOT_PROVEN: Final = "NotProven"
NOT_SERVED: Final = "NotServed"
GRANTS: Final = "role node-attestation-admission-policies of deploy/rbac/workload.yaml"
JUST_WRITTEN: Final = "just installed: an API server applies it within seconds, and it is asked again soon"
_MEANWHILE: Final = "meanwhile only the removal of bindings keeps requests from being approved (AutoApprovalRemoved)"


class RefusalCalls(Get, Replace, Delete, DryRun, Protocol):
    """Installs, proves and removes the policies."""


class StillRefused(Exception):
    """A policy could not be removed; the message says why. Try again."""


@dataclass(slots=True)
class _Findings:
    """The findings of one check."""

    failures: list[tuple[str, str]] = field(default_factory=list)
    """Reason and message of each policy that is not proven."""


class BuiltinRequestRefusal:
    """Keeps the two admission policies of one workload cluster, and takes them away."""

    def __init__(self, removed: RemovedBindings, now: Callable[[], datetime]) -> None:
        self._removed = removed
        self._now = now
        self._written: set[str] = set()
        """Names of the policies that this process has seen in place: one that is missing then was deleted."""
        self._restored: dict[str, datetime] = {}
        """When the controller last undid what somebody had done to a policy, by name."""
        self._proven_since: datetime | None = None
        self._is_withdrawn = False

    async def refuse(self, client: RefusalCalls, situation: Situation) -> PolicyCondition:
        """Install and prove what is due; returns condition ``BuiltinRequestsRefused``. Never raises ApiError."""
        self._is_withdrawn = False
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                condition = await self._refuse(client, situation)
        except ApiError as error:
            condition = _condition(None, type(error).__name__, f"the workload cluster cannot be queried: {error}")
        except TimeoutError:
            condition = _condition(
                None, "TimedOut", f"the workload cluster answered too slowly: {TIMEOUT_SECONDS:.0f} s"
            )
        if condition.met is not True:
            self._proven_since = None
        return condition

    async def withdraw(self, client: RefusalCalls) -> None:
        """Remove both policies, once: the cluster is not under Enforce. A user who may not even read them has none of
        the controller's, unless somebody took its rights away: that is logged.

        Raises:
            StillRefused: the API server failed.
        """
        self._proven_since = None
        self._written.clear()
        self._restored.clear()
        if self._is_withdrawn:
            return
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await remove_refusal(client)
        except Forbidden as error:
            _LOG.warning("cannot look for admission policies of mode Enforce", extra={"error": str(error)})
        except (ApiError, TimeoutError) as error:
            raise StillRefused(f"admission policies of mode Enforce cannot be removed: {error}") from error
        self._is_withdrawn = True

    async def _refuse(self, client: RefusalCalls, situation: Situation) -> PolicyCondition:
        if isinstance(await served_admission(client), NotServed):
            return _condition(
                False,
                NOT_SERVED,
                "the API server serves no ValidatingAdmissionPolicies (Kubernetes before 1.30); the removal of "
                "bindings alone keeps requests from being approved (AutoApprovalRemoved): what puts a binding back "
                "gives certificates until the next check, within four minutes",
            )
        is_kept = is_untouchable(situation.cluster)
        due = await self._due(client, situation)
        findings = _Findings()
        try:
            if not is_kept:
                # Without it, a policy that is deleted while no controller runs would leave the refusal behind.
                await self._removed.remember(situation.owner)
        except BindingsNotSaved as error:
            why = f"nothing is installed that would be left behind: {error}; {_MEANWHILE}"
            return _condition(False, "RemovedGrantsNotKept", why)
        for one in due:
            if is_kept:
                await self._prove(client, one, findings, "Paused", "the Cluster is paused or being deleted")
            else:
                await self._install_and_prove(client, one, findings)
        return self._conclusion(situation, due, findings)

    async def _due(self, client: RefusalCalls, situation: Situation) -> tuple[RefusalPolicy, ...]:
        """Nodes are refused once nothing waits for an attestation, and from then on: a Machine that is not attested
        later cannot reopen the way, as its bindings do not come back either.
        """
        if situation.unattested and await presence(NODES.policy, client) is Presence.ABSENT:
            return (TOKENS,)
        return POLICIES

    async def _install_and_prove(self, client: RefusalCalls, one: RefusalPolicy, findings: _Findings) -> None:
        match await try_install(one.policy, client):
            case Installed(policy, binding):
                self._note_written(one, policy, binding)
                is_new = not (policy is binding is Written.UNCHANGED)
                await self._prove(client, one, findings, NOT_PROVEN, JUST_WRITTEN if is_new else "")
            case NotAllowed(message):
                why = f"the controller may not install it: {message}; grant {GRANTS}"
                await self._prove(client, one, findings, "Forbidden", why)
            case NotInstalled(message):
                findings.failures.append((NOT_PROVEN, f"admission policy {one.policy.name}: {message}"))
            case NotServed():
                findings.failures.append((NOT_PROVEN, f"admission policy {one.policy.name}: no longer served"))

    async def _prove(
        self, client: RefusalCalls, one: RefusalPolicy, findings: _Findings, reason: str, why: str
    ) -> None:
        """``why`` replaces what a failed proof says."""
        match await prove(one.policy, one.proof, PROOF_PATH, client):
            case NotProven(message):
                said = f"admission policy {one.policy.name}: {why}" if why else message  # which names the policy
                findings.failures.append((reason, said))
            case NotServed():
                findings.failures.append((reason, f"admission policy {one.policy.name}: no longer served"))

    def _note_written(self, one: RefusalPolicy, *written: Written) -> None:
        name = one.policy.name
        was_deleted = Written.CREATED in written and name in self._written
        self._written.add(name)
        if was_deleted or Written.RESTORED in written:
            self._restored[name] = self._now()
            _LOG.warning(
                "somebody had changed or deleted an admission policy of mode Enforce: it is restored",
                extra={"object": name},
            )

    def _conclusion(self, situation: Situation, due: tuple[RefusalPolicy, ...], findings: _Findings) -> PolicyCondition:
        notes = [
            f"somebody had changed or deleted {name}, restored at {when:%Y-%m-%d %H:%M} UTC"
            for name, when in self._restored.items()
        ]
        if findings.failures:
            reason, _ = findings.failures[0]
            messages = [message for _, message in findings.failures]
            return _condition(False, reason, "; ".join([*messages, _MEANWHILE, *notes]))
        self._proven_since = self._proven_since or self._now()
        if NODES not in due:
            text = (
                f"the API server refuses bootstrap tokens at the built-in client signers; nodes are refused once these "
                f"Machines are attested: {listed(situation.unattested)}"
            )
            return _condition(False, condition_types.WAITING_FOR_ATTESTATION, "; ".join([text, *notes]))
        text = (
            "the API server refuses bootstrap tokens and nodes at the built-in client signers, proven at each check "
            f"since {self._proven_since:%Y-%m-%d %H:%M} UTC"
        )
        return _condition(True, "Proven", "; ".join([text, *notes]))


async def remove_refusal(client: RefusalCalls) -> None:
    """Remove both policies; what belongs to somebody else stays.

    Raises:
        ApiError: from the workload cluster.
    """
    for one in reversed(POLICIES):
        await remove(one.policy, client)


def _condition(met: bool | None, reason: str, message: str) -> PolicyCondition:
    return PolicyCondition(condition_types.BUILTIN_REQUESTS_REFUSED, met, reason, printable(message))


__all__ = ["NOT_PROVEN", "NOT_SERVED", "BuiltinRequestRefusal", "RefusalCalls", "StillRefused", "remove_refusal"]
