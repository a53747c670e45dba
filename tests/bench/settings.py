"""How much is measured: more takes longer and swings less."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """The counts of a run. Those here are for a machine with two cores."""

    requests: int = 1000
    """Of each drain."""
    rounds: int = 3
    """So often, ours and the peer in turn."""
    disks: tuple[int, ...] = (1, 2, 5, 10)
    """By how many milliseconds etcd's disk is slower."""
    disk_requests: int = 500
    """Of each drain on such a disk."""
    steady_seconds: float = 20.0
    """At each rate."""
    sizes: tuple[int, ...] = (250, 500, 1000, 2000)
    """The heaps whose cost is drawn."""
    clusters: tuple[int, ...] = (100, 300, 1000)
    """Idle ones, of a controller each; the first and the last say what one takes."""
    idle_seconds: float = 60.0
    wave_requests: int = 5000
    flood_requests: int = 10_000
    verification_runs: int = 200
    start_runs: int = 20


QUICK = Settings(
    requests=100,
    rounds=1,
    disks=(2, 5),
    disk_requests=50,
    steady_seconds=3,
    sizes=(50, 100),
    clusters=(10, 30),
    idle_seconds=5,
    wave_requests=200,
    flood_requests=500,
    verification_runs=20,
    start_runs=5,
)
"""Shows that everything works, in some minutes. The figures say little."""
