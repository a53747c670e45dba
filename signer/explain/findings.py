"""What each check and step said, in the order in which they stand; the trace that collects it."""

from __future__ import annotations

import enum
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, TypeVar

from signer.kube.errors import ApiError
from signer.model.decision import Defer, Deferred, Deny, Refused, printable
from signer.model.reasons import Reason
from signer.rules.checks import BUILTIN_PLAN, REQUEST_PLAN
from signer.rules.comparison import NOTHING_COMPARED, Comparison
from signer.rules.machine import MachineFacts
from signer.rules.plan import Check, Compares, Listed, Note, Step

Facts = TypeVar("Facts")


class Outcome(enum.Enum):
    """How a check or step went."""

    PASSED = "passed"
    STOPPED = "stopped"
    """It ended the judging; what follows was not reached."""
    NOT_REACHED = "not reached"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of an explanation."""

    number: int
    """Of a check, as the plan counts them; 0 for a step between checks."""
    name: str
    """Stable: the check's function, or the step's name."""
    says: str
    """What must hold."""
    outcome: Outcome = Outcome.NOT_REACHED
    comparison: Comparison = NOTHING_COMPARED
    reason: str = ""
    """Why it was stopped; empty otherwise."""
    message: str = ""


def _nothing() -> Comparison:
    return NOTHING_COMPARED


class Findings:
    """A :class:`~signer.rules.plan.Trace` that keeps everything; of what is run twice, how it went last."""

    def __init__(self) -> None:
        self._found: dict[Listed, Finding] = {}
        self.facts: list[MachineFacts] = []
        """What the checks of the Machine looked at, if they were reached."""

    def passed(self, check: Check[Facts], facts: Facts) -> None:
        """See Trace."""
        self.keep(check, Outcome.PASSED, lambda: check.compares(facts))
        if isinstance(facts, MachineFacts):
            self.facts = [facts]

    def stopped(self, check: Check[Facts], facts: Facts, error: Refused | Deferred) -> None:
        """See Trace."""
        self.keep(check, Outcome.STOPPED, lambda: check.compares(facts), error)

    def step(self, step: Step[Any]) -> AbstractContextManager[Note]:
        """See Trace."""
        return _Around(self, step)

    def refused_afterwards(self, step: Step[Any], reason: str, message: str) -> None:
        """The step passed, and what it found out is the reason of a decision against the request."""
        found = self._found.get(step, _not_reached(step))
        self._found[step] = replace(found, outcome=Outcome.STOPPED, reason=reason, message=message)

    def in_order(self, builtin: bool) -> tuple[Finding, ...]:
        """Every check and step of a request to one of our signers, or to the built-in serving signer."""
        findings = []
        for number, one in (BUILTIN_PLAN if builtin else REQUEST_PLAN).numbered():
            if isinstance(one, Step) and one.applies is not None and one not in self._found:
                continue
            findings.append(replace(self._found.get(one, _not_reached(one)), number=number))
        return tuple(findings)

    def keep(self, one: Listed, outcome: Outcome, compares: Compares, error: Exception | None = None) -> None:
        """Keep how a check or step went; ``error`` is what it was stopped by."""
        reason, message = ("", "") if error is None else _why(error)
        self._found[one] = replace(
            _not_reached(one), outcome=outcome, comparison=_compared(compares), reason=reason, message=message
        )


@dataclass(slots=True)
class _Around:
    """A context manager around a step. It keeps how the step went, with what was noted last."""

    findings: Findings
    step: Step[Any]
    noted: Compares = _nothing

    def __enter__(self) -> Note:
        return self._note

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.findings.keep(self.step, Outcome.PASSED, self.noted)
        elif isinstance(error, Exception):
            self.findings.keep(self.step, Outcome.STOPPED, self.noted, error)

    def _note(self, compares: Compares) -> None:
        self.noted = compares


def _not_reached(one: Listed) -> Finding:
    return Finding(0, one.name, one.says)


def _compared(compares: Compares) -> Comparison:
    """A comparison is shown, and never a reason for anything: one that fails is left out."""
    try:
        return compares()
    except Exception as error:  # noqa: BLE001 - whatever a hostile request holds must not hide what was decided
        return Comparison(f"cannot be shown: {type(error).__name__}", "")


def _why(error: Exception) -> tuple[str, str]:
    if isinstance(error, Refused | Deferred):
        decided: Deny | Defer = error.deny if isinstance(error, Refused) else error.defer
        return printable(str(decided.reason)), decided.message
    if isinstance(error, ApiError):
        return Reason.MANAGEMENT_CLUSTER_UNREACHABLE.value, printable(str(error))
    return Reason.INTERNAL_ERROR.value, f"unexpected {type(error).__name__}"
