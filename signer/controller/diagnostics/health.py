"""The state behind ``/healthz`` and ``/readyz``, and the format of their responses.

A process is alive if a restart would not help: its event loop responds, every watch reports, and its workers finish
their requests. It is ready if it decides requests. A workload cluster can make neither false: regardless of its API
server, the nodes of other clusters can still join.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from signer.controller.replicas.leadership import Leadership
from signer.controller.replicas.other_leader import OtherLeader
from signer.controller.replicas.shards import SharedShards
from signer.model.decision import Deferred
from signer.rules.leadership import StandingBy
from signer.rules.sharding import Disagreeing, Joining
from signer.store.caches import Caches

QUIET_SECONDS: Final = 600.0
"""A watch reports every few minutes, at least a failure; a silent one hangs because of a defect in the controller."""
STUCK_SECONDS: Final = 900.0
"""Every call of a worker is bounded; one request takes a few minutes at most."""


class State(enum.Enum):
    """Whether this replica decides requests, and if not, why."""

    STARTING = "starting"
    OUT_OF_TOUCH = "out of touch with the management cluster"
    BESIDE_A_LEADER = "standing by: another controller leads, and this one runs without --leader-elect"
    STANDING_BY = "standing by: another replica leads"
    WITHOUT_SHARDS = "standing by: other replicas own all shards"
    OTHER_SHARDS = "standing by: other replicas run with another number of shards"
    READY = "ok"


_STANDBY_STATES: Final = frozenset({State.STANDING_BY, State.WITHOUT_SHARDS, State.OTHER_SHARDS})


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    fault: str = ""
    """What is wrong; empty if the check passed."""


@dataclass(frozen=True, slots=True)
class Report:
    """The response of ``/healthz`` or ``/readyz``."""

    name: str
    checks: tuple[Check, ...]
    passing: str = "ok"
    """The text if every check passed."""

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return not any(check.fault for check in self.checks)

    def brief(self) -> str:
        """The faults, or the text for success."""
        return "; ".join(check.fault for check in self.checks if check.fault) or self.passing

    def verbose(self) -> str:
        """Every check in the format of Kubernetes' own endpoints (apiserver ``pkg/server/healthz``)."""
        lines = [
            f"[-]{check.name} failed: {check.fault}" if check.fault else f"[+]{check.name} ok" for check in self.checks
        ]
        return "\n".join([*lines, f"{self.name} check {'passed' if self.passed else 'failed'}", ""])


def _no_workers() -> Iterable[float]:
    return ()


class Health:
    """Reports the health of the controller that was passed to it."""

    def __init__(self) -> None:
        self._caches: Caches | None = None
        self._busy: Callable[[], Iterable[float]] = _no_workers
        self._leadership: Leadership | None = None
        self._shared: SharedShards | None = None
        self._other: OtherLeader | None = None
        self._broken: tuple[str, ...] = ()
        self._started = False

    def standing_by(self, leadership: Leadership) -> None:
        """This replica waits for the Lease until :meth:`started`."""
        self._leadership = leadership

    def waiting_for(self, other: OtherLeader) -> None:
        """This replica waits while ``other`` leads."""
        self._other = other

    def attestors_broken(self, providers: Iterable[str]) -> None:
        """The operator's settings of these attestors are broken; none are if it is empty."""
        self._broken = tuple(sorted(set(providers)))

    def sharing(self, shared: SharedShards) -> None:
        """This replica decides requests of the shards that it owns."""
        self._shared = shared

    def watch(self, caches: Caches, busy_seconds: Callable[[], Iterable[float]]) -> None:
        """Check these from now on; ``busy_seconds`` gives how long each cluster's slowest worker has been busy."""
        self._caches, self._busy = caches, busy_seconds

    def started(self) -> None:
        """The controller makes decisions from now on."""
        self._started = True

    def state(self) -> State:
        """The current state."""
        if self._other is not None and self._other.leads:
            return State.BESIDE_A_LEADER
        if self._caches is None or not self._started:
            return State.STARTING if self._leadership is None else _standby_state(self._leadership)
        try:
            self._caches.require_in_touch()
        except Deferred:
            return State.OUT_OF_TOUCH
        return State.READY if self._shared is None else _sharing_state(self._shared)

    def alive(self) -> Report:
        """``/healthz``: fails if a restart may help."""
        return Report("healthz", (Check("ping"), Check("watches", self._quiet()), Check("workers", self._stuck())))

    def ready(self) -> Report:
        """``/readyz``: whether requests are decided.

        A standby is ready, so that a rollout continues while the old leader still leads or the old replicas own the
        shards. A replica with a broken setting is not, so that a rollout keeps the replicas that work.
        """
        state = self.state()
        passing = state.value if state in _STANDBY_STATES else "ok"
        starting = state.value if state in {State.STARTING, State.BESIDE_A_LEADER} else ""
        out_of_touch = state.value if state is State.OUT_OF_TOUCH else ""
        broken = f"broken settings, which the log describes: {', '.join(self._broken)}" if self._broken else ""
        checks = (
            Check("ping"),
            Check("started", starting),
            Check("management-cluster", out_of_touch),
            Check("attestors", broken),
        )
        return Report("readyz", checks, passing)

    def _quiet(self) -> str:
        if self._caches is None:
            return ""
        quiet = [cache.name for cache in self._caches.watched() if cache.quiet_seconds() > QUIET_SECONDS]
        return f"no report of the watch of {', '.join(quiet)} for {QUIET_SECONDS / 60:.0f} minutes" if quiet else ""

    def _stuck(self) -> str:
        """Fails only if the workers of most busy clusters are stuck: for a single cluster a restart would not help."""
        busy = list(self._busy())
        stuck = sum(seconds > STUCK_SECONDS for seconds in busy)
        return f"workers of {stuck} clusters are stuck" if stuck * 2 > len(busy) else ""


def _standby_state(leadership: Leadership) -> State:
    match leadership.standing():
        case StandingBy(holder) if holder and leadership.is_in_touch():
            return State.STANDING_BY
        case StandingBy(holder) if holder:
            return State.OUT_OF_TOUCH
        case _:  # no replica leads yet, or this one does and fills its caches
            return State.STARTING


def _sharing_state(shared: SharedShards) -> State:
    match shared.standing():
        case Joining():
            return State.STARTING
        case Disagreeing():
            return State.OTHER_SHARDS
        case _:
            return State.READY if shared.shards.owned else State.WITHOUT_SHARDS
