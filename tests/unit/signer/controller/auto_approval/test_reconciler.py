"""What the auto-approval's keeper remembers of requests: bounded, and of tokens only."""

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
from signer.controller.auto_approval.reconciler import LOOK_SECONDS, SPREAD, AutoApprovalReconciler
from signer.controller.status.renewal_coverage import RenewalCoverage
from signer.controller.telemetry.metrics import Metrics
from signer.model import condition as conditions
from signer.model.cluster import ClusterKey
from signer.model.condition import PolicyCondition
from signer.model.decision import Approve
from signer.model.kubernetes_time import format_time
from signer.model.policy import Mode
from signer.store.caches import UnreadablePolicy
from tests.unit.signer.builders import cluster_view, policy
from tests.unit.signer.controller.support import NOW

TOKEN = "system:bootstrap:abc123"
KUBEADM = "system:bootstrappers:kubeadm:default-node-token"
CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"


@pytest.fixture
def keeping() -> AutoApprovalReconciler:
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


def known(keeping: AutoApprovalReconciler) -> list[frozenset[str]]:
    return list(keeping._group_sets)


def approvals(keeping: AutoApprovalReconciler) -> float:
    return float(keeping._metrics.builtin_approvals.labels("team-a/one")._value.get())


def test_groups_of_tokens_are_reviewed_too(keeping: AutoApprovalReconciler) -> None:
    keeping.saw(csr(groups=["system:authenticated", "system:bootstrappers", KUBEADM, "system:bootstrappers:extra"]))
    assert known(keeping) == [frozenset({"system:bootstrappers", KUBEADM, "system:bootstrappers:extra"})]


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
def test_what_no_token_has_is_not_remembered(keeping: AutoApprovalReconciler, manifest: dict[str, Any]) -> None:
    keeping.saw(manifest)
    assert known(keeping) == []


def test_what_is_remembered_is_bounded(keeping: AutoApprovalReconciler) -> None:
    for number in range(1000):
        keeping.saw(csr(groups=[f"system:bootstrappers:{number}"]))
    assert len(known(keeping)) == reconciler._MAXIMUM_GROUP_SETS


def test_an_approval_is_counted_once(keeping: AutoApprovalReconciler) -> None:
    keeping.saw(csr(uid="a"))
    for _ in range(3):
        keeping.saw(csr(uid="a", approved=True))
    keeping.saw(csr(uid="b", approved=True))
    assert approvals(keeping) == 2


def test_what_was_approved_before_we_looked_is_not_counted(keeping: AutoApprovalReconciler) -> None:
    keeping.listed(csr(uid="a", approved=True))
    keeping.saw(csr(uid="a", approved=True))
    assert approvals(keeping) == 0
    keeping.listed(csr(uid="b"))
    keeping.saw(csr(uid="b", approved=True))
    assert approvals(keeping) == 1


def test_what_was_approved_while_the_connection_was_lost_is_counted(
    keeping: AutoApprovalReconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builtin_approvals, "_REMEMBERED", 4)
    for uid in ("a", "b"):
        keeping.listed(csr(uid=uid, approved=True))  # the connection may be lost within the first list, too
    keeping.list_ended()
    keeping.saw(csr(uid="c", approved=True))
    assert approvals(keeping) == 1
    for uid in ("a", "b", "c", "d"):
        keeping.listed(csr(uid=uid, approved=True))
    keeping.list_ended()
    assert approvals(keeping) == 2
    for uid in ("a", "b", "c", "d", "e", "a"):
        keeping.listed(csr(uid=uid, approved=True))
    assert approvals(keeping) == 2, "there were more than are remembered"


def attested(keeping: AutoApprovalReconciler, provider_id: str) -> None:
    keeping.decided(MagicMock(provider_id=provider_id), MagicMock(spec=Approve), "")


class Telling(asyncio.Event):
    """Calls ``tell`` each time that it is set."""

    def __init__(self, tell: Callable[[], object]) -> None:
        super().__init__()
        self._tell = tell

    def set(self) -> None:
        super().set()
        self._tell()


def test_attested_nodes_ask_for_a_look_when_the_last_one_is(keeping: AutoApprovalReconciler) -> None:
    keeping._unattested = {"p:///1", "p:///2"}
    attested(keeping, "p:///3")
    attested(keeping, "p:///1")
    attested(keeping, "p:///1")
    assert not keeping._wanted.is_set(), "one is left: a fleet that joins must not cause a look for each node"
    attested(keeping, "p:///2")
    assert keeping._wanted.is_set()


def found(met: bool | None, reason: str) -> PolicyCondition:
    return PolicyCondition(conditions.AUTO_APPROVAL_REMOVED, met, reason, "")


@pytest.mark.parametrize(
    "condition",
    [
        found(None, "WorkloadClusterUnreachable"),
        *(found(False, reason) for reason in ("Forbidden", "RemovedGrantsNotKept", "RemovedGrantReturns")),
    ],
    ids=lambda condition: condition.reason,
)
def test_a_look_that_failed_is_repeated_soon_and_then_less_often(
    keeping: AutoApprovalReconciler, condition: PolicyCondition
) -> None:
    keeping._conditions = (found(True, "Removed"), condition)
    pauses = [keeping._until_next_look() for _ in range(12)]
    assert pauses[0] <= 5.0
    assert pauses[-1] >= LOOK_SECONDS / 2
    assert max(pauses) <= LOOK_SECONDS
    keeping._conditions = (found(True, "Removed"),)
    keeping._until_next_look()
    keeping._conditions = (condition,)
    assert keeping._until_next_look() <= 5.0, "a look that succeeded ends the series"


@pytest.mark.parametrize("condition", [found(True, "Removed"), found(False, "WaitingForAttestation")])
def test_looks_of_many_clusters_spread(keeping: AutoApprovalReconciler, condition: PolicyCondition) -> None:
    keeping._conditions = (condition,)
    pauses = [keeping._until_next_look() for _ in range(50)]
    assert len(set(pauses)) > 1
    assert min(pauses) >= LOOK_SECONDS * (1 - SPREAD)
    assert max(pauses) <= LOOK_SECONDS * (1 + SPREAD)


def test_after_a_look_that_removed_something_the_next_one_is_soon(keeping: AutoApprovalReconciler) -> None:
    """Who puts it back at once has not opened the door for minutes."""
    keeping._conditions = (found(True, "Removed"),)
    keeping._auto_approval.removed_at_last_look["kubeadm:node-autoapprove-bootstrap"] = "uid-1"
    assert keeping._until_next_look() <= 5.0
    keeping._auto_approval.removed_at_last_look.clear()
    assert keeping._until_next_look() >= LOOK_SECONDS * (1 - SPREAD)


def test_an_approval_asks_for_a_look_under_enforce_only(
    keeping: AutoApprovalReconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "_mode", lambda: Mode.OBSERVE)
    keeping.saw(csr(username="somebody", uid="a", approved=True))
    assert not keeping._wanted.is_set()
    monkeypatch.setattr(keeping, "_mode", lambda: Mode.ENFORCE)
    keeping.saw(csr(username="somebody", uid="b", approved=True))
    assert keeping._wanted.is_set()


@pytest.fixture
def enforcing(keeping: AutoApprovalReconciler, monkeypatch: pytest.MonkeyPatch) -> AutoApprovalReconciler:
    """A look finds the door shut."""
    has_policy(keeping, mode="Enforce")
    caches: Any = keeping._caches
    caches.clusters.get = lambda *_: cluster_view()
    monkeypatch.setattr(keeping, "renewal_coverage", MagicMock(unattested=AsyncMock(return_value=())))
    keeping._authority_source = MagicMock(authority=AsyncMock())
    keeping._auto_approval = auto_approval(AsyncMock(return_value=found(True, "Removed")))
    monkeypatch.setattr(keeping, "_pool_tokens", MagicMock(tend=AsyncMock(return_value=NothingToTend())))
    return keeping


def auto_approval(reconcile: Any, removed: Iterable[str] = ()) -> Any:
    """Each look removes these bindings, which somebody has made anew."""
    uids, found_door = itertools.count(), MagicMock(reconcile=reconcile)
    names = list(removed)
    removals = PropertyMock(side_effect=lambda: {name: str(next(uids)) for name in names})
    type(found_door).removed_at_last_look = removals
    return found_door


def has_policy(keeping: AutoApprovalReconciler, *, uid: str = "policy-1", generation: int = 1, **spec: Any) -> None:
    made = replace(policy(**spec), uid=uid, generation=generation)
    cast("Any", keeping._caches).policies.get = lambda *_: made


async def test_more_groups_than_can_be_asked_about_are_not_called_shut(enforcing: AutoApprovalReconciler) -> None:
    """The reviews would say nothing of those left out."""
    keeping = enforcing
    for number in range(reconciler._MAXIMUM_GROUP_SETS):
        keeping.saw(csr(groups=[f"system:bootstrappers:{number}"]))
    assert (await keeping._look(MagicMock()))[0] == found(True, "Removed")
    keeping.saw(csr(groups=["system:bootstrappers:one-more"]))
    (condition,) = await keeping._look(MagicMock())
    assert (condition.met, condition.reason) == (None, "TooManyGroups")


def test_under_observe_the_count_is_told_at_once_and_then_in_steps(
    keeping: AutoApprovalReconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "_mode", lambda: Mode.OBSERVE)
    keeping._conditions = (found(False, "Observing"),)
    told: list[str] = []
    keeping._changed = Telling(lambda: told.append(keeping.conditions[0].message))
    for number in range(25):
        keeping.saw(csr(username="somebody", uid=str(number), approved=True))
    assert [text.split(" built-in")[0].removeprefix("; ") for text in told] == [
        *(str(number) for number in range(1, 10)),
        "at least 10",
        "at least 20",
    ]
    monkeypatch.setattr(keeping, "_mode", lambda: Mode.ENFORCE)
    assert keeping.conditions == (found(False, "Observing"),)


@pytest.mark.parametrize(("met", "named"), [(True, True), (False, False), (None, False)])
def test_who_asks_in_vain_is_told_at_once_where_the_door_is_shut(
    keeping: AutoApprovalReconciler, met: bool | None, named: bool
) -> None:
    """Where it is not, somebody may still let them in."""
    has_policy(keeping, mode="Enforce")
    keeping._found_under = keeping._asked_for()
    keeping._conditions = (found(met, "Reason"),)
    told: list[str] = []
    keeping._changed = Telling(lambda: told.append(keeping.conditions[0].message))
    request = csr("system:node:by-hand")
    request["metadata"]["creationTimestamp"] = format_time(NOW)
    for _ in range(2):
        keeping.saw(request)
    assert [gauge.value for gauge in keeping.gauges()] == [1]
    assert len(told) == named
    assert ("got nothing: system:node:by-hand;" in keeping.conditions[0].message) is named


# What a look says, and of what


@contextlib.asynccontextmanager
async def looking(keeping: AutoApprovalReconciler) -> AsyncIterator[asyncio.Queue[tuple[PolicyCondition, ...]]]:
    """Looks until the context ends; gives the conditions each time that they may have changed."""
    told: asyncio.Queue[tuple[PolicyCondition, ...]] = asyncio.Queue()
    checks: Any = keeping._checks
    checks.turn = lambda: contextlib.nullcontext(AsyncMock())
    keeping._changed = Telling(lambda: told.put_nowait(keeping.conditions))
    task = asyncio.create_task(keeping.run(MagicMock()))
    try:
        yield told
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(
    "changed",
    [
        lambda keeping: has_policy(keeping, mode="Observe", generation=2),
        lambda keeping: has_policy(keeping, mode="Enforce", generation=2),
        lambda keeping: has_policy(keeping, mode="Enforce", uid="policy-2"),
        lambda keeping: has_policy(keeping, mode="Observe"),
    ],
    ids=["left", "another generation", "another policy", "another mode"],
)
async def test_what_was_found_says_nothing_of_a_policy_that_has_changed(
    enforcing: AutoApprovalReconciler, changed: Callable[[AutoApprovalReconciler], None]
) -> None:
    """Else a True of before is written for the new generation, while a door is being opened."""
    async with looking(enforcing) as told:
        assert await told.get() == enforcing.conditions == (found(True, "Removed"),)
        changed(enforcing)
        (condition,) = enforcing.conditions
        assert (condition.met, condition.reason) == (None, "PolicyChanged")


async def test_nor_of_one_that_cannot_be_followed_any_more(enforcing: AutoApprovalReconciler) -> None:
    caches: Any = enforcing._caches
    async with looking(enforcing) as told:
        await told.get()
        caches.policies.get = lambda *_: UnreadablePolicy(enforcing._key, "policy-1", 1, "no such mode")
        (condition,) = enforcing.conditions
        assert (condition.met, condition.reason) == (None, "PolicyChanged")


async def test_a_policy_that_changes_during_a_look(enforcing: AutoApprovalReconciler) -> None:
    """What the look finds is of the policy that it began with."""

    async def reconcile(*_: Any) -> PolicyCondition:
        has_policy(enforcing, mode="Enforce", generation=2)
        return found(True, "Removed")

    enforcing._auto_approval = auto_approval(reconcile)
    async with looking(enforcing) as told:
        assert [one.reason for one in await told.get()] == ["PolicyChanged"]


async def test_what_could_not_be_found_out_stays_so(keeping: AutoApprovalReconciler) -> None:
    has_policy(keeping, mode="Enforce", generation=7)
    assert [one.reason for one in keeping.conditions] == ["Connecting"]


EXTEND: dict[str, Any] = {"mode": "Enforce", "bootstrapTokens": {"machinePools": "Extend"}}


async def test_a_door_that_is_found_open_is_said_to_be_before_tokens_are_seen_to(
    enforcing: AutoApprovalReconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be thousands, one call each."""
    has_policy(enforcing, **EXTEND)
    monkeypatch.setattr(reconciler, "REST_SECONDS", 0.0)
    reconcile = AsyncMock(side_effect=[found(True, "Removed"), found(False, "GrantedByOtherBinding")])
    enforcing._auto_approval = auto_approval(reconcile)
    never, tended = asyncio.Event(), Tended(alive=3, extended=0, cut_back=0)

    async def tend(*_: Any) -> Tended:
        if reconcile.await_count == 2:
            await never.wait()
        return tended

    monkeypatch.setattr(enforcing, "_pool_tokens", MagicMock(tend=tend))
    async with looking(enforcing) as told:
        assert [(one.met, one.reason) for one in await told.get()] == [(True, "Removed"), (None, "Connecting")]
        assert [(one.met, one.reason) for one in await told.get()] == [(True, "Removed"), (True, "Extended")]
        enforcing.wake()
        open_now = [(False, "GrantedByOtherBinding"), (True, "Extended")]
        assert [(one.met, one.reason) for one in await told.get()] == open_now


async def test_what_was_said_of_tokens_is_not_said_of_another_policy(enforcing: AutoApprovalReconciler) -> None:
    has_policy(enforcing, **EXTEND)
    extended = PolicyCondition(conditions.MACHINE_POOL_TOKENS_EXTENDED, True, "Extended", "")
    async with looking(enforcing) as told:
        await told.get()
        enforcing._conditions = (found(True, "Removed"), extended)
        assert enforcing._tokens_before(enforcing._asked_for()) == extended
        has_policy(enforcing, generation=2, **EXTEND)
        assert enforcing._tokens_before(enforcing._asked_for()).reason == "Connecting"


async def test_a_defect_neither_ends_the_looks_nor_leaves_a_true_behind(
    enforcing: AutoApprovalReconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "REST_SECONDS", 0.0)
    enforcing._auto_approval = auto_approval(
        AsyncMock(side_effect=[found(True, "Removed"), ZeroDivisionError, found(True, "Removed")])
    )
    async with looking(enforcing) as told:
        for expected in ((True, "Removed"), (None, "InternalError"), (True, "Removed")):
            assert [(one.met, one.reason) for one in await told.get()] == [expected]
            enforcing.wake()


async def test_tokens_take_no_longer_than_they_may(
    enforcing: AutoApprovalReconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is the door restored as long as they are not cut back."""
    monkeypatch.setattr(reconciler, "TEND_TIMEOUT_SECONDS", 0.01)

    async def tend(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(enforcing, "_pool_tokens", MagicMock(tend=tend))
    has_policy(enforcing, **EXTEND)
    said = await enforcing._look(MagicMock())
    assert [(one.type, one.met) for one in said] == [
        (conditions.AUTO_APPROVAL_REMOVED, True),
        (conditions.MACHINE_POOL_TOKENS_EXTENDED, None),
    ]
    assert "too slowly" in said[1].message
    has_policy(enforcing, **{**EXTEND, "mode": "Observe"})
    (condition,) = await enforcing._look(MagicMock())
    assert (condition.met, condition.reason) == (False, "RestorationIncomplete")


# What somebody keeps putting back


async def test_a_binding_that_keeps_coming_back_is_not_called_removed(enforcing: AutoApprovalReconciler) -> None:
    enforcing._auto_approval = auto_approval(AsyncMock(return_value=found(True, "Removed")), ["gitops"])
    said = [(await enforcing._look(MagicMock()))[0] for _ in range(3)]
    assert [(one.met, one.reason) for one in said] == [
        (True, "Removed"),
        (True, "Removed"),
        (False, "RemovedGrantReturns"),
    ]
    assert "ClusterRoleBinding gitops" in said[2].message


async def test_what_comes_back_because_it_was_given_back_does_not_count(enforcing: AutoApprovalReconciler) -> None:
    shut, opened = AsyncMock(return_value=found(True, "Removed")), AsyncMock(return_value=found(False, "Observing"))
    for _ in range(4):
        has_policy(enforcing, mode="Enforce")
        enforcing._auto_approval = auto_approval(shut, ["kubeadm"])
        assert (await enforcing._look(MagicMock()))[0].met is True
        has_policy(enforcing, mode="Observe")
        enforcing._auto_approval = auto_approval(opened)
        assert (await enforcing._look(MagicMock()))[0].reason == "Observing"


async def test_no_token_is_extended_beside_a_binding_that_keeps_coming_back(enforcing: AutoApprovalReconciler) -> None:
    has_policy(enforcing, **EXTEND)
    waiting = found(False, conditions.WAITING_FOR_ATTESTATION)
    enforcing._auto_approval = auto_approval(AsyncMock(return_value=waiting), ["gitops"])
    tend: Any = enforcing._pool_tokens.tend
    intents = []
    for _ in range(3):
        await enforcing._look(MagicMock())
        intents.append(tend.await_args.args[1])
    assert intents == [Intent.EXTEND, Intent.EXTEND, Intent.CUT_BACK]
