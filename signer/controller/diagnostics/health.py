"""What ``/healthz`` and ``/readyz`` answer, and the form in which they do.

Alive is a process that a restart would not mend: its event loop answers, it hears of every watch, and its workers come
to an end of what they do. Ready is one that decides requests. A workload cluster can make neither false: whatever its
API server does, the others' nodes still join.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from signer.controller.replicas.leadership import Leadership
from signer.controller.replicas.shards import SharedShards
from signer.model.decision import Deferred
from signer.rules.leadership import StandingBy
from signer.rules.sharding import Disagreeing, Joining
from signer.store.caches import Caches

QUIET_SECONDS: Final = 600.0
"""A watch says something every few minutes, if only that it failed: a silent one hangs, by a defect of ours."""
STUCK_SECONDS: Final = 900.0
"""Each call of a worker is bounded; all that one request needs takes a few minutes at most."""


class State(enum.Enum):
    """Whether requests are decided."""

    STARTING = "starting"
    OUT_OF_TOUCH = "out of touch with the management cluster"
    STANDING_BY = "standing by: another replica leads"
    WITHOUT_SHARDS = "standing by: other replicas own all shards"
    OTHER_SHARDS = "standing by: other replicas run with another number of shards"
    READY = "ok"


_STANDBY_STATES: Final = frozenset({State.STANDING_BY, State.WITHOUT_SHARDS, State.OTHER_SHARDS})


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    fault: str = ""
    """What is wrong; empty where nothing is."""


@dataclass(frozen=True, slots=True)
class Report:
    """The answer of ``/healthz`` or ``/readyz``."""

    name: str
    checks: tuple[Check, ...]
    passing: str = "ok"
    """What is said where nothing is wrong."""

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not any(check.fault for check in self.checks)

    def brief(self) -> str:
        """That nothing is wrong, or what is."""
        return "; ".join(check.fault for check in self.checks if check.fault) or self.passing

    def verbose(self) -> str:
        """Each check, as Kubernetes' own endpoints list theirs (apiserver ``pkg/server/healthz``)."""
        lines = [
            f"[-]{check.name} failed: {check.fault}" if check.fault else f"[+]{check.name} ok" for check in self.checks
        ]
        return "\n".join([*lines, f"{self.name} check {'passed' if self.passed else 'failed'}", ""])


def _nobody_works() -> Iterable[float]:
    return ()


class Health:
    """Looks at the controller that was given to it."""

    def __init__(self) -> None:
        self._caches: Caches | None = None
        self._busy: Callable[[], Iterable[float]] = _nobody_works
        self._leadership: Leadership | None = None
        self._shared: SharedShards | None = None
        self._started = False

    def standing_by(self, leadership: Leadership) -> None:
        """Until the start, this replica waits for the Lease."""
        self._leadership = leadership

    def sharing(self, shared: SharedShards) -> None:
        """This replica decides requests where it owns shards."""
        self._shared = shared

    def watch(self, caches: Caches, busy_seconds: Callable[[], Iterable[float]]) -> None:
        """Look at these from now on; ``busy_seconds`` says how long each cluster's workers have had one request."""
        self._caches, self._busy = caches, busy_seconds

    def started(self) -> None:
        """Decisions are made from now on."""
        self._started = True

    def state(self) -> State:
        """Whether requests are decided at this moment."""
        if self._caches is None or not self._started:
            return State.STARTING if self._leadership is None else _standby_state(self._leadership)
        try:
            self._caches.require_in_touch()
        except Deferred:
            return State.OUT_OF_TOUCH
        return State.READY if self._shared is None else _sharing_state(self._shared)

    def alive(self) -> Report:
        """``/healthz``: false is what a restart may mend."""
        return Report("healthz", (Check("ping"), Check("watches", self._quiet()), Check("workers", self._stuck())))

    def ready(self) -> Report:
        """``/readyz``: whether requests are decided. A standby is ready: a rollout must go on while the old leader
        still leads, or the old replicas own the shards.
        """
        state = self.state()
        passing = state.value if state in _STANDBY_STATES else "ok"
        starting = state.value if state is State.STARTING else ""
        out_of_touch = state.value if state is State.OUT_OF_TOUCH else ""
        checks = (Check("ping"), Check("started", starting), Check("management-cluster", out_of_touch))
        return Report("readyz", checks, passing)

    def _quiet(self) -> str:
        if self._caches is None:
            return ""
        quiet = [cache.name for cache in self._caches.watched() if cache.quiet_seconds() > QUIET_SECONDS]
        return f"nothing heard of {', '.join(quiet)} for {QUIET_SECONDS / 60:.0f} minutes" if quiet else ""

    def _stuck(self) -> str:
        """Of most clusters: of one alone, whatever it does, the others would not profit by a restart."""
        busy = list(self._busy())
        stuck = sum(seconds > STUCK_SECONDS for seconds in busy)
        return f"workers of {stuck} clusters are stuck" if stuck * 2 > len(busy) else ""


def _standby_state(leadership: Leadership) -> State:
    match leadership.standing():
        case StandingBy(holder) if holder and leadership.is_in_touch():
            return State.STANDING_BY
        case StandingBy(holder) if holder:
            return State.OUT_OF_TOUCH
        case _:  # nobody leads yet, or this replica does and fills its caches
            return State.STARTING


def _sharing_state(shared: SharedShards) -> State:
    match shared.standing():
        case Joining():
            return State.STARTING
        case Disagreeing():
            return State.OTHER_SHARDS
        case _:
            return State.READY if shared.shards.owned else State.WITHOUT_SHARDS
