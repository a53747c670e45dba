"""How long a computation takes, where the difference is that between milliseconds and minutes."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Final

_TRIES: Final = 3


def require_cpu_seconds(most: float, work: Callable[[], object]) -> None:
    """Raise AssertionError if ``work`` takes more CPU time than ``most`` seconds in each of three runs.

    A collection of garbage does not count: in a process that has run thousands of tests, one takes half a second.
    """
    taken: list[float] = []
    for _ in range(_TRIES):
        collects = gc.isenabled()
        gc.disable()
        try:
            before = time.thread_time()
            work()
            taken.append(time.thread_time() - before)
        finally:
            if collects:
                gc.enable()
        if taken[-1] < most:
            return
    raise AssertionError(f"it took {min(taken):.3f} s of CPU time, and at most {most} s are expected")
