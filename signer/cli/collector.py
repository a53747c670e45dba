"""Python's collector of cyclic garbage, in a process that keeps much and makes few cycles.

What is read from JSON, and what is kept from it, are trees: counting references frees them. With the defaults, the
collector goes through everything that is kept again and again: it took a tenth of the CPU time of a renewal.
"""

from __future__ import annotations

import gc
from typing import Final

YOUNG_OBJECTS: Final = 10_000
"""So many more objects than were freed are looked through for cycles; 700 by default. Some megabytes at most wait."""
_OLDER_EVERY: Final = 20
"""Each older generation is looked through after so many of the next younger."""


def collect_seldom() -> None:
    """For the process from now on."""
    gc.set_threshold(YOUNG_OBJECTS, _OLDER_EVERY, _OLDER_EVERY)


def keep_what_there_is() -> None:
    """What lives by now, code and first lists, lives as long as the process: it is never looked through again."""
    gc.collect()
    gc.freeze()
