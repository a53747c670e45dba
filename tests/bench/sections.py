"""The sections of the benchmark in their order. A new one is a function that makes a table, and a line here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.bench.challenge_flood import (
    MAXIMUM_GROWTH,
    MAXIMUM_SECONDS_SLOWER,
    Flood,
    Flooded,
    measure_challenge_flood,
)
from tests.bench.cloud_verification import measure_cloud_verification
from tests.bench.drains import STARTS, measure_drains
from tests.bench.figures import Better, Column, Figure, Row, Table
from tests.bench.progress import Say
from tests.bench.settings import Settings
from tests.bench.sizes import WORK as SIZES_WORK
from tests.bench.sizes import measure_sizes
from tests.bench.steady import RATES, measure_steady
from tests.bench.steady import WORK as STEADY_WORK
from tests.bench.tpm_verification import measure_tpm_verification
from tests.bench.warm_start import measure_warm_start
from tests.bench.world import Work
from tests.support.control_plane import ControlPlane

_MIB: Final = 1024 * 1024
# Seconds on two cores, for the estimate that a run begins with.
_WORLD: Final = 15.0
_START: Final = 3.0
_EACH_REQUEST: Final = 0.02
_EACH_MACHINE: Final = 0.01
_EACH_IN_A_FLOOD: Final = 0.005
_FLOOD: Final = 60.0


@dataclass(frozen=True, slots=True)
class Section:
    """One measurement."""

    name: str
    seconds: Callable[[Settings], float]
    """About how long it takes."""
    measure: Callable[[Settings, Say], Table]
    """Raises :class:`tests.support.binaries.MissingPart` where real parts are missing."""


def _start(settings: Settings, say: Say) -> Table:
    measured = measure_warm_start(settings.start_runs)
    columns = (Column("ms", "ms", 1), Column("ratio", "times the bare interpreter", 2))
    times = (
        ("python -c pass", measured.interpreter_milliseconds, 1.0),
        ("kubelet-authenticator", measured.plugin_milliseconds, measured.ratio),
    )
    rows = (Row(name, {"ms": Figure.once(ms), "ratio": Figure.once(ratio)}) for name, ms, ratio in times)
    title = "kubelet-authenticator with a valid stored certificate"
    return Table("start", title, columns, tuple(rows), (f"Whole processes, medians of {measured.runs} in turn.",))


def _verification(settings: Settings, say: Say) -> Table:
    runs = settings.verification_runs
    measured = [*measure_tpm_verification(runs), *measure_cloud_verification(runs)]
    return Table(
        "verification",
        "One honest piece of evidence, the controller's CPU time",
        (Column("ms", "ms, median", 2), Column("most", "ms, at most", 2)),
        tuple(
            Row(one.title, {"ms": Figure.once(one.median_milliseconds), "most": Figure.once(one.maximum_milliseconds)})
            for one in measured
        ),
        (f"Of {runs} runs each; without network: what clouds answer is there already.",),
    )


def _floods(settings: Settings, say: Say) -> Table:
    rows = []
    for flood in Flood:
        say(flood.value)
        with ControlPlane() as control_plane:
            control_plane.seed_kubeadm()
            rows.append(_flood_row(measure_challenge_flood(control_plane, flood, settings.flood_requests)))
    return Table(
        "floods",
        f"{settings.flood_requests:,} first requests with TPM evidence, by one stolen token",
        (
            Column("grown", "MiB more", 0),
            Column("before", "an honest join's p99 before, s", 2, Better.NEITHER),
            Column("meanwhile", "meanwhile, s", 2),
            Column("slower", "slower by, s", 2),
        ),
        tuple(rows),
        (
            f"To keep: {MAXIMUM_GROWTH // _MIB} MiB and {MAXIMUM_SECONDS_SLOWER:.0f} s. "
            "Honest machines join with the same token, two a second.",
        ),
    )


def _flood_row(flooded: Flooded) -> Row:
    figures = {
        "grown": flooded.grown / _MIB,
        "before": flooded.p99_seconds_before,
        "meanwhile": flooded.p99_seconds_meanwhile,
        "slower": flooded.slower_seconds,
    }
    return Row(flooded.flood, {key: Figure.once(value) for key, value in figures.items()})


def _heap_seconds(requests: int, works: int) -> float:
    return _WORLD + works * (STARTS + 1) * _START + requests * (_EACH_MACHINE + works * _EACH_REQUEST)


def _steady_seconds(settings: Settings) -> float:
    offered = len(STEADY_WORK) * len(RATES) * settings.steady_seconds
    return _heap_seconds(round(sum(RATES) * settings.steady_seconds), 0) + len(STEADY_WORK) * _START + 1.5 * offered


SECTIONS: Final = (
    Section("start", lambda settings: settings.start_runs * 0.1, _start),
    Section("verification", lambda settings: settings.verification_runs * 0.05, _verification),
    Section(
        "drain",
        lambda settings: settings.rounds * _heap_seconds(settings.requests, len(Work)),
        lambda settings, say: measure_drains(settings.requests, settings.rounds, say),
    ),
    Section("steady", _steady_seconds, lambda settings, say: measure_steady(settings.steady_seconds, say)),
    Section(
        "sizes",
        lambda settings: sum(_heap_seconds(size, len(SIZES_WORK)) for size in settings.sizes),
        lambda settings, say: measure_sizes(settings.sizes, say),
    ),
    Section("floods", lambda settings: len(Flood) * (_FLOOD + settings.flood_requests * _EACH_IN_A_FLOOD), _floods),
)
