"""The auto-approval reconciler: bounded memory of requests, intervals of checks, and conditions."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from typing import Any, cast
from unittest.mock import AsyncMock, MagicMock, PropertyMock

import pytest

from signer.controller.auto_approval import builtin_approvals as builtin_approvals
from signer.controller.auto_approval import reconciler as reconciler
from signer.controller.auto_approval.pool_tokens import Intent, NothingToTend, Tended
from signer.controller.auto_approval.reconciler import JITTER, RECHECK_SECONDS, AutoApprovalReconciler
from signer.controller.auto_approval.refusal import StillRefused
from signer.controller.status.renewal_coverage import RenewalCoverage
from signer.controller.telemetry.metrics import Metrics
from signer.model import condition as condition_types
from signer.model.cluster import ClusterKey
from signer.model.condition import PolicyCondition
from signer.model.decision import Approve
from signer.model.fields import format_time
from signer.model.policy import Mode
from signer.store.caches import UnreadablePolicy
from tests.unit.signer.builders import cluster_view, policy
from tests.unit.signer.controller.support import NOW

TOKEN = "system:bootstrap:abc123"
KUBEADM = "system:bootstrappers:kubeadm:default-node-token"
CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
REFUSED = PolicyCondition(condition_types.BUILTIN_REQUESTS_REFUSED, True, "Proven", "proven")


@pytest.fixture
def reconciling() -> AutoApprovalReconciler:
    key, caches = ClusterKey("team-a", "one"), MagicMock()
    return AutoApprovalReconciler(
        key,
        caches=caches,
        renewal_coverage=RenewalCoverage(
            key, registry=MagicMock(), caches=caches, permits=lambda provider: True, now=lambda: NOW
        ),
        authority_source=MagicMock(),
        removed_bindings=MagicMock(),
        bootstrap_tokens=MagicMock(),
        checks=MagicMock(),
        changed=asyncio.Event(),
        metrics=Metrics(),
        now=lambda: NOW,
    )


def csr(username: str = TOKEN, groups: Any = (KUBEADM,), *, uid: str = "u", approved: bool = False) -> dict[str, Any]:
    conditions = [{"type": "Approved", "status": "True"}] if approved else []
    return {
        "metadata": {"name": "csr", "uid": uid},
        "spec": {"username": username, "groups": list(groups), "signerName": CLIENT},
        "status": {"conditions": conditions},
    }


def known(reconciling: AutoApprovalReconciler) -> list[frozenset[str]]:
    return list(reconciling._group_sets)


def approvals(reconciling: AutoApprovalReconciler) -> float:
    return float(reconciling._metrics.builtin_approvals.labels("team-a/one")._value.get())


def test_groups_of_tokens_are_reviewed_too(reconciling: AutoApprovalReconciler) -> None:
    reconciling.observed(
        csr(groups=["system:authenticated", "system:bootstrappers", KUBEADM, "system:bootstrappers:extra"])
    )
    assert known(reconciling) == [frozenset({"system:bootstrappers", KUBEADM, "system:bootstrappers:extra"})]


@pytest.mark.parametrize(
    "manifest",
    [
        csr("system:node:n1"),
        csr("system:bootstrap:abc1234"),
        csr("somebody"),
        csr(groups=["x" * 1_000_000]),
        csr(groups=["system:bootstrappers:" + "x" * 1_000_000]),
        csr(groups=[f"system:bootstrappers:{number}" for number in range(17)]),
        csr(groups=[5, None, {}]),
        {},
        {"spec": "x", "metadata": [], "status": 5},
    ],
    ids=["node", "no token", "user", "long", "long token group", "many", "ill-typed", "empty", "garbage"],
)
def test_groups_that_no_token_has_are_ignored(reconciling: AutoApprovalReconciler, manifest: dict[str, Any]) -> None:
    reconciling.observed(manifest)
    assert known(reconciling) == []


def test_memory_is_bounded(reconciling: AutoApprovalReconciler) -> None:
    for number in range(1000):
        reconciling.observed(csr(groups=[f"system:bootstrappers:{number}"]))
    assert len(known(reconciling)) == reconciler._MAXIMUM_GROUP_SETS


def test_an_approval_is_counted_once(reconciling: AutoApprovalReconciler) -> None:
    reconciling.observed(csr(uid="a"))
    for _ in range(3):
        reconciling.observed(csr(uid="a", approved=True))
    reconciling.observed(csr(uid="b", approved=True))
    assert approvals(reconciling) == 2


def test_approvals_from_before_the_first_list_are_not_counted(reconciling: AutoApprovalReconciler) -> None:
    reconciling.listed(csr(uid="a", approved=True))
    reconciling.observed(csr(uid="a", approved=True))
    assert approvals(reconciling) == 0
    reconciling.listed(csr(uid="b"))
    reconciling.observed(csr(uid="b", approved=True))
    assert approvals(reconciling) == 1


def test_approvals_during_a_watch_gap_are_counted(
    reconciling: AutoApprovalReconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtin_approvals, "_REMEMBERED", 4)
    for uid in ("a", "b"):
        reconciling.listed(csr(uid=uid, approved=True))  # the connection may be lost within the first list, too
    reconciling.list_ended()
    reconciling.observed(csr(uid="c", approved=True))
    assert approvals(reconciling) == 1
    for uid in ("a", "b", "c", "d"):
        reconciling.listed(csr(uid=uid, approved=True))
    reconciling.list_ended()
    assert approvals(reconciling) == 2
    for uid in ("a", "b", "c", "d", "e", "a"):
        reconciling.listed(csr(uid=uid, approved=True))
    assert approvals(reconciling) == 2, "there were more than are remembered"


def attested(reconciling: AutoApprovalReconciler, provider_id: str) -> None:
    reconciling.decided(MagicMock(provider_id=provider_id), MagicMock(spec=Approve), "")


class NotifyingEvent(asyncio.Event):
    """An event that calls ``notify`` each time it is set."""

    def __init__(self, notify: Callable[[], object]) -> None:
        super().__init__()
        self._notify = notify

    def set(self) -> None:
        super().set()
        self._notify()


def test_the_last_attested_node_triggers_a_check(reconciling: AutoApprovalReconciler) -> None:
    reconciling._unattested = {"p:///1", "p:///2"}
    attested(reconciling, "p:///3")
    attested(reconciling, "p:///1")
    attested(reconciling, "p:///1")
    assert not reconciling._recheck_needed.is_set(), (
        "one is left: a fleet that joins must not cause a look for each node"
    )
    attested(reconciling, "p:///2")
    assert reconciling._recheck_needed.is_set()


def found(met: bool | None, reason: str) -> PolicyCondition:
    return PolicyCondition(condition_types.AUTO_APPROVAL_REMOVED, met, reason, "")


@pytest.mark.parametrize(
    "condition",
    [
        found(None, "WorkloadClusterUnreachable"),
        *(found(False, reason) for reason in ("Forbidden", "RemovedGrantsNotKept", "RemovedGrantReturns")),
    ],
    ids=lambda condition: condition.reason,
)
def test_failed_checks_are_repeated_with_backoff(
    reconciling: AutoApprovalReconciler, condition: PolicyCondition
) -> None:
    reconciling._conditions = (found(True, "Removed"), condition)
    pauses = [reconciling._seconds_until_recheck() for _ in range(12)]
    assert pauses[0] <= 5.0
    assert pauses[-1] >= RECHECK_SECONDS / 2
    assert max(pauses) <= RECHECK_SECONDS
    reconciling._conditions = (found(True, "Removed"),)
    reconciling._seconds_until_recheck()
    reconciling._conditions = (condition,)
    assert reconciling._seconds_until_recheck() <= 5.0, "a look that succeeded ends the series"


@pytest.mark.parametrize("condition", [found(True, "Removed"), found(False, "WaitingForAttestation")])
def test_checks_of_many_clusters_spread(reconciling: AutoApprovalReconciler, condition: PolicyCondition) -> None:
    reconciling._conditions = (condition,)
    pauses = [reconciling._seconds_until_recheck() for _ in range(50)]
    assert len(set(pauses)) > 1
    assert min(pauses) >= RECHECK_SECONDS * (1 - JITTER)
    assert max(pauses) <= RECHECK_SECONDS * (1 + JITTER)


def test_a_check_that_removed_something_is_repeated_soon(reconciling: AutoApprovalReconciler) -> None:
    """A client that reinstates a binding at once must not restore auto-approval for minutes."""
    reconciling._conditions = (found(True, "Removed"),)
    reconciling._auto_approval.last_removed["kubeadm:node-autoapprove-bootstrap"] = "uid-1"
    assert reconciling._seconds_until_recheck() <= 5.0
    reconciling._auto_approval.last_removed.clear()
    assert reconciling._seconds_until_recheck() >= RECHECK_SECONDS * (1 - JITTER)


def test_an_approval_triggers_a_check_only_under_enforce(
    reconciling: AutoApprovalReconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciling, "_mode", lambda: Mode.OBSERVE)
    reconciling.observed(csr(username="somebody", uid="a", approved=True))
    assert not reconciling._recheck_needed.is_set()
    monkeypatch.setattr(reconciling, "_mode", lambda: Mode.ENFORCE)
    reconciling.observed(csr(username="somebody", uid="b", approved=True))
    assert reconciling._recheck_needed.is_set()


@pytest.fixture
def enforcing(reconciling: AutoApprovalReconciler, monkeypatch: pytest.MonkeyPatch) -> AutoApprovalReconciler:
    """Each check finds auto-approval removed."""
    has_policy(reconciling, mode="Enforce")
    caches: Any = reconciling._caches
    caches.clusters.get = lambda *_: cluster_view()
    monkeypatch.setattr(reconciling, "renewal_coverage", MagicMock(unattested=AsyncMock(return_value=())))
    reconciling._authority_source = MagicMock(authority=AsyncMock())
    reconciling._auto_approval = auto_approval(AsyncMock(return_value=found(True, "Removed")))
    reconciling._refusal = MagicMock(refuse=AsyncMock(return_value=REFUSED), withdraw=AsyncMock())
    monkeypatch.setattr(reconciling, "_pool_tokens", MagicMock(tend=AsyncMock(return_value=NothingToTend())))
    return reconciling


def auto_approval(reconcile: Any, removed: Iterable[str] = ()) -> Any:
    """Each check removes these bindings, which were reinstated."""
    uids, removal = itertools.count(), MagicMock(reconcile=reconcile)
    names = list(removed)
    removals = PropertyMock(side_effect=lambda: {name: str(next(uids)) for name in names})
    type(removal).last_removed = removals
    return removal


def has_policy(reconciling: AutoApprovalReconciler, *, uid: str = "policy-1", generation: int = 1, **spec: Any) -> None:
    made = replace(policy(**spec), uid=uid, generation=generation)
    cast("Any", reconciling._caches).policies.get = lambda *_: made


async def test_too_many_groups_give_unknown(enforcing: AutoApprovalReconciler) -> None:
    """The reviews would not cover the remaining groups."""
    reconciling = enforcing
    for number in range(reconciler._MAXIMUM_GROUP_SETS):
        reconciling.observed(csr(groups=[f"system:bootstrappers:{number}"]))
    assert (await reconciling._check_once(MagicMock()))[0] == found(True, "Removed")
    reconciling.observed(csr(groups=["system:bootstrappers:one-more"]))
    (condition,) = await reconciling._check_once(MagicMock())
    assert (condition.met, condition.reason) == (None, "TooManyGroups")


def test_under_observe_the_count_is_reported_at_once_and_then_in_steps(
    reconciling: AutoApprovalReconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciling, "_mode", lambda: Mode.OBSERVE)
    reconciling._conditions = (found(False, "Observing"),)
    published: list[str] = []
    reconciling._changed = NotifyingEvent(lambda: published.append(reconciling.conditions[0].message))
    for number in range(25):
        reconciling.observed(csr(username="somebody", uid=str(number), approved=True))
    assert [text.split(" built-in")[0].removeprefix("; ") for text in published] == [
        *(str(number) for number in range(1, 10)),
        "at least 10",
        "at least 20",
    ]
    monkeypatch.setattr(reconciling, "_mode", lambda: Mode.ENFORCE)
    assert reconciling.conditions == (found(False, "Observing"),)


@pytest.mark.parametrize(("met", "named"), [(True, True), (False, False), (None, False)])
def test_unattested_requesters_are_reported_once_auto_approval_is_removed(
    reconciling: AutoApprovalReconciler, met: bool | None, named: bool
) -> None:
    """Otherwise the requests may still be approved."""
    has_policy(reconciling, mode="Enforce")
    reconciling._conditions_for = reconciling._policy_version()
    reconciling._conditions = (found(met, "Reason"),)
    published: list[str] = []
    reconciling._changed = NotifyingEvent(lambda: published.append(reconciling.conditions[0].message))
    request = csr("system:node:by-hand")
    request["metadata"]["creationTimestamp"] = format_time(NOW)
    for _ in range(2):
        reconciling.observed(request)
    assert [gauge.value for gauge in reconciling.gauges()] == [1]
    assert len(published) == named
    assert ("got none: system:node:by-hand;" in reconciling.conditions[0].message) is named


# Conditions of a check


@contextlib.asynccontextmanager
async def checking(reconciling: AutoApprovalReconciler) -> AsyncIterator[asyncio.Queue[tuple[PolicyCondition, ...]]]:
    """Run checks until the context ends; gives the conditions after each change."""
    published: asyncio.Queue[tuple[PolicyCondition, ...]] = asyncio.Queue()
    checks: Any = reconciling._checks
    checks.turn = lambda: contextlib.nullcontext(AsyncMock())
    reconciling._changed = NotifyingEvent(lambda: published.put_nowait(reconciling.conditions))
    task = asyncio.create_task(reconciling.run(MagicMock()))
    try:
        yield published
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(
    "changed",
    [
        lambda reconciling: has_policy(reconciling, mode="Observe", generation=2),
        lambda reconciling: has_policy(reconciling, mode="Enforce", generation=2),
        lambda reconciling: has_policy(reconciling, mode="Enforce", uid="policy-2"),
        lambda reconciling: has_policy(reconciling, mode="Observe"),
    ],
    ids=["left", "another generation", "another policy", "another mode"],
)
async def test_findings_do_not_apply_to_a_changed_policy(
    enforcing: AutoApprovalReconciler, changed: Callable[[AutoApprovalReconciler], None]
) -> None:
    """Otherwise an old True would be written for the new generation while bindings are restored."""
    async with checking(enforcing) as published:
        assert await published.get() == (found(True, "Removed"), REFUSED)
        changed(enforcing)
        (condition,) = enforcing.conditions
        assert (condition.met, condition.reason) == (None, "PolicyChanged")


async def test_findings_do_not_apply_to_an_invalid_policy(enforcing: AutoApprovalReconciler) -> None:
    caches: Any = enforcing._caches
    async with checking(enforcing) as published:
        await published.get()
        caches.policies.get = lambda *_: UnreadablePolicy(enforcing._key, "policy-1", 1, "no such mode")
        (condition,) = enforcing.conditions
        assert (condition.met, condition.reason) == (None, "PolicyChanged")


async def test_a_policy_that_changes_during_a_check(enforcing: AutoApprovalReconciler) -> None:
    """The findings belong to the policy at the start of the check."""

    async def reconcile(*_: Any) -> PolicyCondition:
        has_policy(enforcing, mode="Enforce", generation=2)
        return found(True, "Removed")

    enforcing._auto_approval = auto_approval(reconcile)
    async with checking(enforcing) as published:
        assert [one.reason for one in await published.get()] == ["PolicyChanged"]


async def test_unknown_findings_stay_unknown(reconciling: AutoApprovalReconciler) -> None:
    has_policy(reconciling, mode="Enforce", generation=7)
    assert [one.reason for one in reconciling.conditions] == ["Connecting"]


EXTEND: dict[str, Any] = {"mode": "Enforce", "bootstrapTokens": {"machinePools": "Extend"}}


async def test_openings_are_reported_before_tokens_are_reconciled(
    enforcing: AutoApprovalReconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be thousands of tokens, one call each."""
    has_policy(enforcing, **EXTEND)
    monkeypatch.setattr(reconciler, "MINIMUM_PAUSE_SECONDS", 0.0)
    reconcile = AsyncMock(side_effect=[found(True, "Removed"), found(False, "GrantedByOtherBinding")])
    enforcing._auto_approval = auto_approval(reconcile)
    never, tended = asyncio.Event(), Tended(alive=3, extended=0, cut_back=0)

    async def tend(*_: Any) -> Tended:
        if reconcile.await_count == 2:
            await never.wait()
        return tended

    monkeypatch.setattr(enforcing, "_pool_tokens", MagicMock(tend=tend))
    async with checking(enforcing) as published:
        refused = (True, "Proven")
        expected = [(True, "Removed"), refused, (None, "Connecting")]
        assert [(one.met, one.reason) for one in await published.get()] == expected
        assert [(one.met, one.reason) for one in await published.get()] == [*expected[:2], (True, "Extended")]
        enforcing.wake()
        openings = [(False, "GrantedByOtherBinding"), refused, (True, "Extended")]
        assert [(one.met, one.reason) for one in await published.get()] == openings


async def test_the_tokens_condition_does_not_apply_to_another_policy(enforcing: AutoApprovalReconciler) -> None:
    has_policy(enforcing, **EXTEND)
    extended = PolicyCondition(condition_types.MACHINE_POOL_TOKENS_EXTENDED, True, "Extended", "")
    async with checking(enforcing) as published:
        await published.get()
        enforcing._conditions = (found(True, "Removed"), extended)
        assert enforcing._previous_tokens_condition(enforcing._policy_version()) == extended
        has_policy(enforcing, generation=2, **EXTEND)
        assert enforcing._previous_tokens_condition(enforcing._policy_version()).reason == "Connecting"


async def test_a_defect_neither_ends_the_checks_nor_leaves_a_true_condition(
    enforcing: AutoApprovalReconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "MINIMUM_PAUSE_SECONDS", 0.0)
    enforcing._auto_approval = auto_approval(
        AsyncMock(side_effect=[found(True, "Removed"), ZeroDivisionError, found(True, "Removed")])
    )
    async with checking(enforcing) as published:
        for expected in ((True, "Removed"), (None, "InternalError"), (True, "Removed")):
            assert [(one.met, one.reason) for one in await published.get()][:1] == [expected]
            enforcing.wake()


async def test_reconciling_tokens_times_out(enforcing: AutoApprovalReconciler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bindings are not restored before the tokens are cut back."""
    monkeypatch.setattr(reconciler, "TEND_TIMEOUT_SECONDS", 0.01)

    async def tend(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(enforcing, "_pool_tokens", MagicMock(tend=tend))
    has_policy(enforcing, **EXTEND)
    conditions = await enforcing._check_once(MagicMock())
    assert [(one.type, one.met) for one in conditions] == [
        (condition_types.AUTO_APPROVAL_REMOVED, True),
        (condition_types.BUILTIN_REQUESTS_REFUSED, True),
        (condition_types.MACHINE_POOL_TOKENS_EXTENDED, None),
    ]
    assert "too slowly" in conditions[2].message
    has_policy(enforcing, **{**EXTEND, "mode": "Observe"})
    (condition,) = await enforcing._check_once(MagicMock())
    assert (condition.met, condition.reason) == (False, "RestorationIncomplete")


# Reinstated bindings


async def test_a_repeatedly_reinstated_binding_is_not_reported_as_removed(enforcing: AutoApprovalReconciler) -> None:
    enforcing._auto_approval = auto_approval(AsyncMock(return_value=found(True, "Removed")), ["gitops"])
    conditions = [(await enforcing._check_once(MagicMock()))[0] for _ in range(3)]
    assert [(one.met, one.reason) for one in conditions] == [
        (True, "Removed"),
        (True, "Removed"),
        (False, "RemovedGrantReturns"),
    ]
    assert "ClusterRoleBinding gitops" in conditions[2].message


async def test_restored_bindings_do_not_count_as_reinstated(enforcing: AutoApprovalReconciler) -> None:
    removed, restored = (
        AsyncMock(return_value=found(True, "Removed")),
        AsyncMock(return_value=found(False, "Observing")),
    )
    for _ in range(4):
        has_policy(enforcing, mode="Enforce")
        enforcing._auto_approval = auto_approval(removed, ["kubeadm"])
        assert (await enforcing._check_once(MagicMock()))[0].met is True
        has_policy(enforcing, mode="Observe")
        enforcing._auto_approval = auto_approval(restored)
        assert (await enforcing._check_once(MagicMock()))[0].reason == "Observing"


async def test_no_token_is_extended_while_a_binding_is_reinstated(enforcing: AutoApprovalReconciler) -> None:
    has_policy(enforcing, **EXTEND)
    waiting = found(False, condition_types.WAITING_FOR_ATTESTATION)
    enforcing._auto_approval = auto_approval(AsyncMock(return_value=waiting), ["gitops"])
    tend: Any = enforcing._pool_tokens.tend
    intents = []
    for _ in range(3):
        await enforcing._check_once(MagicMock())
        intents.append(tend.await_args.args[1])
    assert intents == [Intent.EXTEND, Intent.EXTEND, Intent.CUT_BACK]


async def test_under_observe_the_api_server_refuses_nothing(enforcing: AutoApprovalReconciler) -> None:
    has_policy(enforcing, mode="Observe")
    refusal: Any = enforcing._refusal
    assert await enforcing._check_once(MagicMock()) == (found(True, "Removed"),)
    refusal.withdraw.assert_awaited_once()
    refusal.refuse.assert_not_awaited()


async def test_nothing_is_restored_before_the_refusal_has_ended(enforcing: AutoApprovalReconciler) -> None:
    """The restoration deletes what says that a policy may still be there."""
    has_policy(enforcing, mode="Observe")
    refusal: Any = enforcing._refusal
    refusal.withdraw.side_effect = StillRefused("the API server is down")
    (condition,) = await enforcing._check_once(MagicMock())
    assert (condition.met, condition.reason) == (False, "RestorationIncomplete")
    assert "the API server is down" in condition.message
    cast("Any", enforcing._auto_approval).reconcile.assert_not_awaited()


async def test_a_paused_cluster_keeps_the_refusal(enforcing: AutoApprovalReconciler) -> None:
    has_policy(enforcing, mode="Observe")
    cast("Any", enforcing._caches).clusters.get = lambda *_: cluster_view(paused=True)
    await enforcing._check_once(MagicMock())
    cast("Any", enforcing._refusal).withdraw.assert_not_awaited()
