"""The sections of the benchmark, in order. To add one, write a function that returns a table, and list it here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.bench import tables
from tests.bench.challenge_flood import Flood
from tests.bench.command_starts import command_starts
from tests.bench.disks import WORK as DISKS_WORK
from tests.bench.disks import measure_disks
from tests.bench.drains import STARTS, measure_drains
from tests.bench.figures import Table
from tests.bench.many_clusters import SETTLE_SECONDS
from tests.bench.progress import Say
from tests.bench.settings import Settings
from tests.bench.sizes import WORK as SIZES_WORK
from tests.bench.sizes import measure_sizes
from tests.bench.steady import RATES, measure_steady
from tests.bench.steady import WORK as STEADY_WORK
from tests.bench.world import Work

# Seconds on two cores, for the estimate at the start of a run.
_WORLD: Final = 15.0
_START: Final = 3.0
_PER_REQUEST: Final = 0.02
_PER_ROUND: Final = 0.6
_PER_MACHINE: Final = 0.01
_PER_FLOOD_REQUEST: Final = 0.005
_FLOOD: Final = 60.0
_PER_CLUSTER: Final = 0.1


@dataclass(frozen=True, slots=True)
class Section:
    """One measurement."""

    name: str
    seconds: Callable[[Settings], float]
    """The estimated duration."""
    measure: Callable[[Settings, Say], Table]
    """Raises :class:`tests.support.binaries.MissingPart` if real parts are missing."""


def _backlog_seconds(requests: int, works: int) -> float:
    return _WORLD + works * (STARTS + 1) * _START + requests * (_PER_MACHINE + works * _PER_REQUEST)


def _steady_seconds(settings: Settings) -> float:
    offered = len(STEADY_WORK) * len(RATES) * settings.steady_seconds
    return _backlog_seconds(round(sum(RATES) * settings.steady_seconds), 0) + len(STEADY_WORK) * _START + 1.5 * offered


def _clusters_seconds(settings: Settings) -> float:
    idle = SETTLE_SECONDS + settings.idle_seconds
    return sum(_START + idle + count * _PER_CLUSTER for count in settings.clusters)


def _floods_seconds(settings: Settings) -> float:
    return len(Flood) * (_FLOOD + settings.flood_requests * _PER_FLOOD_REQUEST)


SECTIONS: Final = (
    Section("start", lambda settings: settings.start_runs * 0.1, tables.start),
    Section("commands", lambda settings: settings.start_runs * 4.0, command_starts),
    Section("verification", lambda settings: settings.verification_runs * 0.05, tables.verification),
    Section(
        "drain",
        lambda settings: settings.rounds * _backlog_seconds(settings.requests, len(Work)),
        lambda settings, say: measure_drains(settings.requests, settings.rounds, say),
    ),
    Section(
        "disks",
        lambda settings: len(settings.disks) * _backlog_seconds(settings.disk_requests, len(DISKS_WORK)),
        lambda settings, say: measure_disks(settings.disk_requests, settings.disks, say),
    ),
    Section("steady", _steady_seconds, lambda settings, say: measure_steady(settings.steady_seconds, say)),
    Section(
        "sizes",
        lambda settings: sum(_backlog_seconds(size, len(SIZES_WORK)) for size in settings.sizes),
        lambda settings, say: measure_sizes(settings.sizes, say),
    ),
    Section("clusters", _clusters_seconds, tables.clusters),
    Section("wave", lambda settings: _FLOOD + _backlog_seconds(settings.wave_requests, 2), tables.wave),
    Section("floods", _floods_seconds, tables.floods),
    Section(
        "revocations", lambda settings: _WORLD + _START + settings.revocation_rounds * _PER_ROUND, tables.revocations
    ),
)
