"""Reconciles the auto-approval of one workload cluster while it is connected, and reports conditions.

The controller re-checks at once after a relevant change (the policy, an awaited attestation, a built-in approval), and
every few minutes in any case, because ``kubeadm upgrade`` creates the bindings again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from random import SystemRandom
from typing import Any, Final

from attestors.wire.names import BOOTSTRAP_USER_PREFIX, BOOTSTRAPPERS_GROUP
from signer.controller.auto_approval.builtin_approvals import BuiltinApprovals, Seen
from signer.controller.auto_approval.findings import Situation, is_untouchable
from signer.controller.auto_approval.pool_tokens import GrantMissing, PoolTokens, Unfinished, condition_of, intent_of
from signer.controller.auto_approval.pool_tokens import Outcome as PoolTokensOutcome
from signer.controller.auto_approval.refusal import NOT_PROVEN, BuiltinRequestRefusal, StillRefused
from signer.controller.auto_approval.reinstated_bindings import REMOVED_GRANT_RETURNS, ReinstatedBindings
from signer.controller.auto_approval.removal import AutoApprovalRemoval
from signer.controller.auto_approval.unattested_requests import UnattestedRequests
from signer.controller.status.renewal_coverage import RenewalCoverage
from signer.controller.telemetry.metrics import Metrics
from signer.controller.telemetry.metrics_collector import UNATTESTED, ServiceGauge
from signer.decision.authority_secrets import AuthorityUnavailable
from signer.decision.authority_source import AuthoritySource
from signer.kube.backoff import Backoff
from signer.kube.client import Client, JsonObject
from signer.kube.scheduling import TimedSemaphore
from signer.kube.supervision import isolated
from signer.model import condition as condition_types
from signer.model.cluster import ClusterKey, ClusterView, MachineView
from signer.model.condition import PolicyCondition
from signer.model.decision import Approve, Decision, Deferred, printable
from signer.model.fields import items_of, mapping_of, text_of
from signer.model.policy import MachinePoolTokens, Mode, Policy
from signer.model.reasons import Reason
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.caches import Caches, UnreadablePolicy
from signer.store.removed_bindings import RemovedBindings

_LOG = logging.getLogger(__name__)

RECHECK_SECONDS: Final = 180.0
"""How often auto-approval is checked without a change."""
JITTER: Final = 0.2
"""Random fraction of the interval, so that clusters are not checked at the same time."""
MINIMUM_PAUSE_SECONDS: Final = 2.0
"""Minimum pause between two checks."""
RETRY_BACKOFF: Final = Backoff(base_seconds=5.0, maximum_seconds=RECHECK_SECONDS, jitter=0.5)
"""Backoff after a check that failed or removed something: neither a transient failure nor a client that reinstates
bindings at once must leave auto-approval in place for minutes.
"""
CHECKS_AT_ONCE: Final = 8
"""Checks at once, of all clusters together."""
CHECK_SECONDS: Final = 3.0
"""A check that takes longer continues without its slot, and another begins: a slow API server must not delay the
removal in other clusters."""
TEND_TIMEOUT_SECONDS: Final = 120.0
"""Limit for the bootstrap tokens in one check; the next check continues with the rest."""
_MAXIMUM_GROUP_SETS: Final = 64
_MAXIMUM_GROUPS: Final = 16
_PASSING: Final = frozenset(
    {"RemovalPending", "RemovedGrantsNotKept", "Forbidden", "RestorationIncomplete", REMOVED_GRANT_RETURNS, NOT_PROVEN}
)
"""Reasons for False that may be transient; the others wait for an administrator or an attestation."""
_TOKEN_USER: Final = re.compile(rf"{BOOTSTRAP_USER_PREFIX}[a-z0-9]{{6}}")
_TOKEN_GROUP: Final = re.compile(rf"{BOOTSTRAPPERS_GROUP}(?::[a-z0-9:-]{{0,255}}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class _PolicyVersion:
    """The policy on which a check was based; its findings say nothing about another."""

    uid: str
    generation: int
    mode: Mode | None
    """None for an invalid policy."""


@dataclass(frozen=True, slots=True)
class _NoPolicy:
    """There is no policy."""


class AutoApprovalReconciler:
    """Reconciles one cluster's auto-approval and the bootstrap tokens of its MachinePools."""

    name: Final = "auto-approval"

    def __init__(
        self,
        key: ClusterKey,
        *,
        caches: Caches,
        renewal_coverage: RenewalCoverage,
        authority_source: AuthoritySource,
        removed_bindings: RemovedBindings,
        bootstrap_tokens: BootstrapTokens,
        checks: TimedSemaphore,
        changed: asyncio.Event,
        metrics: Metrics,
        now: Callable[[], datetime],
    ) -> None:
        """``checks`` limits how many clusters are checked at once; ``changed`` is set when conditions have changed."""
        self._key = key
        self._caches = caches
        self._authority_source = authority_source
        self._auto_approval = AutoApprovalRemoval(removed_bindings)
        self._refusal = BuiltinRequestRefusal(removed_bindings, now)
        self._reinstated = ReinstatedBindings()
        self._pool_tokens = PoolTokens(key, now=now)
        self._bootstrap_tokens = bootstrap_tokens
        self._checks = checks
        self._changed = changed
        self._metrics = metrics
        self._now = now
        self.renewal_coverage = renewal_coverage
        self._recheck_needed = asyncio.Event()
        self._random = SystemRandom()
        self._failed_checks = 0
        self._unattested: set[str] = set()
        """Provider IDs of Machines for which the last check kept auto-approved renewal."""
        self._group_sets: set[frozenset[str]] = set()
        self._too_many_group_sets = False
        self._approvals = BuiltinApprovals()
        self._unattested_requests = UnattestedRequests()
        self._conditions: tuple[PolicyCondition, ...] = (_unknown("Connecting", "not checked yet"),)
        self._conditions_for: _PolicyVersion | _NoPolicy = _NoPolicy()
        """The policy on which the check that found these conditions was based."""

    @property
    def conditions(self) -> tuple[PolicyCondition, ...]:
        """The conditions of the last check, with the current request counts; Unknown once the policy has changed."""
        if self._conditions_for != self._policy_version() and any(one.met is not None for one in self._conditions):
            return (_unknown("PolicyChanged", "not checked since the policy changed"),)
        return tuple(self._with_requests(one) for one in self._conditions)

    def gauges(self) -> tuple[ServiceGauge, ...]:
        """The number of requesters that got no certificate from the built-in signer within the last hour."""
        return (ServiceGauge(UNATTESTED, self._unattested_requests.count(self._now())),)

    def wake(self) -> None:
        """Something that auto-approval may depend on has changed."""
        self._recheck_needed.set()

    def decided(self, machine: MachineView, decision: Decision, hint: str) -> None:
        """Re-check when the last Machine for which auto-approved renewal was kept is attested."""
        if isinstance(decision, Approve) and machine.provider_id in self._unattested:
            self._unattested.discard(machine.provider_id)
            if not self._unattested:
                self._recheck_needed.set()

    def listed(self, manifest: JsonObject) -> None:
        """A CSR of a list. Approvals from before the first list are not counted; those during a watch gap are."""
        if self._approvals.listed(manifest) is Seen.NOW:
            self._recheck_needed.set()
        self.observed(manifest)

    def list_ended(self) -> None:
        """The list is complete."""
        self._approvals.list_ended()

    def observed(self, manifest: JsonObject) -> None:
        """A CSR of any signer: note its requester's groups, and whether it was approved without attestation."""
        spec = mapping_of(manifest, "spec")
        if _TOKEN_USER.fullmatch(text_of(spec, "username")):
            self._note_groups(spec)
        if self._approvals.count(manifest, self._now) is Seen.NOW:
            self._note_approval(manifest)
        if self._unattested_requests.observed(manifest, self._now()) is Seen.NOW and self._is_removed():
            self._changed.set()

    def _note_groups(self, spec: Mapping[str, Any]) -> None:
        named = items_of(spec, "groups")
        if len(named) > _MAXIMUM_GROUPS:
            return
        # Tokens have no other or longer groups (cluster-bootstrap/token/api, BootstrapGroupPattern).
        groups = frozenset(group for group in named if isinstance(group, str) and _TOKEN_GROUP.fullmatch(group))
        if groups in self._group_sets or not groups or self._too_many_group_sets:
            return
        if len(self._group_sets) < _MAXIMUM_GROUP_SETS:
            self._group_sets.add(groups)
        else:
            self._too_many_group_sets = True
        self._recheck_needed.set()

    def _note_approval(self, manifest: JsonObject) -> None:
        metadata = mapping_of(manifest, "metadata")
        self._metrics.builtin_approvals.labels(str(self._key)).inc()
        _LOG.info(
            "a built-in request was approved without attestation",
            extra={
                "cluster": str(self._key),
                "csr": printable(text_of(metadata, "name")[:253]),
                "requester": printable(text_of(mapping_of(manifest, "spec"), "username")[:253]),
            },
        )
        if self._mode() is Mode.ENFORCE:
            self._recheck_needed.set()
        elif self._approvals.changes_message:
            self._changed.set()

    def _policy_version(self) -> _PolicyVersion | _NoPolicy:
        policy = self._caches.policies.get(self._key.namespace, self._key.name)
        if isinstance(policy, Policy):
            return _PolicyVersion(policy.uid, policy.generation, policy.mode)
        if isinstance(policy, UnreadablePolicy):
            return _PolicyVersion(policy.uid, policy.generation, None)
        return _NoPolicy()

    def _mode(self) -> Mode:
        policy = self._caches.policies.get(self._key.namespace, self._key.name)
        return policy.mode if isinstance(policy, Policy) else Mode.OBSERVE

    async def run(self, client: Client) -> None:
        """Remove or restore auto-approval over this connection periodically until cancelled."""
        try:
            while True:
                self._recheck_needed.clear()
                async with self._checks.turn():
                    version = self._policy_version()
                    with isolated(partial(self._check_failed, version)):
                        self._set_conditions(version, await self._check_once(client))
                await asyncio.sleep(MINIMUM_PAUSE_SECONDS)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._seconds_until_recheck()):
                        await self._recheck_needed.wait()
        finally:
            self._conditions = (_unknown("WorkloadClusterUnreachable", "the workload cluster cannot be queried"),)

    def _check_failed(self, version: _PolicyVersion | _NoPolicy, error: BaseException) -> None:
        """A defect must neither end the task nor pass for removed auto-approval."""
        _LOG.error("unexpected fault in the auto-approval check", exc_info=error, extra={"cluster": str(self._key)})
        self._set_conditions(version, (_unknown(Reason.INTERNAL_ERROR, "see the controller's log"),))

    def _set_conditions(self, version: _PolicyVersion | _NoPolicy, conditions: tuple[PolicyCondition, ...]) -> None:
        self._conditions, self._conditions_for = conditions, version
        self._changed.set()

    def _seconds_until_recheck(self) -> float:
        """Seconds to the next check: backoff if a failure may be transient or a removed binding may be reinstated."""
        if self._auto_approval.last_removed or any(
            one.met is None or (one.met is False and one.reason in _PASSING) for one in self._conditions
        ):
            self._failed_checks += 1
            return min(RETRY_BACKOFF.delay(self._failed_checks - 1, self._random), RECHECK_SECONDS)
        self._failed_checks = 0
        return RECHECK_SECONDS * self._random.uniform(1 - JITTER, 1 + JITTER)

    async def _check_once(self, client: Client) -> tuple[PolicyCondition, ...]:
        caches, version = self._caches, self._policy_version()
        cluster = caches.clusters.get(self._key.namespace, self._key.name)
        policy = caches.policies.get(self._key.namespace, self._key.name)
        if not isinstance(cluster, ClusterView) or not isinstance(policy, Policy):
            return (_unknown("PolicyInvalid", "there is no valid policy: nothing is changed"),)
        try:
            caches.require_current(self._key.namespace)
            unattested = await self.renewal_coverage.unattested() if policy.mode is Mode.ENFORCE else ()
            self._unattested = {one.machine.provider_id for one in unattested}
            authority = await self._authority_source.authority()
        except Deferred as error:
            return (_unknown(str(error.defer.reason), error.defer.message),)
        except AuthorityUnavailable as error:
            return (_unknown(error.reason, str(error)),)
        if policy.mode is Mode.ENFORCE and self._too_many_group_sets:
            return (_unknown("TooManyGroups", "bootstrap tokens have more sets of groups than the controller reviews"),)
        situation = Situation(
            policy=policy,
            cluster=cluster,
            ca_cert_hash=authority.serving.certificate.public_key_hash,
            unattested=[str(one) for one in unattested],
            token_groups=frozenset(self._group_sets),
        )
        if policy.machine_pool_tokens is MachinePoolTokens.EXTEND and policy.mode is Mode.ENFORCE:
            removed, *refused = await self._reconcile(client, situation)
            # Report at once: the old condition must not stay True while the tokens are reconciled.
            self._set_conditions(version, (removed, *refused, self._previous_tokens_condition(version)))
            outcome = await self._tend(client, policy, cluster, removed)
        else:
            # First, because an extended token must never coincide with auto-approval.
            outcome = await self._tend(client, policy, cluster, _NOT_REMOVED)
            if isinstance(outcome, Unfinished | GrantMissing) and policy.mode is Mode.OBSERVE:
                return (_still_extended(outcome),)
            removed, *refused = await self._reconcile(client, situation)
        conditions = [removed, *refused]
        if policy.machine_pool_tokens is MachinePoolTokens.EXTEND:
            conditions.append(condition_of(outcome))
        return tuple(conditions)

    def _previous_tokens_condition(self, version: _PolicyVersion | _NoPolicy) -> PolicyCondition:
        """The last condition of bootstrap tokens, until they are checked again."""
        if self._conditions_for == version:
            for condition in self._conditions:
                if condition.type == condition_types.MACHINE_POOL_TOKENS_EXTENDED:
                    return condition
        return PolicyCondition(condition_types.MACHINE_POOL_TOKENS_EXTENDED, None, "Connecting", "not checked yet")

    async def _reconcile(self, client: Client, situation: Situation) -> tuple[PolicyCondition, ...]:
        """Check the auto-approval grants once, and under Enforce the admission policies first: they have no gap."""
        refused: tuple[PolicyCondition, ...] = ()
        if situation.policy.mode is Mode.ENFORCE:
            refused = (await self._refusal.refuse(client, situation),)
        else:
            self._reinstated.forget()
            if not is_untouchable(situation.cluster):
                try:
                    await self._refusal.withdraw(client)
                except StillRefused as error:
                    return (_incomplete(str(error)),)
        condition = await self._auto_approval.reconcile(client, situation)
        now = self._now()
        self._reinstated.removed(self._auto_approval.last_removed, now)
        return (self._reinstated.adjusted(condition, now), *refused)

    async def _tend(
        self, client: Client, policy: Policy, cluster: ClusterView, removed: PolicyCondition
    ) -> PoolTokensOutcome:
        tokens = self._bootstrap_tokens.pool_tokens(self._key)
        try:
            async with asyncio.timeout(TEND_TIMEOUT_SECONDS):
                return await self._pool_tokens.tend(client, intent_of(policy, cluster, removed), tokens)
        except TimeoutError:
            return Unfinished(f"the workload cluster answered too slowly: {TEND_TIMEOUT_SECONDS:.0f} s")

    def _is_removed(self) -> bool:
        return any(one.type == condition_types.AUTO_APPROVAL_REMOVED and one.met is True for one in self._conditions)

    def _with_requests(self, condition: PolicyCondition) -> PolicyCondition:
        """The condition with approvals without attestation (Observe) or requests without approval (Enforce)."""
        if condition.type != condition_types.AUTO_APPROVAL_REMOVED:
            return condition
        if self._mode() is Mode.OBSERVE:
            return self._approvals.annotated(condition)
        return self._unattested_requests.annotated(condition, self._now()) if condition.met is True else condition


def _unknown(reason: str, message: str) -> PolicyCondition:
    return PolicyCondition(condition_types.AUTO_APPROVAL_REMOVED, None, reason, message)


def _still_extended(outcome: Unfinished | GrantMissing) -> PolicyCondition:
    return _incomplete(
        f"the bootstrap tokens of MachinePools are still extended, so nothing is restored yet: {outcome.message}"
    )


def _incomplete(message: str) -> PolicyCondition:
    return PolicyCondition(condition_types.AUTO_APPROVAL_REMOVED, False, "RestorationIncomplete", printable(message))


_NOT_REMOVED: Final = PolicyCondition(
    condition_types.AUTO_APPROVAL_REMOVED, False, "Observing", "automatic approval is in place, or will be"
)
