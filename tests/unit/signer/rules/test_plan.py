"""The driver: it runs what a plan lists, in its order, and nothing else; an end without a decision is no approval."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason
from signer.rules.comparison import NOTHING_COMPARED
from signer.rules.plan import PROCEED, Check, CheckGroup, FactsChanged, Note, Plan, Step, Trace, walk

REFUSED = Refused(Reason.INVALID_SUBJECT, "no")
DEFERRED = Deferred(Reason.MACHINE_PAUSED, "later")


class Supplies:
    """Notes what is run; a stage does what ``on`` says of it, once for each entry, and proceeds otherwise."""

    def __init__(self, **on: list[object]) -> None:
        self.ran: list[str] = []
        self.on = on

    def take(self, name: str) -> object:
        self.ran.append(name)
        planned = self.on.get(name, [])
        found = planned.pop(0) if planned else PROCEED
        if isinstance(found, Exception):
            raise found
        return found

    def step(self, name: str) -> Callable[[Note], Any]:
        async def run(note: Note) -> object:
            note(lambda: NOTHING_COMPARED)
            return self.take(name)

        return run

    async def facts(self) -> Supplies:
        self.take("facts")
        return self

    async def recheck(self, error: Refused | Deferred) -> None:
        found = self.take("recheck")
        if found is error:
            raise error


def step(name: str, applies: Callable[[Any], bool] | None = None) -> Step[Supplies]:
    return Step(name, f"{name} holds", lambda supplies: supplies.step(name), applies)


def check(name: str) -> Check[Supplies]:
    def run(supplies: Supplies) -> None:
        supplies.take(name)

    run.__name__ = name
    return Check(run, f"{name} holds")


def plan(*, recheck: bool = False, recheck_from: str = "", applies: Callable[[Any], bool] | None = None) -> Plan[Any]:
    group: CheckGroup[Supplies] = CheckGroup(
        "checks",
        (check("c1"), check("c2")),
        lambda supplies: supplies.facts,
        recheck=(lambda supplies: supplies.recheck) if recheck else None,
        again_from=recheck_from,
    )
    return Plan((step("first", applies), step("second"), group, step("last")), again_from="second")


class Told(Trace):
    """What a trace is told, by name."""

    def __init__(self) -> None:
        self.all: list[str] = []

    def passed(self, check: Check[Any], facts: object) -> None:
        self.all.append(check.name)

    def stopped(self, check: Check[Any], facts: object, error: Refused | Deferred) -> None:
        self.all.append(f"{check.name} stopped")

    @contextmanager
    def step(self, step: Step[Any]) -> Iterator[Note]:
        try:
            yield lambda compares: None
        except Exception:
            self.all.append(f"{step.name} stopped")
            raise
        self.all.append(step.name)


EVERYTHING = ["first", "second", "facts", "c1", "c2", "last"]


async def test_everything_runs_in_its_order_and_the_trace_is_told_of_it() -> None:
    supplies, told = Supplies(last=["approved"]), Told()
    assert await walk(plan(), supplies, told) == "approved"
    assert supplies.ran == EVERYTHING
    assert told.all == [one.name for one in plan().listed()]


async def test_a_step_may_end_it_with_a_decision() -> None:
    supplies = Supplies(second=["challenge"])
    assert await walk(plan(), supplies) == "challenge"
    assert supplies.ran == ["first", "second"]


async def test_a_step_that_returns_nothing_approves_nothing() -> None:
    with pytest.raises(Deferred, match="step first returned nothing") as caught:
        await walk(plan(), Supplies(first=[None], last=["approved"]))
    assert caught.value.defer.reason == Reason.INTERNAL_ERROR


async def test_an_end_without_a_decision_approves_nothing() -> None:
    with pytest.raises(Deferred) as caught:
        await walk(plan(), Supplies())
    assert caught.value.defer.reason == Reason.INTERNAL_ERROR


async def test_what_does_not_apply_is_neither_run_nor_told() -> None:
    supplies, told = Supplies(last=["approved"]), Told()
    assert await walk(plan(applies=lambda supplies: False), supplies, told) == "approved"
    assert supplies.ran == EVERYTHING[1:]
    assert "first" not in told.all
    supplies = Supplies(last=["approved"])
    await walk(plan(applies=lambda supplies: True), supplies)
    assert supplies.ran == EVERYTHING


@pytest.mark.parametrize("error", [REFUSED, DEFERRED, KeyError("a fault")])
@pytest.mark.parametrize("at", EVERYTHING)
async def test_whatever_a_stage_raises_ends_it_there(at: str, error: Exception) -> None:
    on: dict[str, list[object]] = {"last": ["approved"], at: [error]}
    supplies = Supplies(**on)
    with pytest.raises(type(error)):
        await walk(plan(), supplies)
    assert supplies.ran == EVERYTHING[: EVERYTHING.index(at) + 1]


# Again, after a recheck


@pytest.mark.parametrize("error", [REFUSED, DEFERRED])
async def test_after_a_recheck_facts_are_read_and_judged_anew(error: Exception) -> None:
    supplies, told = Supplies(c2=[error], last=["approved"]), Told()
    assert await walk(plan(recheck=True), supplies, told) == "approved"
    assert supplies.ran == ["first", "second", "facts", "c1", "c2", "recheck", "facts", "c1", "c2", "last"]
    assert told.all == ["first", "second", "c1", "c2 stopped", "c1", "c2", "last"]


async def test_or_from_where_the_plan_says() -> None:
    supplies = Supplies(c1=[REFUSED], last=["approved"])
    await walk(plan(recheck=True, recheck_from="second"), supplies)
    assert supplies.ran == ["first", "second", "facts", "c1", "recheck", "second", "facts", "c1", "c2", "last"]


async def test_it_is_rechecked_once() -> None:
    supplies = Supplies(c1=[REFUSED, REFUSED], last=["approved"])
    with pytest.raises(Refused):
        await walk(plan(recheck=True), supplies)
    assert supplies.ran.count("recheck") == 1


async def test_a_recheck_that_finds_the_same_refuses() -> None:
    supplies = Supplies(c1=[REFUSED], recheck=[REFUSED], last=["approved"])
    with pytest.raises(Refused):
        await walk(plan(recheck=True), supplies)
    assert supplies.ran[-1] == "recheck"


async def test_facts_that_cannot_be_read_are_not_rechecked() -> None:
    supplies = Supplies(facts=[DEFERRED], last=["approved"])
    with pytest.raises(Deferred):
        await walk(plan(recheck=True), supplies)
    assert "recheck" not in supplies.ran


# Again, because facts have changed


@pytest.mark.parametrize("at", ["second", "facts", "c1", "last"])
async def test_what_has_changed_is_judged_again(at: str) -> None:
    on: dict[str, list[object]] = {"last": ["approved"]}
    on[at] = [FactsChanged(), *on.get(at, [PROCEED])]
    supplies = Supplies(**on)
    assert await walk(plan(), supplies) == "approved"
    assert supplies.ran[: EVERYTHING.index(at) + 1] == EVERYTHING[: EVERYTHING.index(at) + 1]
    assert supplies.ran[EVERYTHING.index(at) + 1 :] == EVERYTHING[1:]


async def test_a_recheck_may_find_that_it_has_changed() -> None:
    supplies = Supplies(c1=[REFUSED, REFUSED], recheck=[FactsChanged()], last=["approved"])
    assert await walk(plan(recheck=True), supplies) == "approved"
    assert supplies.ran.count("recheck") == 2, "once in each attempt"


async def test_before_anything_can_change_it_is_a_fault() -> None:
    with pytest.raises(FactsChanged):
        await walk(plan(), Supplies(first=[FactsChanged()], last=["approved"]))


@pytest.mark.parametrize(("changes", "decided"), [(4, True), (5, False)])
async def test_it_is_tried_a_few_times(changes: int, decided: bool) -> None:
    supplies = Supplies(last=[*(FactsChanged() for _ in range(changes)), "approved"])
    if decided:
        assert await walk(plan(), supplies) == "approved"
    else:
        with pytest.raises(Deferred, match="other writers keep changing the record") as caught:
            await walk(plan(), supplies)
        assert caught.value.defer.reason == Reason.RESERVATION_PENDING
    assert supplies.ran.count("last") == 5
