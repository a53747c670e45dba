"""``python -m tests.bench.profiled FILE run …``: runs the controller with the profiler.

It writes the profile of the event loop's thread to FILE (``pstats``), without imports.
"""

from __future__ import annotations

import cProfile
import sys
import time

from signer.cli import main


def profiled(file: str, arguments: list[str]) -> int:
    """Run the controller's command line, then write the profile."""
    # CPU time: in wall time, a call that wakes the API server would count as a millisecond.
    profile = cProfile.Profile(time.thread_time)
    try:
        return profile.runcall(main, arguments)
    finally:
        profile.dump_stats(file)


if __name__ == "__main__":
    sys.exit(profiled(sys.argv[1], sys.argv[2:]))
