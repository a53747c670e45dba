"""Looks after the auto-approval of one workload cluster while there is a connection, and says how it stands.

At once after something that may concern it (the policy, an attestation that was waited for, a built-in approval), and
every few minutes in any case: ``kubeadm upgrade`` brings the bindings back.
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
from signer.controller.auto_approval.findings import Situation
from signer.controller.auto_approval.pool_tokens import GrantMissing, PoolTokens, Unfinished, condition_of, intent_of
from signer.controller.auto_approval.pool_tokens import Outcome as PoolTokensOutcome
from signer.controller.auto_approval.reinstated_bindings import REMOVED_GRANT_RETURNS, ReinstatedBindings
from signer.controller.auto_approval.removal import AutoApprovalRemoval
from signer.controller.auto_approval.unattested_requests import UnattestedRequests
from signer.controller.status.renewal_coverage import RenewalCoverage
from signer.controller.telemetry.metrics import Metrics
from signer.controller.telemetry.metrics_collector import UNATTESTED, ServiceGauge
from signer.decision.authority_source import AuthoritySource, AuthorityUnavailable
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

LOOK_SECONDS: Final = 180.0
"""How often the door is looked at when nothing asks for it."""
SPREAD: Final = 0.2
"""By how much of that, so that all clusters do not look at once."""
REST_SECONDS: Final = 2.0
"""Between two looks, whatever happens meanwhile."""
AGAIN: Final = Backoff(base_seconds=5.0, maximum_seconds=LOOK_SECONDS, jitter=0.5)
"""After a look that failed, or that removed something: neither a fault of a moment nor who puts back at once what is
removed must leave the door open for minutes.
"""
CHECKS_AT_ONCE: Final = 8
"""Of all clusters together, of those whose API servers answer quickly."""
CHECK_SECONDS: Final = 3.0
"""A look that takes longer goes on, and another begins: dripping servers must not keep others' doors open."""
TEND_TIMEOUT_SECONDS: Final = 120.0
"""For the bootstrap tokens at one look; the next one goes on with the others."""
_MAXIMUM_GROUP_SETS: Final = 64
_MAXIMUM_GROUPS: Final = 16
_PASSING: Final = frozenset(
    {"RemovalPending", "RemovedGrantsNotKept", "Forbidden", "RestorationIncomplete", REMOVED_GRANT_RETURNS}
)
"""Reasons of a False that may be over at the next look; the others wait for a person or for an attestation."""
_TOKEN_USER: Final = re.compile(rf"{BOOTSTRAP_USER_PREFIX}[a-z0-9]{{6}}")
_TOKEN_GROUP: Final = re.compile(rf"{BOOTSTRAPPERS_GROUP}(?::[a-z0-9:-]{{0,255}}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class _AskedFor:
    """By which policy a look went; what it found says nothing of another."""

    uid: str
    generation: int
    mode: Mode | None
    """None where it cannot be followed."""


@dataclass(frozen=True, slots=True)
class _NoPolicy:
    """There is none."""


class AutoApprovalReconciler:
    """The auto-approval of one cluster, and the bootstrap tokens of its MachinePools."""

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
        self._reinstated = ReinstatedBindings()
        self._pool_tokens = PoolTokens(key, now=now)
        self._bootstrap_tokens = bootstrap_tokens
        self._checks = checks
        self._changed = changed
        self._metrics = metrics
        self._now = now
        self.renewal_coverage = renewal_coverage
        self._wanted = asyncio.Event()
        self._random = SystemRandom()
        self._failed_looks = 0
        self._unattested: set[str] = set()
        """Provider IDs of those that renewal was left open for at the last look."""
        self._group_sets: set[frozenset[str]] = set()
        self._too_many_group_sets = False
        self._approvals = BuiltinApprovals()
        self._in_vain = UnattestedRequests()
        self._conditions: tuple[PolicyCondition, ...] = (_unknown("Connecting", "not looked at yet"),)
        self._found_under: _AskedFor | _NoPolicy = _NoPolicy()
        """What the policy asked for at the look that found these conditions."""

    @property
    def conditions(self) -> tuple[PolicyCondition, ...]:
        """What the last look found, if it went by the policy as it is; and how many were approved up to now."""
        if self._found_under != self._asked_for() and any(one.met is not None for one in self._conditions):
            return (_unknown("PolicyChanged", "it has not been looked at since the policy changed"),)
        return tuple(self._with_requests(one) for one in self._conditions)

    def gauges(self) -> tuple[ServiceGauge, ...]:
        """How many requesters have asked the built-in signer in vain within the last hour."""
        return (ServiceGauge(UNATTESTED, self._in_vain.count(self._now())),)

    def wake(self) -> None:
        """Something changed that may concern auto-approval."""
        self._wanted.set()

    def decided(self, machine: MachineView, decision: Decision, hint: str) -> None:
        """A node may have been attested: perhaps it was the last one that renewal was left open for."""
        if isinstance(decision, Approve) and machine.provider_id in self._unattested:
            self._unattested.discard(machine.provider_id)
            if not self._unattested:
                self._wanted.set()

    def listed(self, manifest: JsonObject) -> None:
        """A CSR of a list: what was approved before the first of them is not counted, what while nobody watched is."""
        if self._approvals.listed(manifest) is Seen.NOW:
            self._wanted.set()
        self.saw(manifest)

    def list_ended(self) -> None:
        """All of a list was told."""
        self._approvals.list_ended()

    def saw(self, manifest: JsonObject) -> None:
        """A CSR of the cluster, of whatever signer: its groups, and whether it was approved without attestation."""
        spec = mapping_of(manifest, "spec")
        if _TOKEN_USER.fullmatch(text_of(spec, "username")):
            self._note_groups(spec)
        if self._approvals.count(manifest, self._now) is Seen.NOW:
            self._note_approval(manifest)
        if self._in_vain.saw(manifest, self._now()) is Seen.NOW and self._is_removed():
            self._changed.set()

    def _note_groups(self, spec: Mapping[str, Any]) -> None:
        named = items_of(spec, "groups")
        if len(named) > _MAXIMUM_GROUPS:
            return
        # No token has other groups (cluster-bootstrap/token/api, BootstrapGroupPattern), nor longer ones.
        groups = frozenset(group for group in named if isinstance(group, str) and _TOKEN_GROUP.fullmatch(group))
        if groups in self._group_sets or not groups or self._too_many_group_sets:
            return
        if len(self._group_sets) < _MAXIMUM_GROUP_SETS:
            self._group_sets.add(groups)
        else:
            self._too_many_group_sets = True
        self._wanted.set()

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
            self._wanted.set()
        elif self._approvals.is_shown_otherwise:
            self._changed.set()

    def _asked_for(self) -> _AskedFor | _NoPolicy:
        policy = self._caches.policies.get(self._key.namespace, self._key.name)
        if isinstance(policy, Policy):
            return _AskedFor(policy.uid, policy.generation, policy.mode)
        if isinstance(policy, UnreadablePolicy):
            return _AskedFor(policy.uid, policy.generation, None)
        return _NoPolicy()

    def _mode(self) -> Mode:
        policy = self._caches.policies.get(self._key.namespace, self._key.name)
        return policy.mode if isinstance(policy, Policy) else Mode.OBSERVE

    async def run(self, client: Client) -> None:
        """Remove or restore auto-approval over this connection, again and again, until cancelled."""
        try:
            while True:
                self._wanted.clear()
                async with self._checks.turn():
                    asked_for = self._asked_for()
                    with isolated(partial(self._look_failed, asked_for)):
                        self._found(asked_for, await self._look(client))
                await asyncio.sleep(REST_SECONDS)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._until_next_look()):
                        await self._wanted.wait()
        finally:
            self._conditions = (_unknown("WorkloadClusterUnreachable", "the workload cluster cannot be asked"),)

    def _look_failed(self, asked_for: _AskedFor | _NoPolicy, error: BaseException) -> None:
        """A fault of ours must neither end the watch nor pass for removed."""
        _LOG.error("unexpected fault at the auto-approval", exc_info=error, extra={"cluster": str(self._key)})
        self._found(asked_for, (_unknown(Reason.INTERNAL_ERROR, "see the controller's log"),))

    def _found(self, asked_for: _AskedFor | _NoPolicy, conditions: tuple[PolicyCondition, ...]) -> None:
        self._conditions, self._found_under = conditions, asked_for
        self._changed.set()

    def _until_next_look(self) -> float:
        """Seconds: soon, where the last look may have failed for a moment only, or what it removed may come back."""
        if self._auto_approval.removed_at_last_look or any(
            one.met is None or (one.met is False and one.reason in _PASSING) for one in self._conditions
        ):
            self._failed_looks += 1
            return min(AGAIN.delay(self._failed_looks - 1, self._random), LOOK_SECONDS)
        self._failed_looks = 0
        return LOOK_SECONDS * self._random.uniform(1 - SPREAD, 1 + SPREAD)

    async def _look(self, client: Client) -> tuple[PolicyCondition, ...]:
        caches, asked_for = self._caches, self._asked_for()
        cluster = caches.clusters.get(self._key.namespace, self._key.name)
        policy = caches.policies.get(self._key.namespace, self._key.name)
        if not isinstance(cluster, ClusterView) or not isinstance(policy, Policy):
            return (_unknown("PolicyInvalid", "there is no policy that can be followed: nothing is changed"),)
        try:
            caches.require_in_touch()
            unattested = await self.renewal_coverage.unattested() if policy.mode is Mode.ENFORCE else ()
            self._unattested = {one.machine.provider_id for one in unattested}
            authority = await self._authority_source.authority()
        except Deferred as error:
            return (_unknown(str(error.defer.reason), error.defer.message),)
        except AuthorityUnavailable as error:
            return (_unknown(error.reason, str(error)),)
        if policy.mode is Mode.ENFORCE and self._too_many_group_sets:
            return (
                _unknown("TooManyGroups", "bootstrap tokens with more sets of groups were seen than are asked about"),
            )
        situation = Situation(
            policy=policy,
            cluster=cluster,
            ca_cert_hash=authority.client.certificate.public_key_hash,
            unattested=[str(one) for one in unattested],
            token_groups=frozenset(self._group_sets),
        )
        if policy.machine_pool_tokens is MachinePoolTokens.EXTEND and policy.mode is Mode.ENFORCE:
            removed = await self._reconcile(client, situation)
            # At once: a door that is open is not to be called shut for as long as the tokens take.
            self._found(asked_for, (removed, self._tokens_before(asked_for)))
            outcome = await self._tend(client, policy, cluster, removed)
        else:
            # Before the door is opened again: no token that was made to live long may find it open.
            outcome = await self._tend(client, policy, cluster, _NOT_REMOVED)
            if isinstance(outcome, Unfinished | GrantMissing) and policy.mode is Mode.OBSERVE:
                return (_still_extended(outcome),)
            removed = await self._reconcile(client, situation)
        conditions = [removed]
        if policy.machine_pool_tokens is MachinePoolTokens.EXTEND:
            conditions.append(condition_of(outcome))
        return tuple(conditions)

    def _tokens_before(self, asked_for: _AskedFor | _NoPolicy) -> PolicyCondition:
        """What was said of bootstrap tokens last, until they have been looked at again."""
        if self._found_under == asked_for:
            for condition in self._conditions:
                if condition.type == condition_types.MACHINE_POOL_TOKENS_EXTENDED:
                    return condition
        return PolicyCondition(condition_types.MACHINE_POOL_TOKENS_EXTENDED, None, "Connecting", "not looked at yet")

    async def _reconcile(self, client: Client, situation: Situation) -> PolicyCondition:
        """One look at the door itself."""
        if situation.policy.mode is not Mode.ENFORCE:
            self._reinstated.forget()
        condition = await self._auto_approval.reconcile(client, situation)
        now = self._now()
        self._reinstated.removed(self._auto_approval.removed_at_last_look, now)
        return self._reinstated.judged(condition, now)

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
        """Under Observe what Enforce would have refused; under Enforce, where approval is gone, who asked in vain."""
        if condition.type != condition_types.AUTO_APPROVAL_REMOVED:
            return condition
        if self._mode() is Mode.OBSERVE:
            return self._approvals.told_in(condition)
        return self._in_vain.told_in(condition, self._now()) if condition.met is True else condition


def _unknown(reason: str, message: str) -> PolicyCondition:
    return PolicyCondition(condition_types.AUTO_APPROVAL_REMOVED, None, reason, message)


def _still_extended(outcome: Unfinished | GrantMissing) -> PolicyCondition:
    said = f"the bootstrap tokens of MachinePools still live long, so nothing is restored yet: {outcome.message}"
    return PolicyCondition(condition_types.AUTO_APPROVAL_REMOVED, False, "RestorationIncomplete", printable(said))


_NOT_REMOVED: Final = PolicyCondition(
    condition_types.AUTO_APPROVAL_REMOVED, False, "Observing", "automatic approval is in place, or about to be"
)
