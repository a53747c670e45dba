"""Checks, plans, and the driver that runs a plan in order.

A plan lists stages: a :class:`Step`, which gathers facts, or a :class:`CheckGroup`. Every stage may refuse. An object
with a method for each stage supplies the facts: the decision's uses caches, API servers and attestors, the replay's
uses the audit log. The plan alone sets the stages and their order. Both plans are in :mod:`signer.rules.checks`.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason
from signer.rules.comparison import NOTHING_COMPARED, Comparison

Facts = TypeVar("Facts")
FactsOf = TypeVar("FactsOf", contravariant=True)
Supplies = TypeVar("Supplies", contravariant=True)

MOST_ATTEMPTS: Final = 5
"""How often a plan is walked from ``again_from`` before the request is deferred."""


class FactsChanged(Exception):
    """The facts have changed, or another writer was first: read them again and run the checks again."""


class Proceed(enum.Enum):
    """Return value of a step that does not end the decision."""

    PROCEED = "proceed"


PROCEED: Final = Proceed.PROCEED


@dataclass(frozen=True, slots=True)
class Check(Generic[FactsOf]):
    """One check. ``run`` raises ``Refused`` or ``Deferred``, or the check passes. The rest is for ``explain``."""

    run: Callable[[FactsOf], None]
    says: str
    compares: Callable[[FactsOf], Comparison] = lambda facts: NOTHING_COMPARED
    """Both sides of the check, whether it passes or not."""

    @property
    def name(self) -> str:
        """The function's name. It is stable: documents and the audit log use it."""
        return self.run.__name__


Compares: TypeAlias = Callable[[], Comparison]
Note: TypeAlias = Callable[[Compares], None]
"""Takes a step's comparison. The comparison is computed only for ``explain``."""


@dataclass(frozen=True)  # no slots: with them, an alias with type arguments could not construct it
class Step(Generic[Supplies]):
    """A stage without checks. It gathers facts. It may refuse, as a check does, and it may end the decision."""

    name: str
    says: str
    """The condition that the step verifies."""
    run: Callable[[Supplies], Callable[[Note], Awaitable[object]]]
    """The method of the supplies; it returns :data:`PROCEED`, or the decision."""
    applies: Callable[[Supplies], bool] | None = None
    """Whether the step applies. If not, it is skipped, and ``explain`` does not list it as not reached."""


@dataclass(frozen=True)  # no slots: with them, an alias with type arguments could not construct it
class CheckGroup(Generic[Supplies]):
    """A stage of checks over the same facts."""

    name: str
    checks: tuple[Check[Any], ...]
    facts: Callable[[Supplies], Callable[[], Awaitable[Any]]]
    recheck: Callable[[Supplies], Callable[[Refused | Deferred], Awaitable[None]]] | None = None
    """Called once after a check fails. It raises the error, or returns, and then the stages are run again."""
    again_from: str = ""
    """The stage from which they are run again after a recheck; empty: this one."""


Stage: TypeAlias = Step[Supplies] | CheckGroup[Supplies]
Listed: TypeAlias = Check[Any] | Step[Any]


@dataclass(frozen=True, slots=True)
class Plan(Generic[Supplies]):
    """Every stage between a request and its decision, in order."""

    stages: tuple[Stage[Supplies], ...]
    again_from: str
    """The stage from which the plan is walked again after :class:`FactsChanged`. No earlier stage raises it."""

    def position(self, name: str) -> int:
        """Index of the stage of that name."""
        return [stage.name for stage in self.stages].index(name)

    def listed(self) -> tuple[Listed, ...]:
        """Every step and check, in order."""
        return tuple(
            one for stage in self.stages for one in (stage.checks if isinstance(stage, CheckGroup) else (stage,))
        )

    def numbered(self) -> tuple[tuple[int, Listed], ...]:
        """The same with the checks' numbers, as in the documents and in ``explain``; 0 for a step."""
        number, found = 0, []
        for one in self.listed():
            number += isinstance(one, Check)
            found.append((number if isinstance(one, Check) else 0, one))
        return tuple(found)


class Trace(Protocol):
    """Observes each check and step as it runs, in order. It changes nothing and must not raise."""

    def passed(self, check: Check[Facts], facts: Facts) -> None:
        """The check passed."""
        ...

    def stopped(self, check: Check[Facts], facts: Facts, error: Refused | Deferred) -> None:
        """The check failed with ``error``."""
        ...

    def step(self, step: Step[Any]) -> AbstractContextManager[Note]:
        """Context of one step. Its value takes the step's comparison; an exception in the context ends the step."""
        ...


class _Silence:
    """A trace that does nothing; the controller's default."""

    def passed(self, check: Check[Facts], facts: Facts) -> None:
        """See Trace."""

    def stopped(self, check: Check[Facts], facts: Facts, error: Refused | Deferred) -> None:
        """See Trace."""

    def step(self, step: Step[Any]) -> AbstractContextManager[Note]:
        """See Trace."""
        return _NOT_NOTED


def _not_noted(compares: Compares) -> None:
    del compares


_NOT_NOTED: Final = nullcontext(_not_noted)
SILENCE: Final[Trace] = _Silence()


def run_checks(checks: Iterable[Check[Facts]], facts: Facts, trace: Trace = SILENCE) -> None:
    """Run ``checks`` in order and report each to ``trace``.

    Raises:
        Refused, Deferred: from the first check that does not pass.
    """
    for check in checks:
        try:
            check.run(facts)
        except (Refused, Deferred) as error:
            trace.stopped(check, facts, error)
            raise
        trace.passed(check, facts)


async def walk(plan: Plan[Supplies], supplies: Supplies, trace: Trace = SILENCE) -> Any:
    """Run the plan's stages in order, until one of them returns the decision.

    Raises:
        Refused, Deferred: from the first check or step that does not pass.
        FactsChanged: from a stage before ``again_from``; a bug.
    """
    position, again_from, attempts = 0, plan.position(plan.again_from), 1
    rechecked: set[str] = set()
    while position < len(plan.stages):
        stage = plan.stages[position]
        try:
            if isinstance(stage, Step):
                found = await _run_step(stage, supplies, trace)
                if found is None:
                    raise Deferred(Reason.INTERNAL_ERROR, f"step {stage.name} returned nothing")
                if found is not PROCEED:
                    return found
                position += 1
            else:
                passed = await _run_group(stage, supplies, trace, rechecked)
                position = position + 1 if passed else plan.position(stage.again_from or stage.name)
        except FactsChanged:
            if position < again_from:
                raise
            if attempts == MOST_ATTEMPTS:
                raise Deferred(
                    Reason.RESERVATION_PENDING, "other writers keep changing the record; it is tried again"
                ) from None
            position, attempts = again_from, attempts + 1
            rechecked.clear()
    raise Deferred(Reason.INTERNAL_ERROR, "every check passed, and nothing was decided")


async def _run_step(step: Step[Supplies], supplies: Supplies, trace: Trace) -> object:
    if step.applies is not None and not step.applies(supplies):
        return PROCEED
    with trace.step(step) as note:
        return await step.run(supplies)(note)


async def _run_group(group: CheckGroup[Supplies], supplies: Supplies, trace: Trace, rechecked: set[str]) -> bool:
    """Whether the checks passed; if not, the caller runs the stages again."""
    facts = await group.facts(supplies)()
    try:
        run_checks(group.checks, facts, trace)
    except (Refused, Deferred) as error:
        if group.recheck is None or group.name in rechecked:
            raise
        rechecked.add(group.name)
        await group.recheck(supplies)(error)
        return False
    return True
