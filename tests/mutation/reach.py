"""Which tests run which functions: a test that does not run a function cannot notice that it changed.

Leaving the others out makes a mutant seem unnoticed at worst, where a cache or a fixture that outlives its test hides
the call. Nothing seems noticed that is not.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, Final

Reach = dict[str, list[int]]
"""Numbers of the tests, by path and qualified name of the function."""


def function_key(path: Path, function: str) -> str:
    """How a function is named in ``Reach``."""
    return f"{path} {function}"


class Recorder:
    """Notes who is called while a test runs, in this thread and in those that begin meanwhile."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._keys: Final = {str(path.resolve()): path for path in paths}
        self._called: Final[dict[str, dict[int, None]]] = {}
        self._test = 0

    def run(self, number: int, test: Callable[[], object]) -> None:
        """Run the test of that number."""
        self._test = number
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            test()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @property
    def reach(self) -> Reach:
        """What was noted so far."""
        return {key: list(tests) for key, tests in self._called.items()}

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            path = self._keys.get(frame.f_code.co_filename)
            if path is not None:
                outermost = frame.f_code.co_qualname.partition(".<locals>")[0]
                self._called.setdefault(function_key(path, outermost), {})[self._test] = None
