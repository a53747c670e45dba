"""``python -m tests.bench.profiled FILE run …``: the controller as its users run it, under the profiler.

What the event loop's thread did stands in FILE afterwards (``pstats``). Importing is not counted.
"""

from __future__ import annotations

import cProfile
import sys
import time

from signer.cli import main


def profiled(file: str, arguments: list[str]) -> int:
    """Run the controller's command line, and write the profile at its end."""
    profile = cProfile.Profile(
        time.thread_time
    )  # by the clock, a call that wakes the API server up costs a millisecond
    try:
        return profile.runcall(main, arguments)
    finally:
        profile.dump_stats(file)


if __name__ == "__main__":
    sys.exit(profiled(sys.argv[1], sys.argv[2:]))
