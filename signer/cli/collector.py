"""Settings of Python's cyclic garbage collector for a process that keeps many objects and makes few cycles.

Objects parsed from JSON are trees, which reference counting frees. With the default settings, the collector scans all
kept objects again and again, which took a tenth of the CPU time of a renewal.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

YOUNG_OBJECTS: Final = 10_000
"""A collection runs when this many more objects were allocated than freed (Python's default is 700). Uncollected
cycles then hold a few megabytes at most."""
_OLDER_EVERY: Final = 20
"""An older generation is collected once per this many collections of the next younger one."""


def collect_less_often() -> None:
    """Raise the thresholds of the garbage collector for this process."""
    gc.set_threshold(YOUNG_OBJECTS, _OLDER_EVERY, _OLDER_EVERY)


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Run no collection inside. Objects of imported modules stay, and scanning them again and again slows a start."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def freeze_existing_objects() -> None:
    """Exempt all existing objects from collection: code and filled caches live as long as the process."""
    gc.collect()
    gc.freeze()
