"""``python -m tests.bench.profiled FILE run …``: runs the controller with the profiler.

It writes the profile of the event loop's thread to FILE (``pstats``), without imports.
"""

from __future__ import annotations

import cProfile
import gc
import sys
import time
from types import FunctionType

from signer.cli import main


def profiled(file: str, arguments: list[str]) -> int:
    """Run the controller's command line, then write the profile."""
    name_generated_methods()
    # CPU time: in wall time, a call that wakes the API server would count as a millisecond.
    profile = cProfile.Profile(time.thread_time)
    try:
        return profile.runcall(main, arguments)
    finally:
        profile.dump_stats(file)


def name_generated_methods() -> None:
    """Give the methods that ``dataclasses`` generated the names of their classes.

    All have the same file and line. The profiler keeps one function for each file, line and name, so it would report
    one ``__init__``, ``__eq__`` and ``__hash__`` of all the classes, and lose the others.
    """
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename == "<string>":
            module = sys.modules.get(function.__module__)
            file = getattr(module, "__file__", None) or function.__module__
            function.__code__ = function.__code__.replace(co_filename=file, co_name=function.__qualname__)


if __name__ == "__main__":
    sys.exit(profiled(sys.argv[1], sys.argv[2:]))
