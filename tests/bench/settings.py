"""The size of a run; larger runs take longer and are more stable."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """The counts of a run; the defaults suit a machine with two cores."""

    requests: int = 1000
    """Requests per drain."""
    rounds: int = 3
    """Rounds of the controller and the peer in turn."""
    disks: tuple[int, ...] = (1, 2, 5, 10)
    """Added latencies of etcd's disk, in milliseconds."""
    disk_requests: int = 500
    """Requests per drain on such a disk."""
    steady_seconds: float = 20.0
    """Duration of each rate."""
    sizes: tuple[int, ...] = (250, 500, 1000, 2000)
    """Sizes of the backlogs in the charts."""
    clusters: tuple[int, ...] = (100, 300, 1000)
    """Numbers of idle clusters per controller; the cost per cluster is computed from the first and the last."""
    idle_seconds: float = 60.0
    wave_requests: int = 5000
    flood_requests: int = 10_000
    verification_runs: int = 200
    start_runs: int = 20
    revocation_rounds: int = 10


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
    revocation_rounds=2,
)
"""Checks in a few minutes that everything works. The figures are not meaningful."""
