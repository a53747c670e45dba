"""How long a computation takes, where the difference is that between milliseconds and minutes."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")


def within_cpu_seconds(most: float, work: Callable[[], _Result], what: str = "it") -> _Result:
    """The result of ``work``. Raises AssertionError if it takes ``most`` seconds of CPU time or more.

    A collection of garbage does not count: in a process that has run thousands of tests, one takes half a second.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        before = time.process_time()
        result = work()
        taken = time.process_time() - before
    finally:
        if collects:
            gc.enable()
    assert taken < most, f"{what} took {taken:.3f} s of CPU time; less than {most} s are expected"
    return result
