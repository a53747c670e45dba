"""Measures the controller's CPU time of one verification."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

RUNS: Final = 200


@dataclass(frozen=True)
class Verification:
    """The median and the maximum of many runs, in milliseconds of CPU time."""

    title: str
    median_milliseconds: float
    maximum_milliseconds: float

    def __str__(self) -> str:
        return f"{self.median_milliseconds:6.2f} ms  (at most {self.maximum_milliseconds:5.2f})  {self.title}"


def measure(title: str, run: Callable[[], object], runs: int = RUNS) -> Verification:
    """Run once to warm up, then ``runs`` times."""
    run()
    times = []
    for _ in range(runs):
        began = time.process_time()
        run()
        times.append((time.process_time() - began) * 1000)
    return Verification(title, statistics.median(times), max(times))
