"""What a check is, what a plan is, and the one driver that runs a plan in its order.

A plan lists stages: a :class:`Step`, which gathers facts, or a :class:`CheckGroup`. Every stage may refuse. The plan is
walked with an object that has a method for each stage: the decision's asks caches, API servers and attestors; the
replay's reads what was logged. The plan alone says what is run, and in which order; :mod:`signer.rules.checks` has both
plans.
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
"""How often a plan is walked from ``again_from`` on before the request waits."""


class FactsChanged(Exception):
    """What was judged has changed, or somebody else wrote it first: it is read again, then judged again."""


class Proceed(enum.Enum):
    """What a step returns that has not ended the decision."""

    PROCEED = "proceed"


PROCEED: Final = Proceed.PROCEED


@dataclass(frozen=True, slots=True)
class Check(Generic[FactsOf]):
    """One check: it raises ``Refused`` or ``Deferred``, or the next one follows. The rest is for ``explain``."""

    run: Callable[[FactsOf], None]
    says: str
    compares: Callable[[FactsOf], Comparison] = lambda facts: NOTHING_COMPARED
    """Both sides of the check, whether it passes or not."""

    @property
    def name(self) -> str:
        """Stable: the function's."""
        return self.run.__name__


Compares: TypeAlias = Callable[[], Comparison]
Note: TypeAlias = Callable[[Compares], None]
"""Takes what a step compared; the comparison is made only if somebody wants to see it."""


@dataclass(frozen=True)  # no slots: then it cannot be made by a name for one of its types
class Step(Generic[Supplies]):
    """A stage without checks. It gathers facts; it may refuse as a check does, and it may end the decision."""

    name: str
    says: str
    """What must hold."""
    run: Callable[[Supplies], Callable[[Note], Awaitable[object]]]
    """The method of what the plan is walked with; it returns :data:`PROCEED`, or the decision."""
    applies: Callable[[Supplies], bool] | None = None
    """Whether there is anything to do; it is passed over, and not listed as not reached, where there is not."""


@dataclass(frozen=True)  # no slots: then it cannot be made by a name for one of its types
class CheckGroup(Generic[Supplies]):
    """A stage of checks over the same facts."""

    name: str
    checks: tuple[Check[Any], ...]
    facts: Callable[[Supplies], Callable[[], Awaitable[Any]]]
    recheck: Callable[[Supplies], Callable[[Refused | Deferred], Awaitable[None]]] | None = None
    """Called once when a check ends it: it raises the error, or returns, and then stages are run again."""
    again_from: str = ""
    """The stage from which they are run again after a recheck; this one, if it is empty."""


Stage: TypeAlias = Step[Supplies] | CheckGroup[Supplies]
Listed: TypeAlias = Check[Any] | Step[Any]


@dataclass(frozen=True, slots=True)
class Plan(Generic[Supplies]):
    """All that stands between a request and its answer, in the order in which it is run."""

    stages: tuple[Stage[Supplies], ...]
    again_from: str
    """The stage from which it is walked again after :class:`FactsChanged`. No earlier one raises that."""

    def position(self, name: str) -> int:
        """Where the stage of that name stands."""
        return [stage.name for stage in self.stages].index(name)

    def listed(self) -> tuple[Listed, ...]:
        """Every step and check in its order."""
        return tuple(
            one for stage in self.stages for one in (stage.checks if isinstance(stage, CheckGroup) else (stage,))
        )

    def numbered(self) -> tuple[tuple[int, Listed], ...]:
        """The same, with the numbers of the checks as documents and ``explain`` count them; 0 for a step."""
        number, found = 0, []
        for one in self.listed():
            number += isinstance(one, Check)
            found.append((number if isinstance(one, Check) else 0, one))
        return tuple(found)


class Trace(Protocol):
    """Is told of each check and step as it is run, in the order of running. It changes nothing, and must not raise."""

    def passed(self, check: Check[Facts], facts: Facts) -> None:
        """The check has nothing against it."""
        ...

    def stopped(self, check: Check[Facts], facts: Facts, error: Refused | Deferred) -> None:
        """The check ended it."""
        ...

    def step(self, step: Step[Any]) -> AbstractContextManager[Note]:
        """Around a step, which an exception ends; what it gives takes what was compared, made only if wanted."""
        ...


class _Silence:
    """Nobody listens: what the controller runs with."""

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
    """Run ``checks`` in order, and tell ``trace`` of each.

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
    """Run the plan's stages in their order, until one of them returns the decision.

    Raises:
        Refused, Deferred: from the first check or step that does not pass.
        FactsChanged: before there was anything that could change; a defect.
    """
    position, again_from, attempts = 0, plan.position(plan.again_from), 1
    rechecked: set[str] = set()
    while position < len(plan.stages):
        stage = plan.stages[position]
        try:
            if isinstance(stage, Step):
                found = await _take(stage, supplies, trace)
                if found is None:
                    raise Deferred(Reason.INTERNAL_ERROR, f"step {stage.name} returned nothing")
                if found is not PROCEED:
                    return found
                position += 1
            else:
                passed = await _judge(stage, supplies, trace, rechecked)
                position = position + 1 if passed else plan.position(stage.again_from or stage.name)
        except FactsChanged:
            if position < again_from:
                raise
            if attempts == MOST_ATTEMPTS:
                raise Deferred(Reason.RESERVATION_PENDING, "the record is contended; it is tried again") from None
            position, attempts = again_from, attempts + 1
            rechecked.clear()
    raise Deferred(Reason.INTERNAL_ERROR, "every check passed, and nothing was decided")


async def _take(step: Step[Supplies], supplies: Supplies, trace: Trace) -> object:
    if step.applies is not None and not step.applies(supplies):
        return PROCEED
    with trace.step(step) as note:
        return await step.run(supplies)(note)


async def _judge(group: CheckGroup[Supplies], supplies: Supplies, trace: Trace, rechecked: set[str]) -> bool:
    """Whether the checks passed; if not, stages are to be run again."""
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
